-- The ordinary course of renew: each entry is as the session knows it. It runs with waiters only if none of
-- them can be granted: all units are held, or the lanes of all waiters are full.

if ordinary and (lanes > 0) == knows_lanes
  and (waiting == 0 or held >= limit or lanes > 0 and redis.call('ZCOUNT', lanes_key, '$FULL', '+inf') == lanes) and redis.call('ZCARD', leases_key) == holders + waiting
  and (waiting == 0 or redis.call('ZCARD', queue_key) == waiting)
  and (lanes == 0 or redis.call('EXISTS', lanes_key) == 1)
  and (slots_made == holders or redis.call('EXISTS', free_key) == 1) then
  local leases, foremost = { nil, nil }, nil
  local score_of, score = nil, nil   -- a deadline as a text: most of a batch share one
  for k = 1, count do
    local holder, entry = named[k], given[k]
    local flags, weight, lease = struct.unpack('<BI4I4', entry)
    local holds, known = flags % 2 == 1, found[k + 1]
    if lanes > 0 and known and not holds then known = set_queued(known, 0) end
    if entry ~= known or not holds and weight > limit then ordinary = false; break end
    local tag, position, ends = 'held', 0, now_ms + lease
    if not holds then
      tag, position, ends = 'waiting', lanes > 0 and place_of(holder, entry, waiting - 1) or redis.call('ZRANK', queue_key, holder), -ends
      foremost = math.min(foremost or position, position)
    end
    if ends ~= score_of then
      score_of, score, earliest = ends, string.format('%.0f', ends), math.min(earliest, now_ms + lease)
    end
    leases[#leases + 1], leases[#leases + 2] = score, holder
    local n = #reply
    reply[n + 1], reply[n + 2], reply[n + 3] = tag, position, 0
  end

  if ordinary then
    -- Allows the writes that follow when the server is out of memory: see allow_at_maxmemory.
    redis.call('HDEL', state_key, '')
    if #leases > 0 then redis.call('ZADD', leases_key, unpack(leases)) end
    if foremost then
      local last = holders > 0 and waiting or waiting - 1
      local soonest = redis.call('ZRANGE', leases_key, waiting - 1, last, 'WITHSCORES')
      earliest = math.min(math.abs(soonest[2]), math.abs(soonest[4] or soonest[2]))
      reply[$RECHECK_AT] = math.max(1, turn(earliest, foremost, waiting, holders) - now_ms)
    end
    decided = true
  end
end
