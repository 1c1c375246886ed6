-- Ends every command that may write (its contract: see begin): writes the state, publishes the events, and
-- returns the reply.

settle(true)
s.pin = s.pinned + (s.alert_wait + s.alert_waiting > 0 and 2 or 0) + 4 * s.pins
local keep = s.pin > 0 or s.paused == $PAUSED or s.reason
local stays = not s.deleted and (s.existed or s.lost or s.limit > 0 or s.held > 0 or s.paused > 0 or keep)
s.sequence = (stays or s.deleted) and s.sequence + 1 or 0
reply[$SEQUENCE_AT] = s.sequence

if s.held > 0 then write_slots({}) else
  if slots.taken > 0 or s.slots_made > #slots.freed then redis.call('DEL', free_key) end
  s.slots_made = 0
end

if stays then
  local extended = s.expires < now_ms + 2 * s.lease_max
  if extended then s.expires = now_ms + 4 * s.lease_max end
  s.pause = s.reason and -1 - s.paused or s.paused
  local fields, gone = { '$STATE_FIELD', struct.pack('$PACKED_STATE', $LAYOUT, $STATE, s.server, s.waits) }, {}
  write_lanes(fields, gone)
  write_bounds(fields, gone)
  if s.pin_names == '' then gone[#gone + 1] = '$PINS' elseif s.pin_names then fields[#fields + 1], fields[#fields + 2] = '$PINS', s.pin_names end
  for key, holder in pairs(s.by_key) do
    local field, n = string.format('\t=%s', key), #fields
    if holder then fields[n + 1], fields[n + 2] = field, holder else gone[#gone + 1] = field end
  end
  redis.call('HSET', state_key, unpack(fields))
  if #gone > 0 then redis.call('HDEL', state_key, unpack(gone)) end
  if s.reason and not s.reason_stored then redis.call('HSET', state_key, '$REASON', s.reason) end
  if s.changes then redis.call('HSET', state_key, '$CHANGES', s.changes) end
  if keep then
    for _, key in ipairs(s.never_expires and {} or KEYS) do redis.call('PERSIST', key) end
  elseif extended or s.prolonged or s.never_expires or s.lost or not s.existed then
    for _, key in ipairs(KEYS) do redis.call('PEXPIREAT', key, s.expires) end
  else
    for key in pairs(s.created) do redis.call('PEXPIREAT', key, s.expires) end
  end
end

-- The next moment at which time alone changes something. The head of the queue asks then, since no session
-- hands on what time frees. If a bound has cut off work, the head's session asks at once, and some others ask
-- one after the other, since the head's may be dead.
local cut, at = s.reap_truncated or s.promote_truncated, math.huge
local heads = asking(cut)
if #heads > 0 and not cut or s.foremost then
  at = math.min(next_deadline(), s.recovering and s.recovering_until or math.huge, s.paused > 0 and s.paused < $PAUSED and s.paused or math.huge)
end
if #heads > 0 then
  -- The sessions ask one after the other. (A block, since a script has room for few more local variables.)
  local TURN_US, turns = 200000, {}
  for _, head in ipairs(heads) do
    local _, _, _, _, request, from = parts(head, known[head])
    if #turns < $TURNS_MAX and not turns[from] then
      local delay = cut and #turns * TURN_US or 1000 * at - now_us
      turns[#turns + 1], turns[from] = from, true
      emit(from, string.format('turn %s %.0f %s', request, math.max(1, delay), head))
    end
  end
end

-- All sessions are to release what they keep, because from now on others need it, or because the limit has
-- changed. They keep nothing again until a reply allows it.
if stays and was_keepable and (not keepable or was_limit > 0 and s.limit ~= was_limit) and now_ms < s.kept_until then
  emit(string.format('recall:%s', semaphore), 'recall')
end

for _, to in ipairs(recipients) do
  local message = string.format('%.0f %s\n%s', s.sequence, semaphore, table.concat(events[to], '\n'))
  redis.call('$PUBLISH', channel_prefix .. to, message)
end

if cut then
  reply[$RECHECK_AT] = 0
elseif s.foremost then
  reply[$RECHECK_AT] = math.max(1, turn(at, s.foremost, s.waiting, s.holders) - now_ms)
end
return reply
