-- revoke: takes a holder's permit or place away, tells its session why, and hands on what it frees.
-- KEYS      as in begin.lua
-- ARGV      8 holder, 9 reason
-- Returns   'held' | 'waiting' | 'unknown', which says what it was
-- Idempotent.
-- Cost      about 9 calls, 5 more if it grants

allow_at_maxmemory()
local entry = find({ ARGV[8] })[ARGV[8]]
if entry then
  tell(entry, string.format('revoked %s %s\t%s', entry.request, entry.holder, ARGV[9]))
  forget({ entry })
end
promote()
return finish({ not entry and 'unknown' or entry.token and 'held' or 'waiting' })
