-- reap: removes expired entries, holders first, then waiters. In every command, before it decides.

if s.existed and s.earliest <= now_ms then
  local REAP_MAX = 128
  local holders = redis.call('ZREVRANGEBYSCORE', leases_key, now_ms, -now_ms, 'LIMIT', 0, REAP_MAX)
  find(holders)
  local expired = {}
  for _, holder in ipairs(holders) do
    if known[holder] then
      expired[#expired + 1] = holder
      if not string.find(holder, '\t', 1, true) then s.expired = s.expired + 1 end
    end
  end
  forget(expired)
  s.reap_truncated, s.earliest = #holders == REAP_MAX, next_deadline()
end
-- While recovering, reaped units are not handed on: the store may remember a holder that has released since, and
-- have forgotten the holder that was granted its units.
s.held_at_start = s.held
if s.recovering then write_slots({}) end
