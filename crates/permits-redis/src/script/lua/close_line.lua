-- close_line: closes the line for a reason and refuses the waiters, the head of the queue first; or opens it.
-- KEYS      as in read.lua
-- ARGV      8 request; 9 label of the session; 10 1 to close, 0 to open; 11 reason
-- Returns   nothing of its own
-- Idempotent: a request that is remembered has no effect.
-- Cost      about 8 calls, 5 more if it refuses or grants

allow_at_maxmemory()
local reason = nil
if ARGV[10] == '1' then reason = ARGV[11] end
if s.reason ~= reason and not recall() then
  if not reason then redis.call('HDEL', state_key, '$REASON') end
  s.reason, s.reason_stored = reason, false
  remember('line', reason and 'close' or 'open', '', '', reason or '')
end
promote()
