-- Entries and leases. An entry is 'request session weight lease', and behind that 'token slot' once it holds.
-- Its score in leases is its deadline, negative while it waits: so one range is all that has expired, and
-- holders are listed without walking the waiters.

-- `lease` stays a text: it is only ever passed on, or looked up in `deadlines`.
local function parse(holder, value)
  local request, from, weight, lease, token, slot =
    string.match(value, '([^ ]*) ([^ ]*) ([^ ]*) ([^ ]*) ?([^ ]*) ?([^ ]*)')
  return { holder = holder, request = request, session = from, weight = tonumber(weight), lease = lease,
    token = tonumber(token), slot = tonumber(slot) }
end

local function encode(entry)
  if not entry.token then
    return string.format('%s %s %.0f %s', entry.request, entry.session, entry.weight, entry.lease)
  end
  return string.format('%s %s %.0f %s %.0f %.0f', entry.request, entry.session, entry.weight, entry.lease,
    entry.token, entry.slot)
end

-- The end of a lease from now on, as a score: most entries of a batch have the same.
local deadlines = {}
local function deadline(lease, holds)
  local scores = deadlines[lease]
  if not scores then
    local at = now_ms + tonumber(lease)
    scores = { string.format('%.0f', at), string.format('%.0f', -at) }
    deadlines[lease] = scores
  end
  return scores[holds and 1 or 2]
end

-- The entries of these holders, by holder; a holder without one is missing.
local function find(holders)
  local found = {}
  if existed and #holders > 0 then
    for i, value in ipairs(redis.call('HMGET', entries_key, unpack(holders))) do
      if value then found[holders[i]] = parse(holders[i], value) end
    end
  end
  return found
end

-- Marks the keys that the next entry will create.
local function touch_entries()
  if s.held == 0 and s.waiting == 0 then touched[entries_key], touched[leases_key] = true, true end
end

-- Writes entries, and a lease from now for each of `extended`. Entries first: a server out of memory refuses an
-- acquisition there, before anything is written.
local function write(entries, extended)
  local encoded, scores = {}, {}
  for _, entry in ipairs(entries) do
    if not entry.gone then
      encoded[#encoded + 1] = entry.holder
      encoded[#encoded + 1] = encode(entry)
    end
  end
  for _, entry in ipairs(extended) do
    if not entry.gone then
      scores[#scores + 1] = deadline(entry.lease, entry.token)
      scores[#scores + 1] = entry.holder
    end
  end
  if #encoded > 0 then redis.call('HSET', entries_key, unpack(encoded)) end
  if #scores > 0 then redis.call('ZADD', leases_key, unpack(scores)) end
end

-- Forgets entries: units and slots come back, places in line go.
local function forget(entries)
  local holders, waiters = {}, {}
  for _, entry in ipairs(entries) do
    holders[#holders + 1] = entry.holder
    entry.gone = true
    if entry.token then
      s.held = s.held - entry.weight
      given_back[#given_back + 1], sorted = entry.slot, false
    else
      waiters[#waiters + 1] = entry.holder
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

local function reap()
  if not existed then return end
  local holders = redis.call('ZREVRANGEBYSCORE', leases_key, now_ms, -now_ms, 'LIMIT', 0, REAP_MAX)
  reap_cut = #holders == REAP_MAX
  local found, expired = find(holders), {}
  for _, holder in ipairs(holders) do expired[#expired + 1] = found[holder] end
  forget(expired)
end
