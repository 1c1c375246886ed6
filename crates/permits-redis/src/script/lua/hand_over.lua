-- The ordinary course of a release with waiters: the freed slots pass to the head of the queue while it fits.
-- It runs only if no slot was free, or if the bounds of lanes have decided who gets the units. The reads for
-- lanes grow with the square of the room.

local room = ordinary and not decided and (lanes > 0 or bounded_lanes > 0) == knows_lanes and waiting > 0 and (free == 0 or in_bounds) and limit - held or 0
if room > 0 and (in_bounds or room <= (lanes == 0 and $PROMOTE_MAX or 8)) then
  local heads, entries, names, progress = nil, {}, nil, nil
  if in_bounds then
    heads, entries, names = in_bounds.heads or {}, in_bounds.entries, in_bounds.names
  elseif lanes > 0 then
    heads, entries, names, progress = next_of_lanes(room)
  else
    heads = redis.call('ZRANGE', queue_key, 0, room - 1)
    if #heads > 0 then entries = redis.call('HMGET', state_key, unpack(heads)) end
  end
  local leases, granted, begun = { nil, nil }, 0, math.huge
  local score_of, score = nil, nil   -- a deadline as a text: most of the heads share one
  events, recipients = {}, {}
  table.sort(freed)

  for k, holder in ipairs(heads) do
    local entry = entries[k]
    local flags, weight, lease, request_bytes, session_bytes, at = struct.unpack('$ENTRY', entry)
    if weight > limit or flags % 4 > 0 or lanes == 0 and flags % 16 >= $LANED then ordinary = false; break end
    if weight > room then break end
    local request, to = nil, nil
    if flags % 16 >= $LANED then at = at + $LANED_BYTES end
    if request_bytes > 0 then
      request = string.sub(holder, -request_bytes)
    else
      request, at = struct.unpack('s', entry, at)
    end
    if session_bytes > 0 then to = string.sub(request, 1, session_bytes) else to = struct.unpack('s', entry, at) end
    local slot = freed[k]
    if not slot then slot, slots_made = slots_made, slots_made + 1 end
    granted, room, held, last_token = k, room - weight, held + weight, math.max(now_us, last_token + 1)
    local ends = now_ms + lease
    begun = math.min(begun, lease)
    if ends ~= score_of then
      score_of, score = ends, string.format('%.0f', ends)
      earliest = math.min(earliest, ends)
    end
    leases[#leases + 1], leases[#leases + 2] = score, holder
    if lanes > 0 then entry = set_queued(entry, 0) end
    entry = struct.pack('<Bc0dI4', flags + 1, string.sub(entry, 2), last_token, slot)
    fields[#fields + 1], fields[#fields + 2] = holder, entry
    if not events[to] then events[to], recipients[#recipients + 1] = {}, to end
    table.insert(events[to], string.format('granted %s %.0f %.0f %s', request, last_token, slot, holder))
  end

  -- A lease may end before the next head is renewed: the general course has that head ask.
  if ordinary and waiting > granted and begun < lease_max then
    local head = lanes == 0 and redis.call('ZRANGE', queue_key, granted, granted)[1]
    local entry = head and redis.call('HGET', state_key, head)
    ordinary = entry and begun >= struct.unpack('<I4', entry, $LEASE_AT)
  end
  -- Each freed slot is handed over. The first write shows that the leases are there.
  if ordinary and granted >= count and redis.call('ZREM', leases_key, unpack(named)) == count then
    waited = string.sub(packed, -$WAITS_BYTES)
    if lanes == 0 then
      local left = redis.call('ZPOPMIN', queue_key, granted)
      for i = 2, #left, 2 do waited = add_wait(waited, left[i]) end
    else
      for k = 1, granted do waited = add_wait(waited, queued_at(heads[k], entries[k])) end
      redis.call('ZREM', queue_key, unpack(heads, 1, granted))
    end
    redis.call('ZADD', leases_key, unpack(leases))
    if in_bounds then
      grant_in_bounds(names[1], entries[1])
    else
      for k = 1, names and granted or 0 do leave(names[k], 1, progress[k]) end
    end
    if names then write_lanes(fields, named) end
    redis.call('HDEL', state_key, unpack(named))
    holders, waiting, grants, decided = holders - count + granted, waiting - granted, grants + granted, true
  end
end
