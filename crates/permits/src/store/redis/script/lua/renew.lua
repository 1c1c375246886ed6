-- renew: extends the lease of each entry and returns its state. Puts back a holder that the store forgot. An empty
-- batch only lets time take effect.
-- KEYS      as in begin.lua
-- ARGV      8… 7 a request: holder, request, weight, lease ms, token and slot (0 and 0 of a waiter), label
-- Returns   3 a request: 'held' 0 0 | 'granted' token slot | 'waiting' position 0 | 'lost' 0 0 |
--           'again' 0 0 (forgotten, does not fit yet) | 'exceeds_limit' 0 0
-- Idempotent. Never puts back a reaped holder: see reclaim.
-- Cost      about 6 calls a batch, and 1 a waiter for its position

local holders = {}
for i = 8, #ARGV, 7 do holders[#holders + 1] = ARGV[i] end

allow_at_maxmemory()
local limit = declared()
if limit then replace_limit(limit) end
local found, n = find(holders), #reply

-- A batch may name a holder twice, by an old request and a new one: `found` is kept up to date with each change.
local function renew(holder, request, weight, lease, claimed_token, claimed_slot, label)
  local claims, value = claimed_token > 0, found[holder]
  if not value then
    return claims and reclaim(found, holder, request, weight, lease, claimed_token, claimed_slot, label) or 'lost'
  end
  local token, slot, stored_weight, stored_lease, stored_request = struct.unpack(ENTRY, value)
  if stored_request ~= request then return 'lost' end
  local waits_too_heavy = token == 0 and not claims and stored_weight > s.limit
  local other_grant = token > 0 and claims and (token ~= claimed_token or slot ~= claimed_slot)
  local forgot_grant = token == 0 and claims
  if waits_too_heavy or other_grant or forgot_grant then
    forget({ holder, value })
    found[holder] = nil
    return forgot_grant and reclaim(found, holder, request, weight, lease, claimed_token, claimed_slot, label)
      or waits_too_heavy and 'exceeds_limit' or 'lost'
  end
  extend(holder, stored_lease, token > 0)
  if token == 0 then return 'waiting' end
  return claims and 'held' or 'granted', token, slot
end

for i = 8, #ARGV, 7 do
  local tag, token, slot = renew(ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3]),
    tonumber(ARGV[i + 4]), tonumber(ARGV[i + 5]), ARGV[i + 6])
  local granted = tag == 'granted'
  reply[n + 1], reply[n + 2], reply[n + 3] = tag, granted and token or 0, granted and slot or 0
  n = n + 3
end
write()
local promoted, refused = promote()

-- Waiters are answered with their state after the promotion.
for i, holder in ipairs(holders) do
  n = 6 + 3 * i
  if reply[n] == 'waiting' then
    local value = not refused[holder] and (promoted[holder] or found[holder])
    local token, slot = 0, 0
    if value then token, slot = struct.unpack(ENTRY, value) end
    if token > 0 then
      reply[n], reply[n + 1], reply[n + 2] = 'granted', token, slot
    elseif value then
      reply[n + 1], s.recheck = redis.call('ZRANK', queue_key, holder), true
    else
      reply[n] = 'exceeds_limit'
    end
  end
end
