-- set_alert: sets the thresholds beyond which the semaphore needs a look, or removes them. No script decides
-- anything by them.
-- KEYS      as in read.lua
-- ARGV      8 request; 9 label of the session; 10 the longest wait in ms; 11 the most waiters; 0 for none
-- Returns   nothing of its own
-- Idempotent: a request that is remembered has no effect.
-- Cost      about 7 calls, 5 more if it grants

allow_at_maxmemory()
local wait, waiting = tonumber(ARGV[10]), tonumber(ARGV[11])
if (s.alert_wait ~= wait or s.alert_waiting ~= waiting) and not recall() then
  s.alert_wait, s.alert_waiting = wait, waiting
  remember('alert', 'set', ARGV[10], ARGV[11], '')
end
promote()
