-- revoke: takes a holder's permit or place away, tells its session why, and hands on what it frees.
-- KEYS      as in begin.lua
-- ARGV      8 request, 9 holder, 10 reason
-- Returns   'held' | 'waiting' | 'unknown', which says what it was
-- Idempotent: a request that is remembered gets its earlier answer.
-- Cost      about 10 calls, 5 more if it grants

allow_at_maxmemory()
local was = recall(ARGV[8])
local value = not was and find({ ARGV[9] })[ARGV[9]]
if value then
  local token, _, _, _, request, from = struct.unpack(ENTRY, value)
  was = token > 0 and 'held' or 'waiting'
  tell(from, string.format('revoked %s %s\t%s', request, ARGV[9], ARGV[10]))
  forget({ ARGV[9], value })
  remember(ARGV[8], was, '-')
end
promote()
local reply, somebody_waits = { 0, 0, 0, 0, 0, 0, 0, 0, was or 'unknown' }, false
