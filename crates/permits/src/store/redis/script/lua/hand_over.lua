-- The ordinary course of a release with waiters: the freed slots pass to the head of the queue while it fits.
-- Only if no slot was free.

local room = ordinary and waiting > 0 and free == 0 and limit - held_after or 0
if room > 0 and room <= 500 then
  local heads = redis.call('ZRANGE', queue_key, 0, room - 1)
  local entries = #heads > 0 and redis.call('HMGET', state_key, unpack(heads)) or {}
  local fields, leases, events, recipients, granted = { STATE, false, false, false }, { false, false }, {}, {}, 0
  local scored, score
  if several then table.sort(freed) end
  for i, holder in ipairs(heads) do
    local value = entries[i]
    local flags, weight, lease, request_bytes, session_bytes, at = struct.unpack('<BI4I4BB', value)
    if weight > limit or flags ~= WAITS then granted = 0; break end
    if weight > room then break end
    local request, to = nil, nil
    if request_bytes > 0 then request = string.sub(holder, -request_bytes) else request, at = struct.unpack('s', value, at) end
    if session_bytes > 0 then to = string.sub(request, 1, session_bytes) else to = struct.unpack('s', value, at) end
    local slot = freed[i]
    if not slot then slot, slots_made = slots_made, slots_made + 1 end
    granted, room, held_after, last_token = i, room - weight, held_after + weight, last_token + 1
    if last_token < now_us then last_token = now_us end
    if now_ms + lease ~= scored then
      scored, score = now_ms + lease, string.format('%.0f', now_ms + lease)
      earliest = math.min(earliest, scored)
    end
    leases[2 * i - 1], leases[2 * i] = score, holder
    fields[2 * i + 1], fields[2 * i + 2] = holder, struct.pack('<Bc0dI4', HOLDS, string.sub(value, 2), last_token, slot)
    if not events[to] then events[to], recipients[#recipients + 1] = {}, to end
    table.insert(events[to], string.format('granted %s %.0f %.0f %s', request, last_token, slot, holder))
  end

  -- The first write shows that the leases are there.
  if granted >= #freed and redis.call('ZREM', leases_key, unpack(gone)) == #gone then
    redis.call('HDEL', state_key, unpack(gone))
    redis.call('ZREM', queue_key, unpack(heads, 1, granted))
    fields[2] = struct.pack('<Bdddddddddddc0', LAYOUT, sequence + 1, held_after, holders - #gone + granted, waiting - granted, last_token,
      last_ticket, slots_made, earliest, checked, grants + granted, refused, string.sub(packed, REST_AT))
    redis.call('HSET', state_key, unpack(fields, 1, 2 * granted + 2))
    redis.call('ZADD', leases_key, unpack(leases, 1, 2 * granted))
    for _, to in ipairs(recipients) do
      local message = string.format('%.0f %s\n%s', sequence + 1, ARGV[1], table.concat(events[to], '\n'))
      redis.call(PUBLISH, ARGV[2] .. to, message)
    end
    local reply = { now_us, sequence + 1, -1, limit, limit_version, pinned, 0, 0, 'held' }
    for i = 2, #gone do reply[8 + i] = 'held' end
    return reply
  end
end
