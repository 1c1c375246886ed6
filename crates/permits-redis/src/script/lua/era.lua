-- era: notices that a new era began, of the server or after a loss of state, and opens the recovery window.
-- Behind begin in every command.

if keeps_for ~= 0 then s.kept_until = math.max(s.kept_until, now_ms + keeps_for) end
local lease_known = s.lease_max
local lease_max = math.max(lease_known, longest_ms)
if '$KIND' ~= 'inspect' then s.lease_max = lease_max end
-- The window is a part of the longest lease, within bounds.
local divisor, least, most, known_for = string.match(recovery, '(%d+):(%d+):(%d+):?(%d*)')
local window = math.min(math.max(math.floor(lease_max / divisor), tonumber(least)), tonumber(most))
-- A window that was open when the clock was set back is as long as before.
if now_us < s.checked then
  s.recovering_until = math.max(0, s.recovering_until - (math.floor(s.checked / 1000) - now_ms))
end
if s.lost then
  -- The holders are alive, and renew as ever: nothing makes them reconnect. All have renewed by
  -- `forgotten_until`, which comes from what is left: the leases in the state, else the deadlines.
  local lease, forgotten_until = 0, 0
  bounded_lanes, s.pins_left = s.pins, {}
  local fields = s.existed and redis.call('HGETALL', state_key) or {}
  for i = 1, #fields, 2 do
    if not string.find(fields[i], '\t', 1, true) and #fields[i + 1] > 8 then
      local flags, _, of = struct.unpack('<BI4I4', fields[i + 1])
      if flags % 2 == 1 then lease = math.max(lease, of) end
    elseif fields[i] == '$PINS' then
      s.pin_names = fields[i + 1]
    elseif string.sub(fields[i], 1, 2) == '\t#' and #fields[i + 1] > 24 then
      s.pins_left[string.sub(fields[i], 3)] = fields[i + 1]
    end
  end
  if not s.existed and redis.call('EXISTS', leases_key) == 0 then lease = longest_ms end
  if lease > 0 then forgotten_until = now_ms + math.min(math.floor(lease / divisor) + least, math.max(lease, least)) end
  local from = not s.existed and 0
  while from do
    local left = redis.call('ZREVRANGEBYSCORE', leases_key, '+inf', '(0', 'WITHSCORES', 'LIMIT', from, 1000)
    from = #left > 0 and from + 1000
    for i = 1, #left, 2 do
      if from and not string.find(left[i], '\t', 1, true) then from, forgotten_until = false, tonumber(left[i + 1]) end
    end
  end
  if '$KIND' ~= 'inspect' then redis.call('DEL', unpack(KEYS)) end
  local id = server_identity()
  s.server, s.checked, s.era_known, s.era_began = id, now_us, $PARTLY_LOST, now_us
  if tonumber(most) > 0 then s.recovering_until = math.max(s.recovering_until, forgotten_until) end
  s.expires, s.prolonged = math.max(s.expires, s.recovering_until), true
elseif not s.existed then
  -- A young server may have forgotten holders. An older server without state has no holders to forget, unless
  -- it was flushed, or has taken the place of another server: after it has loaded its data, or been a
  -- replica.
  local id, uptime_ms = server_identity()
  s.server, uptime_ms = id, math.min(uptime_ms, tonumber(known_for) or uptime_ms)
  if uptime_ms < window then s.recovering_until = now_ms - uptime_ms + window end
elseif now_us < s.checked or now_us - s.checked >= $IDENTITY_EVERY_US then
  local id = server_identity()
  s.checked = now_us
  -- A replica has the era of its primary.
  if s.server ~= id and not ('$KIND' == 'inspect' and string.find(redis.call('INFO', 'replication'), 'role:slave', 1, true)) then
    s.server, s.era_known, s.era_began, s.recovering_until = id, s.last_token, now_us, now_ms + window
  end
end
if s.existed and now_ms < s.recovering_until and s.lease_max > lease_known then
  s.recovering_until = math.max(s.recovering_until, math.min(now_ms, math.floor(s.era_began / 1000)) + window)
end
s.recovering = now_ms < s.recovering_until

-- Past its memory limit a server refuses writes that may grow, unless the script has written before. This
-- write changes nothing: a command that frees or keeps units must always work.
local function allow_at_maxmemory()
  redis.call('HDEL', state_key, '')
end
