-- adopt: gives a permit to this session, under a new request id, with a new lease. Renewals
-- and releases under the old id have no effect.
-- KEYS      as in read.lua
-- ARGV      8 holder, 9 request, 10 weight or less, 11 lease ms, 12 token, 13 slot, 14 new request, 15 the ms
--           for which it counts
-- Returns   1 if there was exactly this permit, 0 if not
-- Idempotent: a permit that has the new request id already counts as this permit.
-- Cost      about 9 calls, 5 more if it grants

allow_at_maxmemory()
local adopted = 0
find({ ARGV[8] })
if known[ARGV[8]] then
  local token, slot, weight, lease, request, _, label, at_least = parts(ARGV[8], known[ARGV[8]])
  if (request == ARGV[9] or request == ARGV[14]) and weight >= tonumber(ARGV[10]) and lease == tonumber(ARGV[11])
    and token > 0 and token == tonumber(ARGV[12]) and slot == tonumber(ARGV[13]) and at_least == tonumber(ARGV[15]) then
    put(ARGV[8], pack(ARGV[8], weight, lease, ARGV[14], session, label, at_least, 0, token, slot))
    extend(ARGV[8], lease, true)
    write()
    adopted = 1
  end
end
promote()
reply[9] = adopted
