-- Forgetting entries, and the end of the next lease.

-- Forgets the entries of these holders, each known: holders free units and slots, waiters leave the queue.
local function forget(gone)
  write()
  if #gone == 0 then return end
  local waiters = {}
  for _, holder in ipairs(gone) do
    local token, slot, weight = parts(holder, known[holder])
    known[holder] = false
    if token > 0 then
      s.held, s.holders = s.held - weight, s.holders - 1
      slots.freed[#slots.freed + 1], slots.sorted = -slot, false
    else
      waiters[#waiters + 1] = holder
    end
  end
  redis.call('HDEL', state_key, unpack(gone))
  redis.call('ZREM', leases_key, unpack(gone))
  if #waiters > 0 then
    redis.call('ZREM', queue_key, unpack(waiters))
    s.waiting = s.waiting - #waiters
  end
end

-- The end of the next lease, in ms; infinity if there is none. The waiter and the holder whose leases end first are
-- neighbours.
local function next_deadline()
  local first, last = math.max(s.waiting - 1, 0), s.holders > 0 and s.waiting or s.waiting - 1
  local ends = math.huge
  if last >= first then
    local there = redis.call('ZRANGE', leases_key, first, last, 'WITHSCORES')
    for i = 2, #there, 2 do ends = math.min(ends, math.abs(there[i])) end
  end
  return ends
end
