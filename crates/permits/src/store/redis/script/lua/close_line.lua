-- close_line: closes the line for a reason and refuses the waiters, the head of the queue first; or opens it.
-- KEYS      as in read.lua
-- ARGV      8 1 to close, 0 to open; 9 reason
-- Returns   nothing of its own
-- Idempotent.
-- Cost      about 6 calls, 5 more if it refuses or grants

allow_at_maxmemory()
if ARGV[8] == '1' then
  s.reason, s.reason_stored = ARGV[9], false
elseif s.reason then
  redis.call('HDEL', state_key, REASON)
  s.reason = nil
end
promote()
