-- pause: stops granting, or resumes it and grants the waiters that fit.
-- KEYS      as in read.lua
-- ARGV      8 request, 9 label of the session, 10 1 to pause, 0 to resume
-- Returns   nothing of its own
-- Idempotent: a request that is remembered has no effect.
-- Cost      about 7 calls, 5 more if it grants

allow_at_maxmemory()
local paused = tonumber(ARGV[10])
if s.paused ~= paused and not recall() then
  s.paused = paused
  remember('pause', paused == 1 and 'pause' or 'resume', '', '', '')
end
promote()
