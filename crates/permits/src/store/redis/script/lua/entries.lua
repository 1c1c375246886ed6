-- Entries and leases. An entry is packed: 8 times the layout, and 1 if it holds, 2 if it has times, 4 if its
-- session may keep it; weight; lease ms; the number of bytes at the end of the holder that are the request,
-- and at the beginning of the request that are the session, or 0; the times, which are the ms for which its
-- grant counts, and the number of changes of its lease; the texts of request and session that the holder does
-- not contain; label; of a holder, token and slot. So what a usual name contains is stored once. A grant that
-- cools has an entry, too: its key is the holder, a tab and the token. The score in leases is the deadline,
-- negative while it waits: so one range has all that expired, and holders are listed without the waiters.

-- Entries and leases to write, flat as HSET and ZADD take them; and their scores: most of a batch share one.
local entries, leases, scores = {}, {}, {}

-- The parts of an entry: token and slot (0 while it waits), weight, lease, request, session, label, the ms
-- for which its grant counts, the number of changes of its lease, and whether its session may keep it.
local function parts(holder, value)
  local request, from = nil, nil
  local flags, weight, lease, request_bytes, session_bytes, at = struct.unpack('<BI4I4BB', value)
  local at_least, version, keeps = 0, 0, flags % 8 >= KEEPS
  if flags % 4 > 1 then at_least, version, at = struct.unpack('<I4I4', value, at) end
  if request_bytes > 0 then
    request = string.sub(holder, -request_bytes)
  else
    request, at = struct.unpack('s', value, at)
  end
  if session_bytes > 0 then
    from = string.sub(request, 1, session_bytes)
  else
    from, at = struct.unpack('s', value, at)
  end
  if flags % 2 == 0 then return 0, 0, weight, lease, request, from, string.sub(value, at), at_least, version, keeps end
  local token, slot = struct.unpack('<dI4', value, #value - GRANT_BYTES + 1)
  return token, slot, weight, lease, request, from, string.sub(value, at, -GRANT_BYTES - 1), at_least, version, keeps
end

-- The packed entry of a holder.
local function pack(holder, weight, lease, request, from, label, at_least, version, token, slot, keeps)
  local request_bytes = string.sub(holder, -#request) == request and #request or 0
  local session_bytes = string.sub(request, 1, #from) == from and #from or 0
  local times = at_least + version > 0 and struct.pack('<I4I4', at_least, version) or ''
  return struct.pack('<BI4I4BBc0c0c0c0dI4', HOLDS + (times == '' and 0 or 2) + (keeps and KEEPS or 0), weight, lease, request_bytes, session_bytes, times,
    request_bytes > 0 and '' or struct.pack('s', request), session_bytes > 0 and '' or struct.pack('s', from), label, token, slot)
end

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

-- Makes the entries of these holders known.
local function find(holders)
  local asked = {}
  for _, holder in ipairs(holders) do
    if known[holder] == nil then asked[#asked + 1] = holder end
  end
  if #asked == 0 then return end
  for i, value in ipairs(redis.call('HMGET', state_key, unpack(asked))) do
    if fault_of(value) then error(fault_of(value)) end
    known[asked[i]] = value
  end
end
