-- The ordinary course of release if nobody gets the units: no request waits, or the lanes of all waiters are
-- full.

-- The first write, ZREM, also checks that the leases are there.
if ordinary and (lanes > 0 or bounded_lanes > 0) == knows_lanes and (waiting == 0 or in_bounds and not in_bounds.heads) and (free == 0 or redis.call('EXISTS', free_key) == 1)
  and redis.call('ZREM', leases_key, unpack(named)) == count then
  if in_bounds then
    settle(true)
    write_lanes(fields, named)
    write_bounds(fields, named)
  end
  redis.call('HDEL', state_key, unpack(named))
  holders, decided = holders - count, true
  if held == 0 then
    if free > 0 then redis.call('DEL', free_key) end
    slots_made = 0
  else
    local members = { nil, nil }
    for _, slot in ipairs(freed) do members[#members + 1], members[#members + 2] = slot, slot end
    redis.call('ZADD', free_key, unpack(members))
    if free == 0 and pin == 0 then redis.call('PEXPIREAT', free_key, expires) end
  end
end
