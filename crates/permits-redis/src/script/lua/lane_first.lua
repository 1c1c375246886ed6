-- The first lane, and where others begin behind it: see lanes.

-- The first lane that is neither short nor full, a member with its score; nothing without lanes. Without such
-- a lane: the number 0, and the furthest progress of the lanes that are full or owe, with which the next lane
-- begins.
local function read_first()
  local first = redis.call('ZRANGEBYSCORE', lanes_key, 1, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  if first[1] and tonumber(first[2]) < $FULL then return first end
  local last, owes = redis.call('ZRANGE', lanes_key, -1, -1, 'WITHSCORES'), redis.call('ZRANGE', lanes_key, 0, 0, 'WITHSCORES')
  return last[1] and { '000000', text_of(math.max(1, last[2] / $FULL, -owes[2])) } or {}
end

-- The first lane that is short, a member with its score; nothing without one.
local function read_first_short()
  return redis.call('ZRANGEBYSCORE', lanes_key, 0, '(1', 'WITHSCORES', 'LIMIT', 0, 1)
end

-- The side on which a lane with this score stands, and its progress.
local function side_of(score)
  if score >= $FULL then return 'full', score / $FULL end
  if score < 1 then return 'short', score / $SHORT end
  return 'fair', score
end

-- The progress with which the lane of this number begins behind the first one, a member with its score, also
-- when its number is lower: then it is the next greater one.
local function begins_behind(first, number)
  return first[2] * (number > tonumber(string.sub(first[1], 1, 6)) and 1 or 1 + 2 ^ -52)
end

-- Returns true if the entry of a request names a limit or a floor of its lane.
local function names_bounds(entry)
  local flags = string.byte(entry)
  return flags % 16 >= $LANED and struct.unpack('<I2', entry, $ENTRY_BYTES + 1 + (flags % 4 >= $TIMES and $TIMES_BYTES or 0)) >= $BOUNDED
end

-- Variables for the functions of lane_bounds and lane_settle, which a script defines only when it needs them.
local bounds, unpack_bounds, bounds_of, is_full_for, side_for, note_change, count_in_lane, settle, write_bounds
-- The weight of the first waiter of a lane with this name and record: each course has its own function.
local head_weight
