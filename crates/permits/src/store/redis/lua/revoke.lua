-- revoke: takes a holder's permit or place away, tells its session why, and hands on what it frees.
-- KEYS      as in begin.lua
-- ARGV      8 holder, 9 reason
-- Returns   'held' | 'waiting' | 'unknown', which says what it was
-- Idempotent.
-- Cost      about 9 calls, 5 more if it grants

allow_at_maxmemory()
local value, was = find({ ARGV[8] })[ARGV[8]], 'unknown'
if value then
  local token, _, _, _, request, from = struct.unpack(ENTRY, value)
  was = token > 0 and 'held' or 'waiting'
  tell(from, string.format('revoked %s %s\t%s', request, ARGV[8], ARGV[9]))
  forget({ ARGV[8], value })
end
promote()
local reply, somebody_waits = { 0, 0, 0, 0, 0, 0, was }, false
