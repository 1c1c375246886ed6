-- begin: the general course begins. The state becomes a table; keys that have vanished are noticed.
-- script/mod.rs says of which files a script is made, and in which order.
--
-- Invariant: from here to finish, `s` is the truth about the state and `known` about entries; the other keys
--   are as written.
-- Contract: a command appends its answers to `reply`, behind the fields that head sets; it sets `s.foremost`
--   to the lowest position of its requests that wait, and calls `promote` once it has decided.
--
-- Each call defines all functions again, and a function costs more the more locals it refers to. Hence one
-- state table instead of many locals, and inline code instead of functions called once.

local reply = { 0, 0, 0, 0, 0, 0, 0, 0 }

-- An empty state, and the variables of this command.
local function new_state()
  return { sequence = 0, held = 0, holders = 0, waiting = 0, last_token = 0, last_ticket = 0, slots_made = 0, earliest = math.huge,
    checked = now_us, kept_until = 0, limit = 0, limit_version = 0, pinned = 0, pin = 0, paused = 0, recovering_until = 0, lease_max = 0, expires = 0, cools_until = 0, cooling = 0, pins = 0,
    era_known = 0, era_began = now_us, server = '', grants = 0, refused = 0, expired = 0, revoked = 0, alert_wait = 0, alert_waiting = 0, existed = false,
    waits = string.rep('\0', $WAITS_BYTES), reason = nil, -- of a closed line
    reason_stored = false,
    changes = nil,   -- the changes by operators to write, as text
    lost = false,    -- some of the keys have vanished, by eviction or by hand
    deleted = false, -- the command has deleted the keys
    prolonged = false, -- the command has set when the state expires
    never_expires = false, -- the keys had no expiry
    pins_left = nil, -- the records of pinned lanes that a loss has left
    pin_names = nil, -- the names of pinned lanes to write
    created = {},    -- keys that may have been created
    by_key = {},     -- what this command changes: the waiter with each key, false if there is none
    foremost = nil,  -- the lowest position of a request of the command that waits
    new_turn = false, begun = math.huge, -- a waiter may have its turn to ask; the shortest lease that began
    recovering = false, held_at_start = 0, reap_truncated = false, promote_truncated = false }
end
local s = new_state()
if packed then
  $STATE, s.server = struct.unpack('$UNPACKED_STATE', packed, $NUMBERS_AT)
  s.waits, s.paused, s.pinned = string.sub(packed, -$WAITS_BYTES), s.pause, s.pin % 2
  if s.pause < 0 then
    s.paused, s.reason, s.reason_stored = -1 - s.pause, redis.call('HGET', state_key, '$REASON') or '', true
  end
  s.pins = (s.pin - s.pin % 4) / 4
  s.existed, s.never_expires = true, s.pin > 0 or s.paused == $PAUSED or s.reason ~= nil
  if s.paused <= now_ms then s.paused = 0 end
  if not s.never_expires and now_ms >= s.expires then
    if '$KIND' ~= 'inspect' then redis.call('DEL', unpack(KEYS)) end
    s, lanes, last_lane, bounded_lanes = new_state(), 0, 0, 0
  end
end
-- The limit before this command, and whether sessions could keep what they released then.
local was_limit, was_keepable = s.limit, s.waiting == 0 and s.held <= s.limit and s.paused == 0 and not s.reason and s.pins == 0 and now_ms >= s.recovering_until
if s.existed then
  -- Fails before anything is written if a key is another program's.
  s.lost = redis.call('ZCARD', leases_key) ~= s.holders + s.waiting
    or s.waiting > 0 and redis.call('ZCARD', queue_key) ~= s.waiting
    or s.slots_made > s.holders and redis.call('EXISTS', free_key) == 0
    or lanes > 0 and redis.call('EXISTS', lanes_key) == 0
elseif not packed then
  s.lost = redis.call('EXISTS', queue_key, leases_key, free_key, lanes_key) > 0
end
if s.lost then
  for i = 2, 5 do
    local kind = redis.call('TYPE', KEYS[i]).ok
    if kind ~= 'zset' and kind ~= 'none' then return redis.error_reply('WRONGTYPE of a semaphore key') end
  end
  if s.existed then s.changes = redis.call('HGET', state_key, '$CHANGES') or nil end
  s.reason_stored = false
  s.held, s.cooling, s.holders, s.waiting, s.slots_made, lanes, last_lane, bounded_lanes, s.earliest = 0, 0, 0, 0, 0, 0, 0, 0, math.huge
  -- The sessions may have used all tokens of the last grant.
  if s.kept_until > 0 then s.last_token = s.last_token + $KEPT_TOKENS - 1 end
end

-- Entries by holder, with all that this command has done so far: packed, or false without an entry.
local known = {}
for k = 1, count do known[named[k]] = s.existed and not s.lost and found[k + 1] end
