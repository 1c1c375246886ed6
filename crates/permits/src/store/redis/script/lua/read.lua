-- read: names the arguments; reads the state and the entries that the command names, by one call. Each script
-- begins with clock · read. The Lua follows the model (src/model) name by name.
--
-- KEYS  1 state and entries  2 queue  3 leases  4 free
-- ARGV  1 name  2 channel prefix  3 session  4 longest lease ms, negative to only look
--       5 recovery: divisor:least ms:most ms  6 declaration  7 declared limit
--       8… the command's own; holders at FIRST and every second argument behind it
--
-- The state is one packed field, and the entry of a holder is another. A holder has no control character, so
-- the names of fields cannot collide. The first byte of each has the layout. In the state follows what
-- changes at every command, then what an ordinary one reads, then the rest:
-- sequence, held, holders, waiting, last token, last ticket, slots made, earliest, checked, grants, refused ·
-- limit, limit version, pinned, paused (1; 2 if the line is closed; 3 if both), recovering until, longest
-- lease, expires · era known, era began, expired, revoked, server.
-- The reason of a closed line is another field, which the ordinary courses do not read. Not in the model:
-- `earliest` (no lease ends before it), and the numbers of holders and waiters, which show that another key
-- has vanished. An entry is packed as `entries` describes.

local state_key, queue_key, leases_key, free_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local STATE, IDENTITY_EVERY_US = '\tstate', 10000
-- The first byte of an entry of a waiter and of a holder, without times. In a packed state: the place of all
-- that no ordinary course changes, and that of the server, behind the 22 numbers.
local WAITS, HOLDS, REST_AT, SERVER_AT = 4 * LAYOUT, 4 * LAYOUT + 1, 90, 178
local now_ms = (now_us - now_us % 1000) / 1000

local asked = { STATE, ARGV[FIRST] }
for i = FIRST + 2, #ARGV, 2 do asked[#asked + 1] = ARGV[i] end
-- When the session of a waiter asks whether time has granted something, if `at` is the next change: the head
-- then, each other when as many leases of holders have ended as wait before it and one more, or 200 ms after
-- the one before it.
local function turn(at, position, waiting, holders)
  if position == 0 then return at end
  local ends = position < holders and redis.call('ZRANGE', leases_key, waiting + position, waiting + position, 'WITHSCORES')[2]
  return math.min(at + 200 * position, tonumber(ends or math.huge))
end

local found = redis.call('HMGET', state_key, unpack(asked))
local packed = found[1]

local function other_layout(layout)
  return layout < 64 and string.format('LAYOUT %d', layout) or 'UNREADABLE it is not of permits'
end

-- The fault for which an entry cannot be read, if it has one: it is of another layout, or shorter than any.
local function fault_of(entry)
  local layout = entry and math.floor((string.byte(entry) or 0) / 4) or LAYOUT
  if layout ~= LAYOUT then return other_layout(layout) end
  if entry and #entry < 11 then return 'UNREADABLE an entry is too short' end
end

-- Checked before anything is written: what cannot be read is left as it is.
local unreadable = nil
if packed then
  if string.byte(packed) ~= LAYOUT then
    unreadable = other_layout(string.byte(packed) or 0)
  elseif #packed < SERVER_AT then
    unreadable = 'UNREADABLE the state is too short'
  end
end
for i = 2, #found do unreadable = unreadable or fault_of(found[i]) end
if unreadable and not (DELETES and ARGV[8] == '1') then return redis.error_reply(unreadable) end
