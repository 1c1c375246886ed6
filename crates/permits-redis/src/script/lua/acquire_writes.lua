-- The ordinary course of acquire: its checks and writes, if it has decided. Behind acquire_ordinary.

if ordinary and leases_before then
  -- The general course sends recalls, and computes how long units cool. The reads below find the end of the
  -- next lease, and check that no key has vanished.
  if now_ms < kept_until and (refused > refused_before or waiting == 0 and queued > 0) then ordinary = false end
  if now_ms < cools_until and refused > refused_before then ordinary = false end
  if ordinary and queued > 0 and leases_before > 0 then
    -- The waiter and the holder whose leases end first are neighbours among the leases.
    local from, to = math.max(waiting - 1, 0), leases_before > waiting and waiting or waiting - 1
    local there = redis.call('ZRANGE', leases_key, from, to, 'WITHSCORES')
    ordinary, earliest = #there == 2 * (to - from + 1), soonest
    for i = 2, #there, 2 do earliest = math.min(earliest, math.abs(there[i])) end
  elseif ordinary then
    earliest = leases_before > 0 and math.min(earliest, soonest) or soonest
    ordinary = leases_before == 0 and queued == 0 or redis.call('ZCARD', leases_key) == leases_before
  end
  ordinary = ordinary and (waiting == 0 or redis.call('ZCARD', queue_key) == waiting)
    and (free == 0 or wanted > 0 or redis.call('EXISTS', free_key) == 1)

  -- The first write may need memory: a server that is out of memory refuses the batch there.
  if ordinary then
    if queued > 0 then
      local foremost = waiting
      if new then foremost = join_all(new, tickets) end
      reply[$RECHECK_AT] = math.max(1, turn(earliest, foremost, waiting, holders) - now_ms)
      redis.call('ZADD', queue_key, unpack(tickets))
      if waiting == 0 and pin == 0 then redis.call('PEXPIREAT', queue_key, expires) end
    end
    if #leases > 0 then redis.call('ZADD', leases_key, unpack(leases)) end
    if #leases > 0 and leases_before == 0 and pin == 0 then redis.call('PEXPIREAT', leases_key, expires) end
    if granted_free > 0 then redis.call('ZREM', free_key, unpack(free_slots, 1, granted_free)) end
    if in_bounds then write_bounds(fields, {}) end
    waiting, decided = waiting + queued, true
  end
end
