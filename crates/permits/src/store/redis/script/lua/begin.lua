-- begin: names the arguments and reads the state. The Lua follows the model (src/model) name by name.
-- A script is clock · begin · era · slots · entries · reap · promote · the command's own files · finish.
--
-- KEYS  1 state  2 entries  3 queue  4 leases  5 free
-- ARGV  1 name  2 channel prefix  3 session  4 longest lease ms, negative to only look  5 recovery: divisor:least ms:most ms
--       6 declaration
--       7 declared limit
--       8… the command's own
-- Invariant: from here to finish, `s` is the truth about the state; the other keys are as written.
-- Contract: a command appends its answers to `reply`, behind the eight fields that finish sets; it sets `s.recheck` if
--   one of its requests waits; it calls `promote` once it has decided. All else is in `s`, until finish.
--
-- Each call defines all functions again, and a function costs more the more locals it refers to. Hence one state table
-- instead of many locals, and inline code instead of functions called once.

local state_key, entries_key, queue_key, leases_key, free_key = unpack(KEYS)
local session, longest_lease, recovery = ARGV[3], math.abs(ARGV[4]), ARGV[5]
local now_ms = math.floor(now_us / 1000)
local reply = { 0, 0, 0, 0, 0, 0, 0, 0 }

-- The state is one packed field, '1' for this layout: reading as many fields took longer than all else.
-- Not in the model: `earliest` (no lease ends before it), and the numbers of holders and waiters, which show that one
-- of the other keys has vanished.
local STATE = '<dddddddddddddddddds'
local packed = redis.call('HGET', state_key, '1')

-- An empty state, and the variables of this command.
local function new_state()
  return { sequence = 0, held = 0, holders = 0, waiting = 0, last_token = 0, last_ticket = 0, slots_made = 0, earliest = math.huge, limit = 0,
    limit_version = 0, pinned = 0, paused = 0, checked = now_us, era_known = 0, era_began = now_us,
    recovering_until = 0, lease_max = 0, expires = 0, server = '', existed = false,
    lost = false,    -- some of the keys have vanished, by eviction or by hand
    extends = true,  -- the command extends the life of the state
    kept = false,    -- the keys had no expiry
    created = {},    -- keys that may have been created
    recheck = false, -- a request of the command waits
    recovering = false, held_at_start = 0, reap_truncated = false, promote_truncated = false }
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
