-- Ends every command: writes the state, sends the news, builds the reply. And begins it, now that all is defined.

local function save()
  redis.call('HSET', state_key, 'sequence', s.sequence, 'held', s.held, 'last_token', s.last_token,
    'last_ticket', s.last_ticket, 'slots_made', s.slots_made)
  if changed or not existed then
    redis.call('HSET', state_key, 'limit', s.limit, 'limit_version', s.limit_version, 'pinned', s.pinned,
      'paused', s.paused, 'checked', s.checked, 'era_known', s.era_known, 'era_began', s.era_began,
      'recovering_until', s.recovering_until, 'lease_max', s.lease_max, 'expires', s.expires, 'server', s.server)
  end
end

local function write_expiry()
  if s.pinned == 1 or s.paused == 1 then
    for _, key in ipairs(kept and {} or KEYS) do redis.call('PERSIST', key) end
    return
  end
  if next(touched) == nil then return end
  for _, key in ipairs(KEYS) do
    if touched.all or touched[key] then redis.call('PEXPIREAT', key, s.expires) end
  end
end

-- When time alone will next change something: the earliest deadline, or the end of a recovery window.
local function recheck_ms()
  local at = math.huge
  local holder = redis.call('ZRANGEBYSCORE', leases_key, 0, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
  local waiter = redis.call('ZREVRANGEBYSCORE', leases_key, 0, '-inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
  if holder then at = tonumber(holder) end
  if waiter then at = math.min(at, -waiter) end
  if now_ms < s.recovering_until then at = math.min(at, s.recovering_until) end
  return math.max(1, at - now_ms)
end

-- Writes the state, sends the news, and builds the reply:
-- { now, sequence, recheck_ms or -1, limit, limit_version, pinned, answers… }
local function finish(answers, somebody_waits)
  local stays = existed or s.held > 0 or s.waiting > 0 or s.pinned == 1 or s.paused == 1
  s.sequence = stays and s.sequence + 1 or 0
  write_slots()
  if stays then
    if longest_lease > 0 and s.expires < now_ms + 2 * s.lease_max then
      s.expires, changed, touched.all = now_ms + 4 * s.lease_max, true, true
    end
    if not existed or kept then touched.all = true end
    save()
    write_expiry()
  end
  for _, to in ipairs(listeners) do
    local message = string.format('%.0f %s\n%s', s.sequence, name, table.concat(news[to], '\n'))
    redis.call(PUBLISH, channel .. to, message)
  end
  local recheck = (reap_cut or promote_cut) and 0 or somebody_waits and recheck_ms() or -1
  local reply = { now, s.sequence, recheck, s.limit, s.limit_version, s.pinned }
  for i, answer in ipairs(answers) do reply[6 + i] = answer end
  return reply
end

local foreign = begin()
if foreign then return foreign end
reap()
-- What was reaped is not handed on while recovering: the store may remember a holder that has released since, and
-- have forgotten the one that came after it.
held_at_start = s.held
if recovering() then put_slots_back() end
