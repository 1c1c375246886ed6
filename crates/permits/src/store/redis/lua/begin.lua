-- Begins every command: the names of its arguments, the state, and whether a new era of the server began.
-- It follows model.rs name by name. A command is these files in order, begin · slots · entries · promote ·
-- finish, with its own text behind them.
--
-- KEYS  1 state  2 entries  3 queue  4 leases  5 free
-- ARGV  1 name  2 channel prefix  3 session  4 longest lease ms  5 recovery  6 declaration  7 declared limit
--       8… the command's own
-- Invariant: from here to finish, `s` is the truth about the state hash; the other keys are as written.

local state_key, entries_key, queue_key, leases_key, free_key = unpack(KEYS)
local name, channel, session = ARGV[1], ARGV[2], ARGV[3]
local longest_lease, recovery = tonumber(ARGV[4]), ARGV[5]
local declaration, declared_limit = ARGV[6], tonumber(ARGV[7])

local REAP_MAX, PROMOTE_MAX, INSPECT_MAX, IDENTITY_EVERY_US = 128, 500, 1000, 10000
local HOT = { 'sequence', 'held', 'last_token', 'last_ticket', 'slots_made' }
local COLD = { 'limit', 'limit_version', 'pinned', 'paused', 'checked', 'era_known', 'era_began',
  'recovering_until', 'lease_max', 'expires' }
local ALL = { 'server', unpack(HOT) }
for _, field in ipairs(COLD) do ALL[#ALL + 1] = field end

local now = server_clock()
local now_ms = math.floor(now / 1000)
local s, existed, kept = {}, false, false
local changed = false          -- whether a cold field must be written
local touched = {}             -- keys that may have been created
local reap_cut, promote_cut, held_at_start = false, false, 0

local function window()
  if recovery == 'strict' then return s.lease_max end
  return recovery == 'interval' and math.floor(s.lease_max / 3) or 0
end

-- Finds the state or starts one, and notices a new era. Returns an error if a key is not ours.
local function begin()
  local stored = redis.call('HMGET', state_key, unpack(ALL))
  existed = stored[2] ~= false
  for i, field in ipairs(ALL) do s[field] = i > 1 and tonumber(stored[i] or 0) or stored[i] end
  kept = s.pinned == 1 or s.paused == 1
  if existed and not kept and now_ms >= s.expires then
    redis.call('DEL', unpack(KEYS))
    existed = false
  elseif not existed and redis.call('EXISTS', entries_key, queue_key, leases_key, free_key) > 0 then
    for i, kind in ipairs({ 'hash', 'zset', 'zset', 'zset' }) do
      local found = redis.call('TYPE', KEYS[i + 1]).ok
      if found ~= kind and found ~= 'none' then return redis.error_reply('WRONGTYPE of a semaphore key') end
    end
    redis.call('DEL', entries_key, queue_key, leases_key, free_key)
  end
  if not existed then
    for _, field in ipairs(ALL) do s[field] = 0 end
    s.checked, s.era_began = now, now
  end
  s.waiting = existed and redis.call('ZCARD', queue_key) or 0
  local lease_known = s.lease_max
  if longest_lease > lease_known then s.lease_max, changed = longest_lease, true end
  if not existed then
    local id, uptime_ms = server_identity()
    s.server = id
    if uptime_ms < window() then s.recovering_until = now_ms - uptime_ms + window() end
  elseif now < s.checked or now - s.checked >= IDENTITY_EVERY_US then
    local id = server_identity()
    s.checked, changed = now, true
    if s.server ~= id then
      s.server, s.era_known, s.era_began, s.recovering_until = id, s.last_token, now, now_ms + window()
    end
  end
  if existed and now_ms < s.recovering_until and s.lease_max > lease_known then
    s.recovering_until = math.max(s.recovering_until, math.floor(s.era_began / 1000) + window())
  end
end

-- Past its memory limit a server refuses writes that may grow, unless the script has written before. This is
-- a write that changes nothing: what frees units or keeps them must always work.
local function allow_at_maxmemory()
  redis.call('HDEL', state_key, '')
end
