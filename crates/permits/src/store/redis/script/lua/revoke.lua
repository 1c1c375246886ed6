-- revoke: removes a holder or waiter, publishes the reason to its session, and hands on the freed units.
-- KEYS      as in read.lua
-- ARGV      8 request, 9 holder, 10 reason
-- Returns   its earlier state: 'held' | 'waiting' | 'unknown'
-- Idempotent: a request that is remembered gets its earlier answer.
-- Cost      about 10 calls, 5 more if it grants

allow_at_maxmemory()
local was = recall(ARGV[8])
find({ ARGV[9] })
if not was and known[ARGV[9]] then
  local token, _, _, _, request, from = parts(ARGV[9], known[ARGV[9]])
  was = token > 0 and 'held' or 'waiting'
  emit(from, string.format('revoked %s %s\t%s', request, ARGV[9], ARGV[10]))
  forget({ ARGV[9] })
  remember(ARGV[8], was, '-')
end
promote()
reply[9] = was or 'unknown'
