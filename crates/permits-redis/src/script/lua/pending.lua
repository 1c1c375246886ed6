-- Entries and leases as this command leaves them: they are found once, and written together.

-- Entries and leases to write, flat as HSET and ZADD take them; and their scores: most of a batch share one.
local entries, leases, scores = {}, {}, {}

-- Adds an entry to write.
local function put(holder, value)
  entries[#entries + 1], entries[#entries + 2], known[holder] = holder, value, value
end

-- Adds a lease to write, from now on.
local function extend(holder, lease, holds)
  local key = holds and lease or -lease
  local score, n = scores[key], #leases
  if not score then
    local ends = now_ms + lease
    score = string.format('%.0f', holds and ends or -ends)
    scores[key], s.earliest = score, math.min(s.earliest, ends)
  end
  leases[n + 1], leases[n + 2] = score, holder
end

-- Writes entries and leases. Entries first: there a server out of memory refuses an acquisition, before
-- anything is written.
local function write()
  if #entries > 0 then redis.call('HSET', state_key, unpack(entries)) end
  if #leases > 0 then redis.call('ZADD', leases_key, unpack(leases)) end
  entries, leases = {}, {}
end
