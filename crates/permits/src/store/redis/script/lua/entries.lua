-- Entries and leases. An entry is packed: token (0 while it waits), slot, weight, lease ms, request, session, label.
-- Its score in leases is its deadline, negative while it waits: so one range holds everything expired, and
-- holders are listed without walking the waiters.

local ENTRY = '<dI4I4I4sss'

-- Entries and leases to write, flat as HSET and ZADD take them; and the scores among them, since most of a batch share
-- one.
local entries, leases, scores = {}, {}, {}

-- Adds an entry to write. Returns it packed.
local function put(holder, token, slot, weight, lease, request, from, label)
  local value, n = struct.pack(ENTRY, token, slot, weight, lease, request, from, label), #entries
  entries[n + 1], entries[n + 2] = holder, value
  return value
end

-- Adds a lease to write, from now on.
local function extend(holder, lease, holds)
  local key = holds and lease or -lease
  local score, n = scores[key], #leases
  if not score then
    local ends = now_ms + lease
    score = string.format('%.0f', holds and ends or -ends)
    scores[key], s.earliest = score, math.min(s.earliest, ends)
  end
  leases[n + 1], leases[n + 2] = score, holder
end

-- Writes entries and leases. Entries first: there a server out of memory refuses an acquisition, before anything is
-- written.
local function write()
  if #entries > 0 then redis.call('HSET', entries_key, unpack(entries)) end
  if #leases > 0 then redis.call('ZADD', leases_key, unpack(leases)) end
  entries, leases = {}, {}
end

-- The packed entries of these holders, by holder; a holder without one is missing.
local function find(holders)
  local found = {}
  if s.existed and #holders > 0 then
    for i, value in ipairs(redis.call('HMGET', entries_key, unpack(holders))) do
      if value then found[holders[i]] = value end
    end
  end
  return found
end

-- Forgets entries, listed flat with their holders: holders free units and slots, waiters leave the queue.
local function forget(listed)
  write()
  local holders, waiters = {}, {}
  for i = 1, #listed, 2 do
    local token, slot, weight = struct.unpack(ENTRY, listed[i + 1])
    holders[#holders + 1] = listed[i]
    if token > 0 then
      s.held, s.holders = s.held - weight, s.holders - 1
      slots.freed[#slots.freed + 1], slots.sorted = -slot, false
    else
      waiters[#waiters + 1] = listed[i]
    end
  end
  if #holders == 0 then return end
  redis.call('HDEL', entries_key, unpack(holders))
  redis.call('ZREM', leases_key, unpack(holders))
  if #waiters > 0 then
    redis.call('ZREM', queue_key, unpack(waiters))
    s.waiting = s.waiting - #waiters
  end
end

-- The end of the next lease, in ms; infinity if there is none.
local function next_deadline()
  local holder = redis.call('ZRANGEBYSCORE', leases_key, 0, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
  local waiter = redis.call('ZREVRANGEBYSCORE', leases_key, 0, '-inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
  return math.min(holder and tonumber(holder) or math.huge, waiter and -waiter or math.huge)
end
