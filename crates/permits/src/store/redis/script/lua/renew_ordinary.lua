-- The ordinary course of renew: each entry is as the session knows it. With waiters only if all units are
-- held, since then none of them can be granted.

if ordinary and (waiting == 0 or held >= limit) and redis.call('ZCARD', leases_key) == holders + waiting
  and (waiting == 0 or redis.call('ZCARD', queue_key) == waiting)
  and (slots_made == holders or redis.call('EXISTS', free_key) == 1) then
  local reply, n, leases, l = { now_us, sequence + 1, -1, limit, limit_version, pinned, 0, 0 }, 8, {}, 0
  local scored, score, foremost = nil, nil, nil
  for i = 8, #ARGV, 2 do
    local holder, entry = ARGV[i], ARGV[i + 1]
    if found[i / 2 - 2] ~= entry then ordinary = false; break end
    local holds, weight, lease = struct.unpack('<BI4I4', entry)
    local ends = now_ms + lease
    earliest = math.min(earliest, ends)
    if holds % 2 == 1 then
      reply[n + 1], reply[n + 2], reply[n + 3] = 'held', 0, 0
    elseif weight > limit then
      ordinary = false
      break
    else
      local position = redis.call('ZRANK', queue_key, holder)
      reply[n + 1], reply[n + 2], reply[n + 3] = 'waiting', position, 0
      foremost, ends = math.min(foremost or position, position), -ends
    end
    if ends ~= scored then scored, score = ends, string.format('%.0f', ends) end
    leases[l + 1], leases[l + 2], l, n = score, holder, l + 2, n + 3
  end
  if ordinary then
    -- Allows the writes that follow when the server is out of memory: see allow_at_maxmemory.
    redis.call('HDEL', state_key, '')
    if l > 0 then redis.call('ZADD', leases_key, unpack(leases)) end
    if foremost then
      local soonest = redis.call('ZRANGE', leases_key, waiting - 1, holders > 0 and waiting or waiting - 1, 'WITHSCORES')
      earliest = math.min(math.abs(soonest[2]), math.abs(soonest[4] or soonest[2]))
      reply[3] = math.max(1, turn(earliest, foremost, waiting, holders) - now_ms)
    end
    redis.call('HSET', state_key, STATE, struct.pack('<Bdddddddddddc0', LAYOUT, sequence + 1, held, holders, waiting, last_token,
      last_ticket, slots_made, earliest, checked, grants, refused, string.sub(packed, REST_AT)))
    return reply
  end
end
