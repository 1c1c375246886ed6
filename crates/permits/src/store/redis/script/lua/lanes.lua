-- Lanes that get their first waiter, and lanes that lose one: see lane_order.

local LANES_MAX, FORGIVEN_MAX = 262143, 128

-- Gives a lane its progress, and a number that no other lane with waiters has.
local function begin_lane(name)
  local first, of_first = first_lane()
  if s.waiting >= LANES_MAX and redis.call('ZCOUNT', lanes_key, 0, '+inf') >= LANES_MAX then return end
  local owed, progress = -(redis.call('ZSCORE', lanes_key, owing(name)) or 0), 0
  if s.lanes == 0 then s.created[lanes_key] = true end
  repeat
    s.lanes = s.lanes % LANES_MAX + 1
  until redis.call('ZCOUNT', queue_key, tickets_of(nil, s.lanes)) == 0
  -- Behind the first lane, also when the numbers begin again.
  if first then progress = owed > first and owed or first + (s.lanes > of_first and 0 or 1) end
  redis.call('ZADD', lanes_key, progress, member_of(name, s.lanes))
  redis.call('HSET', state_key, lane_field(name), s.lanes)
  if owed > 0 then redis.call('ZREM', lanes_key, owing(name)) end
  local forgiven = first and redis.call('ZREVRANGEBYSCORE', lanes_key, '(0', -first, 'LIMIT', 0, FORGIVEN_MAX) or {}
  if #forgiven > 0 then redis.call('ZREM', lanes_key, unpack(forgiven)) end
  return s.lanes
end

-- The ticket of a new waiter, or nil if its lane can have no more.
local function join(name)
  if name ~= '' and s.lanes == 0 and s.waiting > 0 then begin_lane('') end
  local number = (name ~= '' or s.lanes > 0) and (s.lanes > 0 and number_of(name) or begin_lane(name))
  if number == nil then return end
  if name == '' then
    s.last_ticket = math.max(now_us, s.last_ticket + 1)
    return s.last_ticket
  end
  local from, to = tickets_of(name, number)
  local last = redis.call('ZREVRANGEBYSCORE', queue_key, to, from, 'WITHSCORES', 'LIMIT', 0, 1)
  local ticket = last[2] and last[2] + 1 or number * TICKETS
  if ticket < (number + 1) * TICKETS then return ticket end
end

-- Adds the cost of a grant, 0 without one, to the progress of a lane whose waiter has left the queue.
local function leave(name, cost)
  if s.waiting == 0 then
    s.lanes = 0
    redis.call('UNLINK', lanes_key)
    redis.call('HDEL', state_key, lane_field(name))
    return
  end
  local number = number_of(name)
  local member = member_of(name, number)
  if redis.call('ZCOUNT', queue_key, tickets_of(name, number)) > 0 then
    if cost > 0 then redis.call('ZADD', lanes_key, 'INCR', cost, member) end
    return
  end
  local progress = redis.call('ZSCORE', lanes_key, member) + cost
  redis.call('HDEL', state_key, lane_field(name))
  redis.call('ZREM', lanes_key, member)
  if progress > 0 then redis.call('ZADD', lanes_key, -progress, owing(name)) end
end
