-- finish_ordinary: ends an ordinary course that has decided (its contract: see ordinary), as finish ends the
-- general course.

if decided then
  reply[$NOW_AT] = last_token > now_us and last_token or now_us
  reply[$FLAGS_AT] = pin % 2 + (waiting == 0 and held <= limit and pin < 4 and 2 or 0)
  sequence = sequence + 1
  if in_bounds then
    packed = table.concat({ string.sub(packed, 1, $RARE_AT - 9), struct.pack('<d', bounded_lanes), string.sub(packed, $RARE_AT) })
  end
  fields[2] = struct.pack('$PACKED_CHANGING', $LAYOUT, $CHANGING, string.sub(packed, $REST_AT, waited and -$WAITS_BYTES - 1), waited or '')
  redis.call('HSET', state_key, unpack(fields))
  for i = 1, recipients and #recipients or 0 do
    local to = recipients[i]
    local message = string.format('%.0f %s\n%s', sequence, semaphore, table.concat(events[to], '\n'))
    redis.call('$PUBLISH', channel_prefix .. to, message)
  end
  return reply
end
