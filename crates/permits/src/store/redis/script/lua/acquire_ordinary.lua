-- The ordinary course of acquire: no request is known. With waiters only if all units are held, since then
-- none of them can be granted first.

if ordinary and (waiting == 0 or held >= limit) then
  local before, free, queued, taken, several = holders + waiting, slots_made - holders, 0, 0, #ARGV > 11
  local fields, f, leases, l = { STATE, false, false, false }, 2, { false, false }, 0
  local reply, n = { now_us, sequence + 1, -1, limit, limit_version, pinned, 0, 0, false, 0, 0 }, 8
  local ranges, tickets, scored, score, soonest = nil, nil, nil, nil, math.huge

  for i = 10, #ARGV, 2 do
    local holder, entry = ARGV[i], ARGV[i + 1]
    if found[i / 2 - 3] or found[holder] then ordinary = false; break end
    local weight, lease = struct.unpack('<I4I4', entry, 2)
    local tag, a, b, ends = nil, 0, 0, now_ms + lease
    if waiting + queued == 0 and held + weight <= limit then
      if taken < free then
        ranges, taken = ranges or redis.call('ZRANGE', free_key, 0, math.min(free, (#ARGV - 9) / 2) - 1), taken + 1
        b = tonumber(ranges[taken])
        -- A range of several slots, or the key has vanished.
        if not b then ordinary = false; break end
      else
        b, slots_made = slots_made, slots_made + 1
      end
      last_token, held, holders, grants = last_token + 1, held + weight, holders + 1, grants + 1
      if last_token < now_us then last_token = now_us end
      tag, a, entry = 'granted', last_token, struct.pack('<Bc0dI4', string.byte(entry) + 1, string.sub(entry, 2), last_token, b)
    elseif weight > limit then
      tag = 'exceeds_limit'
    elseif string.sub(ARGV[9], i / 2 - 4, i / 2 - 4) == '0' then
      tag = 'no_permits'
    elseif waiting + queued >= tonumber(ARGV[8]) then
      tag = 'queue_full'
    else
      last_ticket, tickets = last_ticket + 1, tickets or {}
      if last_ticket < now_us then last_ticket = now_us end
      tickets[2 * queued + 1], tickets[2 * queued + 2] = last_ticket, holder
      tag, a, queued, ends = 'waiting', waiting + queued, queued + 1, -ends
    end
    if tag == 'granted' or tag == 'waiting' then
      if ends ~= scored then scored, score = ends, string.format('%.0f', ends) end
      if now_ms + lease < soonest then soonest = now_ms + lease end
      leases[l + 1], leases[l + 2], l = score, holder, l + 2
      fields[f + 1], fields[f + 2], f = holder, entry, f + 2
      if several then found[holder] = true end
    else
      refused = refused + 1
    end
    reply[n + 1], reply[n + 2], reply[n + 3], n = tag, a, b, n + 3
  end

  if not ordinary then
  elseif queued > 0 and before > 0 then
    -- Of the leases that were there, the waiter's and the holder's that end first are neighbours.
    local first, last = math.max(waiting - 1, 0), before > waiting and waiting or waiting - 1
    local there = redis.call('ZRANGE', leases_key, first, last, 'WITHSCORES')
    ordinary, earliest = #there == 2 * (last - first + 1), soonest
    for i = 2, #there, 2 do earliest = math.min(earliest, math.abs(there[i])) end
  else
    earliest = before > 0 and math.min(earliest, soonest) or soonest
    ordinary = before == 0 and queued == 0 or redis.call('ZCARD', leases_key) == before
  end
  if ordinary and (waiting == 0 or redis.call('ZCARD', queue_key) == waiting)
    and (free == 0 or ranges or redis.call('EXISTS', free_key) == 1) then
    fields[2] = struct.pack('<Bdddddddddddc0', LAYOUT, sequence + 1, held, holders, waiting + queued, last_token, last_ticket,
      slots_made, earliest, checked, grants, refused, string.sub(packed, REST_AT))
    if queued > 0 then
      reply[3] = math.max(1, turn(earliest, waiting, waiting, holders) - now_ms)
      redis.call('ZADD', queue_key, unpack(tickets))
      if waiting == 0 and pinned == 0 then redis.call('PEXPIREAT', queue_key, expires) end
    end
    if l > 0 then redis.call('ZADD', leases_key, unpack(leases, 1, l)) end
    redis.call('HSET', state_key, unpack(fields, 1, f))
    if l > 0 and before == 0 and pinned == 0 then redis.call('PEXPIREAT', leases_key, expires) end
    if taken > 0 then redis.call('ZREM', free_key, unpack(ranges, 1, taken)) end
    return reply
  end
end
