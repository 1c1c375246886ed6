-- The first lane, and where others begin behind it: see lanes.

-- The first lane, a member with its score; nothing without lanes. Where all are full, none owes anything: the
-- furthest progress of all counts, and no number.
local function read_first()
  local first = redis.call('ZRANGEBYSCORE', lanes_key, 0, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  if not first[1] or tonumber(first[2]) < $FULL then return first end
  local last, owes = redis.call('ZRANGE', lanes_key, -1, -1, 'WITHSCORES'), redis.call('ZRANGE', lanes_key, 0, 0, 'WITHSCORES')
  return { '000000', text_of(math.max(last[2] / $FULL, -owes[2])) }
end

-- The progress with which the lane of this number begins behind the first one, a member with its score, also
-- when the numbers begin again.
local function begins_behind(first, number)
  return first[2] + (number > tonumber(string.sub(first[1], 1, 6)) and 0 or 1)
end

-- Returns true if the entry of a request names a limit of its lane.
local function names_limit(entry)
  local flags = string.byte(entry)
  return flags % 16 >= $LANED and struct.unpack('<I2', entry, $ENTRY_BYTES + 1 + (flags % 4 >= $TIMES and $TIMES_BYTES or 0)) >= $LIMITED
end
