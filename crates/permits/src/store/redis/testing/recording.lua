-- The recording build of a command: executes the command, then publishes a record of it.
--
-- Published on CHANNEL, in the order of execution: fields, each its length, a sign for its kind, its bytes.
--   state key, now, run id, uptime ms, the command, which is the last of ARGV; the number of answers, the
--   reply; then channel and text of each message that the command published
-- A command that fails has written nothing, and is not recorded.
--
-- A server replies to the caller before it writes to subscribers, so a message may be lost with the server
-- although its command was executed; and messages are lost while the subscriber reconnects. So a list keeps
-- the last KEPT records too: it lasts as long as the state that they describe. Not in a cluster, where the
-- list might be in another hash slot.
--
-- Writes that the user may not make are left out: recording changes no reply.

local clock, messages = {}, {}
local note = table.remove(ARGV)

local function command()
  local original = redis
  local redis = setmetatable({}, { __index = original })
  redis.call = function(verb, ...)
    if verb == 'PUBLISH' or verb == 'SPUBLISH' then messages[#messages + 1] = { ... } end
    return original.call(verb, ...)
  end

COMMAND
end

local reply = command()
if reply.err then return reply end

local fields = {}
local function add(value)
  local number = type(value) == 'number'
  local text = number and string.format('%.0f', value) or value or ''
  fields[#fields + 1] = string.format('%.0f', #text)
  fields[#fields + 1] = number and ':' or value and '$' or '_'
  fields[#fields + 1] = text
end
local run_id, uptime_ms = clock.identity()
add(KEYS[1])
add(clock.now)
add(run_id)
add(uptime_ms)
add(note)
add(#reply)
for i = 1, #reply do add(reply[i]) end
for _, message in ipairs(messages) do
  add(message[1])
  add(message[2])
end
local record = table.concat(fields)
redis.pcall('PUBLISH', CHANNEL, record)
if not SHARDED then
  local kept = redis.pcall('RPUSH', CHANNEL, record)
  if type(kept) == 'number' and kept > 2 * KEPT then redis.pcall('LTRIM', CHANNEL, -KEPT, -1) end
end
return reply
