-- inspect: lists holders by the end of their lease, and waiters in order.
-- KEYS      as in begin.lua
-- ARGV      8 the most holders and the most waiters to list; more than INSPECT_MAX are not
-- Returns   held, waiting, paused, recovering ms, how many holders follow; 5 a holder: holder, weight, token,
--           slot, lease remaining ms; 2 a waiter: holder, weight
-- Idempotent.
-- Cost      about 8 calls; O(listed)

local INSPECT_MAX = 1000
local max = math.min(tonumber(ARGV[8]), INSPECT_MAX)

allow_at_maxmemory()
promote()
local leases = redis.call('ZRANGEBYSCORE', leases_key, 0, '+inf', 'WITHSCORES', 'LIMIT', 0, max)
local holders, deadlines = {}, {}
for i = 1, #leases, 2 do
  holders[#holders + 1] = leases[i]
  deadlines[leases[i]] = leases[i + 1]
end
local waiters = max > 0 and redis.call('ZRANGE', queue_key, 0, max - 1) or {}
local holding, waiting = find(holders), find(waiters)
local somebody_waits = false
local reply = { 0, 0, 0, 0, 0, 0, s.held, s.waiting, s.paused, math.max(0, s.recovering_until - now_ms),
  #holders }
local function list(...)
  for _, value in ipairs({ ... }) do reply[#reply + 1] = value end
end
for _, holder in ipairs(holders) do
  local token, slot, weight = struct.unpack(ENTRY, holding[holder])
  list(holder, weight, token, slot, math.max(0, deadlines[holder] - now_ms))
end
for _, holder in ipairs(waiters) do
  local _, _, weight = struct.unpack(ENTRY, waiting[holder])
  list(holder, weight)
end
