-- adopt: gives a permit to this session, under a new request id, with a new lease. Renewals and releases
-- under the old id have no effect. A permit that the store forgot is put back first.
-- KEYS      as in read.lua
-- ARGV      8 holder, 9 request, 10 weight or less, 11 lease ms, 12 token, 13 slot, 14 new request, 15 the ms
--           for which it counts, 16 the last token that was used of its grant, or 0
-- Returns   1 if there was exactly this permit, 0 if not
-- Idempotent: a permit that has the new request id already counts as this permit.
-- Cost      about 9 calls, 5 more if it grants

local holder, old_request, new_request = ARGV[8], ARGV[9], ARGV[14]
local claimed_weight, claimed_lease, claimed_token = tonumber(ARGV[10]), tonumber(ARGV[11]), tonumber(ARGV[12])
local claimed_slot, claimed_at_least = tonumber(ARGV[13]), tonumber(ARGV[15])

allow_at_maxmemory()
local adopted = 0
find({ holder })
if not known[holder] then
  reclaim(holder, pack(holder, claimed_weight, claimed_lease, old_request, session, '', claimed_at_least, 0, claimed_token, claimed_slot, false, '', 1))
end
if known[holder] then
  local token, slot, weight, lease, request, _, label, at_least, _, _, lane, share, key, _, of_lane = parts(holder, known[holder])
  if (request == old_request or request == new_request) and weight >= claimed_weight and lease == claimed_lease
    and token > 0 and token == claimed_token and slot == claimed_slot and at_least == claimed_at_least then
    s.last_token = math.max(s.last_token, tonumber(ARGV[16]))
    -- The session that adopts it does not keep it.
    put(holder, pack(holder, weight, lease, new_request, session, label, at_least, 0, token, slot, false, lane, share, key, of_lane))
    extend(holder, lease, true)
    write()
    adopted = 1
  end
end
promote()
reply[9] = adopted
