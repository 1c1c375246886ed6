-- pause: stops granting, or resumes it and grants the waiters that fit.
-- KEYS      as in read.lua
-- ARGV      8 1 to pause, 0 to resume
-- Returns   nothing of its own
-- Idempotent.
-- Cost      about 5 calls, 5 more if it grants

allow_at_maxmemory()
s.paused = tonumber(ARGV[8])
promote()
