-- The server's clock and identity. A test build puts another file in the place of this one.

-- Microseconds since 1970. Read once: before 7.2 the time moves on while a script runs.
local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]

-- A name that is new after each restart, and how long the server has been up at least, in milliseconds. INFO
-- counts the seconds that began since the one of its start: a server up for a moment may be said to be up for 1.
local function server_identity()
  local info = redis.call('INFO', 'server')
  local seconds = string.match(info, 'uptime_in_seconds:(%d+)')
  return string.match(info, 'run_id:(%w+)'), math.max(0, seconds - 1) * 1000
end
