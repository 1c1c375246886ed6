-- Ends every command: writes the state, sends the news, completes the reply. And begins it, now that all is defined.

local function write_slots()
  if s.held > 0 then return put_slots_back() end
  if slots.taken > 0 or s.slots_made > #slots.back then redis.call('DEL', free_key) end
  s.slots_made = 0
end

-- The keys that were created expire as the others do; all do anew when little is left, or a pin is lifted.
local function write_expiry(extended)
  if s.pinned == 1 or s.paused == 1 then
    for _, key in ipairs(run.kept and {} or KEYS) do redis.call('PERSIST', key) end
  elseif extended or run.kept or not run.existed then
    for _, key in ipairs(KEYS) do redis.call('PEXPIREAT', key, s.expires) end
  else
    for key in pairs(run.created) do redis.call('PEXPIREAT', key, s.expires) end
  end
end

-- Writes the state, sends the news, and completes the reply, in which the answers stand from the seventh place on:
-- { now, sequence, recheck_ms or -1, limit, limit_version, pinned, answers… }
local function finish(reply, somebody_waits)
  local stays = run.existed or s.held > 0 or s.waiting > 0 or s.pinned == 1 or s.paused == 1
  s.sequence = stays and s.sequence + 1 or 0
  write_slots()
  if stays then
    local extended = longest_lease > 0 and s.expires < run.now_ms + 2 * s.lease_max
    if extended then s.expires = run.now_ms + 4 * s.lease_max end
    redis.call('HSET', state_key, '1', struct.pack(STATE, s.sequence, s.held, s.last_token, s.last_ticket,
      s.slots_made, s.earliest, s.limit, s.limit_version, s.pinned, s.paused, s.checked, s.era_known, s.era_began,
      s.recovering_until, s.lease_max, s.expires, s.server))
    write_expiry(extended)
  end
  for _, to in ipairs(news.listeners) do
    local message = string.format('%.0f %s\n%s', s.sequence, name, table.concat(news.of[to], '\n'))
    redis.call(PUBLISH, channel .. to, message)
  end
  local recheck = -1
  if run.reap_cut or run.promote_cut then
    recheck = 0
  elseif somebody_waits then
    -- When time alone will next change something.
    local at = math.min(next_deadline(), run.recovering and s.recovering_until or math.huge)
    recheck = math.max(1, at - run.now_ms)
  end
  reply[1], reply[2], reply[3] = run.now_us, s.sequence, recheck
  reply[4], reply[5], reply[6] = s.limit, s.limit_version, s.pinned
  return reply
end

local foreign = begin()
if foreign then return foreign end
if run.existed and s.earliest <= run.now_ms then reap() end
-- What was reaped is not handed on while recovering: the store may remember a holder that has released since, and
-- have forgotten the one that came after it.
run.held_at_start = s.held
if run.recovering then put_slots_back() end
