-- Begins every command: the names of its arguments, the state, and whether a new era of the server began.
-- It follows model.rs name by name. A command is these files in order, begin · slots · entries · promote ·
-- finish, with its own text behind them.
--
-- KEYS  1 state  2 entries  3 queue  4 leases  5 free
-- ARGV  1 name  2 channel prefix  3 session  4 longest lease ms, 0 to look  5 recovery  6 declaration
--       7 declared limit
--       8… the command's own
-- Invariant: from here to finish, `s` is the truth about the state hash; the other keys are as written.

local state_key, entries_key, queue_key, leases_key, free_key = unpack(KEYS)
local name, channel, session = ARGV[1], ARGV[2], ARGV[3]
local longest_lease, recovery = tonumber(ARGV[4]), ARGV[5]
local declaration, declared_limit = ARGV[6], tonumber(ARGV[7])

local REAP_MAX, PROMOTE_MAX, INSPECT_MAX, IDENTITY_EVERY_US, MIN_WINDOW_MS = 128, 500, 1000, 10000, 1000

local now = server_clock()
local now_ms = math.floor(now / 1000)
local s, existed, kept = {}, false, false   -- the state; whether it was there; whether it was not to expire
local changed = false   -- whether a cold field must be written
local touched = {}      -- keys that may have been created
local reap_cut, promote_cut, held_at_start = false, false, 0

local function window()
  if recovery == 'off' then return 0 end
  return math.max(MIN_WINDOW_MS, recovery == 'strict' and s.lease_max or math.floor(s.lease_max / 3))
end

-- The state hash, or a new one.
local function load()
  local v = redis.call('HMGET', state_key, 'sequence', 'held', 'last_token', 'last_ticket', 'slots_made', 'limit',
    'limit_version', 'pinned', 'paused', 'checked', 'era_known', 'era_began', 'recovering_until', 'lease_max',
    'expires', 'server')
  existed = v[1] ~= false
  if not existed then v = { 0, 0, 0, 0, 0, 0, 0, 0, 0, now, 0, now, 0, 0, 0, false } end
  s = { sequence = tonumber(v[1]), held = tonumber(v[2]), last_token = tonumber(v[3]),
    last_ticket = tonumber(v[4]), slots_made = tonumber(v[5]), limit = tonumber(v[6]),
    limit_version = tonumber(v[7]), pinned = tonumber(v[8]), paused = tonumber(v[9]), checked = tonumber(v[10]),
    era_known = tonumber(v[11]), era_began = tonumber(v[12]), recovering_until = tonumber(v[13]),
    lease_max = tonumber(v[14]), expires = tonumber(v[15]), server = v[16] }
end

-- Finds the state or starts one, and notices a new era. Returns an error if a key is not ours.
local function begin()
  load()
  kept = s.pinned == 1 or s.paused == 1
  if existed and not kept and now_ms >= s.expires then
    redis.call('DEL', unpack(KEYS))
    load()
  elseif not existed and redis.call('EXISTS', entries_key, queue_key, leases_key, free_key) > 0 then
    for i, kind in ipairs({ 'hash', 'zset', 'zset', 'zset' }) do
      local found = redis.call('TYPE', KEYS[i + 1]).ok
      if found ~= kind and found ~= 'none' then return redis.error_reply('WRONGTYPE of a semaphore key') end
    end
    redis.call('DEL', entries_key, queue_key, leases_key, free_key)
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
