-- Waiters that join lanes: see lanes. Only in acquire and renew.

local FORGIVES_EVERY = 16

-- The number of waiters that are to be granted before a waiter of this lane with `before` others before it.
-- An estimate, as if each lane had as many waiters and an equal share; at most `others`.
local function place_in(name, before, others)
  local behind = redis.call('ZREVRANK', lanes_key, member_of(name, record_of(name).number))
  return math.min(before * lanes + lanes - 1 - behind, others)
end

-- The first lane with its progress, which stays the first while others join; nil before it is read.
local first_lane = nil

-- Gives a lane its progress, and a number that no other lane with waiters has.
local function begin_lane(name, waiting)
  if lanes >= $LANES_MAX then return end
  if not first_lane then first_lane = read_first() end
  local owed, progress, number = -(redis.call('ZSCORE', lanes_key, string.format('-%s', name)) or 0), 1, nil
  repeat
    number, last_lane = last_lane % $LANES_MAX + 1, last_lane + 1
  until last_lane <= $LANES_MAX or redis.call('ZCOUNT', queue_key, number * $TICKETS, number * $TICKETS + $TICKETS - 1) == 0
  if first_lane[1] then
    progress = owed > tonumber(first_lane[2]) and owed or begins_behind(first_lane, number)
  end
  redis.call('ZADD', lanes_key, text_of(progress), member_of(name, number))
  if first_lane[1] and number % FORGIVES_EVERY == 0 then
    local forgiven = redis.call('ZREVRANGEBYSCORE', lanes_key, '(0', -first_lane[2], 'LIMIT', 0, $FORGIVEN_MAX)
    if #forgiven > 0 then redis.call('ZREM', lanes_key, unpack(forgiven)) end
  end
  -- Lanes that are full are first only until another joins.
  lanes, first_lane = lanes + 1, first_lane[1] and first_lane[1] ~= '000000' and first_lane
  return { number = number, next = 0, waiting = waiting, other = 1 }
end

-- Puts one more behind the `others` that wait. Returns its ticket, `time` in the lane without a name, and
-- its position; nil if the lane can have no more.
local function join(name, time, others)
  if lanes == 0 and others > 0 then change_lane('', begin_lane('', others)) end
  local record = record_of(name) or begin_lane(name, 0)
  if not record or record.next >= $TICKETS then return end
  local ticket, before = time, record.waiting
  if name ~= '' then ticket, record.next = string.format('%.0f', record.number * $TICKETS + record.next), record.next + 1 end
  record.waiting = before + 1
  change_lane(name, record)
  return ticket, place_in(name, before, others)
end

-- The same for a waiter whose place in its lane is not known.
local function place_of(holder, entry, others)
  if lanes == 0 then return redis.call('ZRANK', queue_key, holder) end
  local name, before = lane_of(entry), 0
  local record = record_of(name)
  if record.waiting > 1 then
    local of_others = redis.call('ZCOUNT', queue_key, '-inf', string.format('(%s', first_ticket(name, record.number)))
    before = redis.call('ZRANK', queue_key, holder) - of_others
  end
  return place_in(name, before, others)
end
