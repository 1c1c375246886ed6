-- revoke: removes a holder or waiter, publishes the reason to its session, and hands on the freed units; or
-- frees a grant that cools.
-- KEYS      as in read.lua
-- ARGV      8 request, 9 label of the session, 10 holder, 11 the token of a grant of it that cools or 0, 12
--           reason
-- Returns   its earlier state: 'held' | 'waiting' | 'unknown'
-- Idempotent: a request that is remembered gets its earlier answer.
-- Cost      about 10 calls, 5 more if it grants

allow_at_maxmemory()
local was = recall()
local name, cooling, reason = ARGV[10], ARGV[11], ARGV[12]
local cools = cooling ~= '0'
local holder = cools and string.format('%s\t%s', name, cooling) or name
find({ holder })
if not was and known[holder] then
  local token, _, _, _, request, from = parts(holder, known[holder])
  was = token > 0 and 'held' or 'waiting'
  if not cools then emit(from, string.format('revoked %s %s\t%s', request, holder, reason)) end
  s.revoked = s.revoked + 1
  forget({ holder })
  remember('revoke', 'revoke', was, name, reason)
end
promote()
reply[9] = was or 'unknown'
