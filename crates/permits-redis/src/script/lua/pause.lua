-- pause: stops granting, for some time or without an end, or resumes it and grants the waiters that fit.
-- KEYS      as in read.lua
-- ARGV      8 request; 9 label of the session; 10 the ms until the pause ends, 'forever', or 0 to resume; 11
--           reason
-- Returns   nothing of its own
-- Idempotent: a request that is remembered has no effect. Of two pauses the one that ends later counts.
-- Cost      about 7 calls, 5 more if it grants

allow_at_maxmemory()
local for_ms, reason = ARGV[10], ARGV[11]
local until_ms = for_ms == '0' and 0 or for_ms == 'forever' and $PAUSED or now_ms + tonumber(for_ms)
local has_effect = until_ms > s.paused or until_ms == s.paused and reason ~= pause_reason()
if until_ms == 0 then has_effect = s.paused > 0 end
if has_effect and not recall() then
  s.paused = until_ms
  -- A pause keeps the state from expiring. One that ends early no longer does, for the rest of its time.
  s.expires, s.prolonged = math.min(s.expires, now_ms + 4 * s.lease_max), true
  if until_ms > 0 and until_ms < $PAUSED then
    s.expires, s.new_turn = math.max(s.expires, until_ms), true
  end
  remember('pause', until_ms > 0 and 'pause' or 'resume', until_ms > 0 and string.format('%.0f', until_ms) or '', '', until_ms > 0 and reason or '')
end
promote()
