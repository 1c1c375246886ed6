-- renew: extends the lease of each entry and returns its state. Takes back units of a holder whose weight has
-- become lower, changes its lease, and lets its grant count for longer. Puts back a holder that the store
-- forgot. An empty batch only lets time take effect.
-- KEYS      as in read.lua
-- ARGV      8… 2 a request: holder, entry as in entries.lua: of a holder with its grant, of a waiter without
-- Returns   3 a request: 'held' 0 0 | 'granted' token slot | 'waiting' position 0 | 'lost' 0 0 |
--           'again' 0 0 (forgotten: a waiter, or a holder that does not fit yet) | 'exceeds_limit' 0 0 |
--           'line_closed' reason 0
-- Idempotent. Never puts back a reaped holder: see reclaim.
-- Cost      6 to 9 calls a batch in the ordinary course, about 7 in the general; and 1 a waiter for its
--           position

allow_at_maxmemory()
local limit = declared()
if limit then replace_limit(limit) end

-- Units that count for some time stay until then: a later renewal gives them back. The later of two leases
-- stays, and the longer of two times for which a grant counts.
local function change_terms(holder, entry)
  local token, slot, weight, lease, request, from, label, at_least, version, keeps, lane, share, key, _, of_lane = parts(holder, known[holder])
  local _, _, new_weight, new_lease, _, _, _, new_at_least, new_version = parts(holder, entry)
  local counts_longer = at_least > 0 and new_at_least > at_least
  if counts_longer then at_least = new_at_least end
  local is_lighter = new_weight < weight and counts_until(token, at_least) <= now_ms
  local is_later = new_version > version
  if not is_lighter and not is_later and not counts_longer then return lease end
  if is_lighter then count_in_lane(lane, of_lane, new_weight - weight) end
  if is_lighter then s.held, weight = s.held - (weight - new_weight), new_weight end
  if is_later then lease, version, s.new_turn = new_lease, new_version, true end
  put(holder, pack(holder, weight, lease, request, from, label, at_least, version, token, slot, keeps, lane, share, key, of_lane))
  return lease
end

local function renew(holder, entry)
  if not known[holder] then return reclaim(holder, entry) end
  local token, slot, weight, lease, since = parts(holder, known[holder])
  local claimed_token, claimed_slot, _, _, request = parts(holder, entry)
  if since ~= request then return 'lost' end
  local claims = claimed_token > 0
  local waits_too_heavy = token == 0 and not claims and weight > s.limit
  local other_grant = token > 0 and claims and (token ~= claimed_token or slot ~= claimed_slot)
  local forgot_grant = token == 0 and claims
  if waits_too_heavy or other_grant or forgot_grant then
    if waits_too_heavy then s.refused = s.refused + 1 end
    forget({ holder })
    return forgot_grant and reclaim(holder, entry) or waits_too_heavy and 'exceeds_limit' or 'lost'
  end
  if claims then lease = change_terms(holder, entry) end
  extend(holder, lease, token > 0)
  if token == 0 then return 'waiting' end
  return claims and 'held' or 'granted', token, slot
end

local ANSWERS = #reply
for k = 1, count do
  local tag, token, slot = renew(named[k], given[k])
  local granted = tag == 'granted'
  reply[#reply + 1], reply[#reply + 2], reply[#reply + 3] = tag, granted and token or 0, granted and slot or 0
end
write()
promote()

-- Waiters are answered with their state after the promotion.
for k = 1, count do
  local n = ANSWERS + 3 * k - 2
  if reply[n] == 'waiting' then
    local holder, token, slot = named[k], 0, 0
    if known[holder] then token, slot = parts(holder, known[holder]) end
    if token > 0 then
      reply[n], reply[n + 1], reply[n + 2] = 'granted', token, slot
    elseif known[holder] then
      local position = place_of(holder, known[holder], s.waiting - 1)
      reply[n + 1], s.foremost = position, math.min(s.foremost or position, position)
    else
      -- If it is heavier than the limit of its lane, its next acquire tells it.
      reply[n], reply[n + 1] = s.reason and 'line_closed' or struct.unpack('<I4', given[k], 2) > s.limit and 'exceeds_limit' or 'again', s.reason or 0
    end
  end
end
