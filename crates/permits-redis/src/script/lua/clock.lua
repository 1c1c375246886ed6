-- clock: the server's clock and identity. A test build replaces this file.

-- Microseconds since 1970. Read once, since before 7.2 the time advances while a script runs.
local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]

-- A name that is new after each restart; a lower bound of the uptime, in milliseconds; and a lower bound of
-- the time of the start, in microseconds. INFO counts from the second in which the server started, by a clock
-- that may be a little late: it may report 1 for a server that has just started, and less than 0 if the clock
-- was set back. A search for a plain text costs a fifth of one for a pattern.
local function server_identity()
  local info = redis.call('INFO', 'server')
  local _, id_at = string.find(info, 'run_id:', 1, true)
  local _, uptime_at = string.find(info, 'uptime_in_seconds:', 1, true)
  local seconds = string.match(info, '^-?%d+', uptime_at + 1)
  local started = now_us - (math.max(0, seconds) + 2) * 1000000
  return string.match(info, '^%w+', id_at + 1), math.max(0, seconds - 1) * 1000, started
end
