-- The order of lanes, as in src/model/lanes.rs. While `s.lanes` is not 0, each lane that waits is a member of
-- lanes, its number and its name, by its progress; and each that owes, '-' and its name, by its progress
-- below
-- 0. The number of a lane that waits is a field of the state, too: a tab, ':' and its name.

local TICKETS, FIRST_TIME = 4294967296, '1125899906842624'

-- The first and the last ticket of a lane, as a range takes them.
local function tickets_of(name, number)
  if name == '' then return FIRST_TIME, '+inf' end
  return string.format('%.0f', number * TICKETS), string.format('%.0f', number * TICKETS + TICKETS - 1)
end

local function lane_field(name)
  return string.format('\t:%s', name)
end

local function number_of(name)
  return tonumber(redis.call('HGET', state_key, lane_field(name)))
end

local function member_of(name, number)
  return string.format('%06.0f%s', number, name)
end

local function owing(name)
  return string.format('-%s', name)
end

-- The progress, the number and the name of the first lane.
local function first_lane()
  local found = redis.call('ZRANGEBYSCORE', lanes_key, 0, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  if found[1] then return tonumber(found[2]), tonumber(string.sub(found[1], 1, 6)), string.sub(found[1], 7) end
end

-- The earliest waiter of the first lane, and the name of the lane.
local function head_of_lanes()
  local _, number, name = first_lane()
  local from, to = tickets_of(name, number)
  local heads = redis.call('ZRANGEBYSCORE', queue_key, from, to, 'LIMIT', 0, 1)
  find(heads)
  return heads[1], name
end

-- The µs at which the head of the queue was queued.
local function head_queued()
  if s.lanes == 0 then return redis.call('ZRANGE', queue_key, 0, 0, 'WITHSCORES')[2] end
  local head, name = head_of_lanes()
  if name == '' then return redis.call('ZSCORE', queue_key, head) end
  local _, _, _, _, _, _, _, _, _, _, _, _, queued = parts(head, known[head])
  return queued
end

-- The number of waiters that are to be granted before this one; with lanes, if each of them has as many and
-- an equal share.
local function place_of(holder)
  if s.lanes == 0 then return redis.call('ZRANK', queue_key, holder) end
  local _, _, _, _, _, _, _, _, _, _, name = parts(holder, known[holder])
  local number = number_of(name)
  local behind = string.format('(%s', redis.call('ZSCORE', queue_key, holder))
  local before = redis.call('ZCOUNT', queue_key, tickets_of(name, number), behind)
  local owe = redis.call('ZCOUNT', lanes_key, '-inf', '(0')
  local rank = redis.call('ZRANK', lanes_key, member_of(name, number)) - owe
  return math.min(before * (redis.call('ZCARD', lanes_key) - owe) + rank, s.waiting - 1)
end
