-- adopt: gives a permit to this session, under a new request id, with a new lease. Who had it before renews and
-- releases in vain.
-- KEYS      as in begin.lua
-- ARGV      8 holder, 9 request, 10 weight, 11 lease ms, 12 token, 13 slot, 14 new request
-- Returns   1 if there was just such a permit, 0 if not
-- Idempotent: asked again, the permit has the new request id already.
-- Cost      about 9 calls, 5 more if it grants

allow_at_maxmemory()
local entry = find({ ARGV[8] })[ARGV[8]]
local adopted = entry and (entry.request == ARGV[9] or entry.request == ARGV[14])
  and entry.weight == tonumber(ARGV[10]) and entry.lease == ARGV[11]
  and entry.token == tonumber(ARGV[12]) and entry.slot == tonumber(ARGV[13])
if adopted then
  entry.request, entry.session = ARGV[14], session
  write({ entry }, { entry })
end
promote()
return finish({ adopted and 1 or 0 })
