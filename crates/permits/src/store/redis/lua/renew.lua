-- renew: a new lease for each entry, and how it stands. Puts back a holder that the store forgot. An empty
-- batch only lets time take effect.
-- KEYS      as in begin.lua
-- ARGV      8… 6 a request: holder, request, weight, lease ms, token and slot (0 and 0 for who does not hold)
-- Returns   3 a request: 'held' 0 0 | 'granted' token slot | 'waiting' position 0 | 'lost' 0 0 |
--           'again' 0 0 (forgotten, does not fit yet) | 'exceeds_limit' 0 0
-- Idempotent. Never puts back what was reaped: see reclaim.
-- Cost      about 6 calls a batch, and 1 a waiter for its position

local holders = {}
for i = 8, #ARGV, 6 do holders[#holders + 1] = ARGV[i] end

allow_at_maxmemory()
declare()
local found, extended, moved, answers, waits = find(holders), {}, {}, {}, false

-- A holder that is not in the entries was reaped, and lost it for good, or forgotten: its token tells which.
local function reclaim(entry)
  local forgotten = s.era_known < entry.token and entry.token < s.era_began
  if not forgotten or now_ms >= math.floor(s.era_began / 1000) + tonumber(entry.lease) then return 'lost' end
  if s.held + entry.weight > s.limit or not take_slot(entry.slot) then return 'again' end
  -- Always: a later request of the batch may remove the last entry before this one is written.
  touched[entries_key], touched[leases_key] = true, true
  s.last_token = math.max(s.last_token, entry.token)
  s.held = s.held + entry.weight
  found[entry.holder], moved[#moved + 1], extended[#extended + 1] = entry, entry, entry
  return 'held'
end

-- A batch may name a holder twice, by an old request and a new one: `found` stays what would be read again.
local function renew(entry, claimed)
  if not entry then return claimed.token > 0 and reclaim(claimed) or 'lost' end
  if entry.request ~= claimed.request then return 'lost' end
  local waits_too_heavy = not entry.token and claimed.token == 0 and entry.weight > s.limit
  local other_grant = entry.token and claimed.token > 0
    and (entry.token ~= claimed.token or entry.slot ~= claimed.slot)
  local forgot_grant = not entry.token and claimed.token > 0
  if waits_too_heavy or other_grant or forgot_grant then
    forget({ entry })
    found[entry.holder] = nil
    return forgot_grant and reclaim(claimed) or waits_too_heavy and 'exceeds_limit' or 'lost'
  end
  extended[#extended + 1] = entry
  if not entry.token then return 'waiting' end
  return claimed.token > 0 and 'held' or 'granted', entry.token, entry.slot
end

for i = 8, #ARGV, 6 do
  local claimed = { holder = ARGV[i], request = ARGV[i + 1], session = session, weight = tonumber(ARGV[i + 2]),
    lease = ARGV[i + 3], token = tonumber(ARGV[i + 4]), slot = tonumber(ARGV[i + 5]) }
  local tag, token, slot = renew(found[claimed.holder], claimed)
  local granted = tag == 'granted'
  local n = #answers
  answers[n + 1], answers[n + 2], answers[n + 3] = tag, granted and token or 0, granted and slot or 0
end
write(moved, extended)
local promoted, refused = promote()

-- Waiters are answered as they stand after the promotion.
for i, holder in ipairs(holders) do
  local n = 3 * i - 2
  if answers[n] == 'waiting' then
    local entry = promoted[holder] or found[holder]
    if refused[holder] or not entry then
      answers[n] = 'exceeds_limit'
    elseif entry.token then
      answers[n], answers[n + 1], answers[n + 2] = 'granted', entry.token, entry.slot
    else
      answers[n + 1], waits = redis.call('ZRANK', queue_key, holder), true
    end
  end
end
return finish(answers, waits)
