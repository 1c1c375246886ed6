-- The server's clock and identity. A test build puts another file in the place of this one.

-- Microseconds since 1970. Read once: before 7.2 the time moves on while a script runs.
local function server_clock()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- A name that is new after each restart, and how long the server has been up, in milliseconds.
local function server_identity()
  local info = redis.call('INFO', 'server')
  return string.match(info, 'run_id:(%w+)'), string.match(info, 'uptime_in_seconds:(%d+)') * 1000
end
