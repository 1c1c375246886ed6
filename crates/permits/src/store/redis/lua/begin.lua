-- Begins every command: the names of its arguments, the state, and whether a new era of the server began.
-- It follows model.rs name by name. A command is these files in order, begin · slots · entries · promote, its own
-- text (of renew, behind reclaim), and finish.
--
-- KEYS  1 state  2 entries  3 queue  4 leases  5 free
-- ARGV  1 name  2 channel prefix  3 session  4 longest lease ms, negative to only look  5 recovery  6 declaration
--       7 declared limit
--       8… the command's own
-- Invariant: from here to finish, `s` is the truth about the state; the other keys are as written.
--
-- All of it is defined anew in every call, and a function costs the more the more locals it refers to. So what one
-- command knows is in one table, and what is done once stands where it is done.

local state_key, entries_key, queue_key, leases_key, free_key = unpack(KEYS)
local session, longest_lease, recovery = ARGV[3], math.abs(ARGV[4]), ARGV[5]
local now_ms = math.floor(now_us / 1000)

-- The state is one packed field, '1' for this layout: to read as many fields took longer than all else.
-- The model has no need of `earliest` (no lease ends before it), nor of the numbers of holders and waiters, by which it
-- is seen that one of the other keys has vanished.
local STATE = '<dddddddddddddddddds'
local packed = redis.call('HGET', state_key, '1')

-- The state, and what this command knows besides.
local function new_state()
  return { sequence = 0, held = 0, holders = 0, waiting = 0, last_token = 0, last_ticket = 0, slots_made = 0, earliest = math.huge, limit = 0,
    limit_version = 0, pinned = 0, paused = 0, checked = now_us, era_known = 0, era_began = now_us,
    recovering_until = 0, lease_max = 0, expires = 0, server = '', existed = false,
    lost = false,    -- some of the keys have vanished, by eviction or by hand
    extends = true,  -- the command extends the life of the state
    kept = false,    -- the keys were not to expire
    created = {},    -- keys that may have been created
    recovering = false, held_at_start = 0, reap_cut = false, promote_cut = false }
end

local s = new_state()
if packed then
  s.sequence, s.held, s.holders, s.waiting, s.last_token, s.last_ticket, s.slots_made, s.earliest, s.limit, s.limit_version, s.pinned,
    s.paused, s.checked, s.era_known, s.era_began, s.recovering_until, s.lease_max, s.expires, s.server =
    struct.unpack(STATE, packed)
  s.existed, s.kept = true, s.pinned == 1 or s.paused == 1
  if not s.kept and now_ms >= s.expires then
    redis.call('DEL', unpack(KEYS))
    s = new_state()
  end
end
if s.existed then
  -- Fails before anything is written if a key is another program's.
  local known = s.holders + s.waiting
  s.lost = redis.call('HLEN', entries_key) ~= known or redis.call('ZCARD', leases_key) ~= known
    or s.waiting > 0 and redis.call('ZCARD', queue_key) ~= s.waiting
    or s.slots_made > s.holders and redis.call('EXISTS', free_key) == 0
elseif not packed then
  s.lost = redis.call('EXISTS', entries_key, queue_key, leases_key, free_key) > 0
end
if s.lost then
  for i, kind in ipairs({ 'hash', 'zset', 'zset', 'zset' }) do
    local found = redis.call('TYPE', KEYS[i + 1]).ok
    if found ~= kind and found ~= 'none' then return redis.error_reply('WRONGTYPE of a semaphore key') end
  end
  redis.call('DEL', entries_key, queue_key, leases_key, free_key)
  s.held, s.holders, s.waiting, s.slots_made, s.earliest = 0, 0, 0, 0, math.huge
end

local IDENTITY_EVERY_US, MIN_WINDOW_MS, MAX_INTERVAL_WINDOW_MS = 10000, 1000, 5000
s.extends = s.lost and not s.existed or string.sub(ARGV[4], 1, 1) ~= '-'
local lease_known, window = s.lease_max, 0
local lease_max = math.max(lease_known, longest_lease)
if s.extends then s.lease_max = lease_max end
if recovery == 'strict' then
  window = math.max(MIN_WINDOW_MS, lease_max)
elseif recovery ~= 'off' then
  window = math.min(math.max(MIN_WINDOW_MS, math.floor(lease_max / 3)), MAX_INTERVAL_WINDOW_MS)
end
if s.lost then
  -- The holders are alive, and may come back as after a restart that kept nothing.
  local id = server_identity()
  s.server, s.checked, s.era_known, s.era_began = id, now_us, 0, now_us
  s.recovering_until = math.max(s.recovering_until, now_ms + window)
elseif not s.existed then
  local id, uptime_ms = server_identity()
  s.server = id
  if uptime_ms < window then s.recovering_until = now_ms - uptime_ms + window end
elseif now_us < s.checked or now_us - s.checked >= IDENTITY_EVERY_US then
  local id = server_identity()
  s.checked = now_us
  if s.server ~= id then
    s.server, s.era_known, s.era_began, s.recovering_until = id, s.last_token, now_us, now_ms + window
  end
end
if s.existed and now_ms < s.recovering_until and s.lease_max > lease_known then
  s.recovering_until = math.max(s.recovering_until, math.floor(s.era_began / 1000) + window)
end
s.recovering = now_ms < s.recovering_until

-- Past its memory limit a server refuses writes that may grow, unless the script has written before. This is
-- a write that changes nothing: what frees units or keeps them must always work.
local function allow_at_maxmemory()
  redis.call('HDEL', state_key, '')
end
