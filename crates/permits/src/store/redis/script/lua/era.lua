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
  -- The holders are alive, and renew as ever: nothing makes them reconnect.
  local until_renewed = math.floor(lease_max / divisor) + tonumber(least)
  local window = tonumber(most) > 0 and math.min(until_renewed, math.max(lease_max, tonumber(least))) or 0
  local id = server_identity()
  s.server, s.checked, s.era_known, s.era_began = id, now_us, 0, now_us
  -- The longest lease went with the state; no holder has a permit beyond its deadline.
  s.recovering_until = math.max(s.recovering_until, now_ms + window, window > 0 and s.held_until or 0)
  s.expires, s.prolonged = math.max(s.expires, s.recovering_until), true
elseif not s.existed then
  -- A young server may have forgotten holders. An old one without state has none to forget, unless it was
  -- flushed, or has taken the place of another one: after it has loaded its data, or been a replica.
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
