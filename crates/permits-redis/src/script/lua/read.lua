-- read: names the arguments; reads the state and the entries that the command names, by one call. Each script
-- begins with clock · read. The Lua follows the model (permits-core) name by name.
--
-- KEYS  1 state and entries  2 queue  3 leases  4 free  5 lanes
-- ARGV  1 name  2 channel prefix  3 session  4 longest lease ms; behind a colon, the longest for which a
--       grant may be kept, if one may be
--       5 recovery: divisor:least ms:most ms[:server known for ms][:handle]  6 declaration  7 declared limit
--       8… the command's own; of a batch from FIRST on, 2 a request: holder, and an entry or a request id
--
-- The state is one packed field, and the entry of a holder is another. A holder has no control character, so
-- the names of fields cannot collide. The first byte of each has the layout. layout.rs lists the numbers of
-- the state, behind which are the server and the waits. A name behind a dollar sign is a text that it makes.
-- The reason of a closed line is a field of its own, which the ordinary courses do not read.

local state_key, queue_key, leases_key, free_key, lanes_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local semaphore, channel_prefix, session, longest_ms, keeps_for = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), 0
if not longest_ms then longest_ms, keeps_for = string.match(ARGV[4], '(.*):(.*)') end
longest_ms = tonumber(longest_ms)
local recovery, declaration, declared_limit = ARGV[5], ARGV[6], ARGV[7]
local lanes, last_lane, bounded_lanes, knows_lanes = 0, 0, 0, false
local now_ms = (now_us - now_us % 1000) / 1000

local count, named, given = 0, { nil }, { nil }   -- of each request of a batch: the holder, and what is behind it
for i = $FIRST, #ARGV, 2 do
  count = count + 1
  named[count], given[count] = ARGV[i], ARGV[i + 1]
end

-- The time at which the session of a waiter asks whether time has granted something. The head of the queue
-- asks when the next change is due (`at`). A waiter behind it asks 200 ms after the waiter before it, or
-- when one more lease of a holder has ended than waiters are before it, if that is sooner and these are less
-- than $TURNS_BY_LEASE.
local function turn(at, position, waiting, holders)
  if position == 0 then return at end
  local ends = position < math.min(holders, $TURNS_BY_LEASE) and redis.call('ZRANGE', leases_key, waiting + position, waiting + position, 'WITHSCORES')[2]
  return math.min(at + 200 * position, tonumber(ends or math.huge))
end

-- The packed state; behind it the entry of each holder that is named, or false.
local found = redis.call('HMGET', state_key, '$STATE_FIELD', unpack(named))
local packed = found[1]

local function other_layout(layout)
  return layout < 32 and string.format('LAYOUT %d', layout) or 'UNREADABLE it is not of permits'
end

-- The fault for which an entry cannot be read, if it has one: it is of another layout, or shorter than any.
local function fault_of(entry)
  local layout = entry and math.floor((string.byte(entry) or 0) / 16) or $LAYOUT
  if layout ~= $LAYOUT then return other_layout(layout) end
  if entry and #entry < $ENTRY_BYTES then return 'UNREADABLE an entry is too short' end
end

-- Checked before anything is written: what cannot be read is left as it is.
local unreadable = nil
if packed and string.byte(packed) ~= $LAYOUT then
  unreadable = other_layout(string.byte(packed) or 0)
elseif packed and #packed < $SERVER_AT + 1 + $WAITS_BYTES then
  unreadable = 'UNREADABLE the state is too short'
end
for i = 2, #found do unreadable = unreadable or fault_of(found[i]) end
local may_delete = '$KIND' == 'delete' and ARGV[8] == '1'
if unreadable and not may_delete then return redis.error_reply(unreadable) end
