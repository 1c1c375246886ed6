-- revoke: removes a holder or waiter, publishes the reason to its session, and hands on the freed units; or frees a grant
-- that cools.
-- KEYS      as in read.lua
-- ARGV      8 request, 9 holder, 10 the token of a grant of it that cools or 0, 11 reason
-- Returns   its earlier state: 'held' | 'waiting' | 'unknown'
-- Idempotent: a request that is remembered gets its earlier answer.
-- Cost      about 10 calls, 5 more if it grants

allow_at_maxmemory()
local was = recall(ARGV[8])
local cools = ARGV[10] ~= '0'
local holder = cools and string.format('%s\t%s', ARGV[9], ARGV[10]) or ARGV[9]
find({ holder })
if not was and known[holder] then
  local token, _, _, _, request, from = parts(holder, known[holder])
  was = token > 0 and 'held' or 'waiting'
  if not cools then emit(from, string.format('revoked %s %s\t%s', request, holder, ARGV[11])) end
  s.revoked = s.revoked + 1
  forget({ holder })
  remember(ARGV[8], was, '-')
end
promote()
reply[9] = was or 'unknown'
