-- reap: removes expired entries, holders first, then waiters. In every command, before it decides.

if s.existed and s.earliest <= now_ms then
  local holders = redis.call('ZREVRANGEBYSCORE', leases_key, now_ms, -now_ms, 'LIMIT', 0, $REAP_MAX)
  find(holders)
  local expired, strays = {}, {}
  for _, holder in ipairs(holders) do
    if known[holder] then
      expired[#expired + 1] = holder
      if not string.find(holder, '\t', 1, true) then s.expired = s.expired + 1 end
    else
      strays[#strays + 1] = holder
    end
  end
  forget(expired)
  -- Somebody deleted these entries by hand. Without this the reaping would never end.
  if #strays > 0 then redis.call('ZREM', leases_key, unpack(strays)) end
  s.reap_truncated, s.earliest = #holders == $REAP_MAX, next_deadline()
end
-- Reaped units are not handed on during a recovery: the store may remember a holder that has released since,
-- and have forgotten the holder that was granted its units. `write_slots` also forgets the slots that were
-- freed just now.
s.held_at_start = s.held
settle(true)
if s.recovering then write_slots({}) end
