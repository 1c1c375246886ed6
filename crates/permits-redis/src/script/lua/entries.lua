-- Entries. An entry is packed: 16 times the layout, and 1 if it holds, 2 if it has times or a key, 4 if its
-- session may keep it, 8 if it names a lane or a share; weight; lease ms; the number of bytes at the end of
-- the holder that are the request, and at the beginning of the request that are the session, or 0; the times,
-- which are the ms for which its grant counts, and 2^31 more if it has a key, and the number of changes of
-- its lease; its share, 2^15 more if it names a limit or a floor of its lane, and the µs at which it was
-- queued, 0 if it does not wait; the texts of request and session that the holder does not contain; the lane;
-- its limit and floor, 0 for none; the key; label; of a holder, token and slot. So what a usual name contains
-- is stored once. A grant that cools has an entry, too: its key is the holder, a tab and the token. The score
-- in leases is the deadline, negative while it waits: so one range has all that expired, and holders are
-- listed without the waiters.

-- The parts of an entry: token and slot (0 while it waits), weight, lease, request, session, label, the ms
-- for which its grant counts, the number of changes of its lease, whether its session may keep it, its lane,
-- its share, the key by which it supersedes, if it has one, the µs at which it was queued, and the limit and
-- the floor of its lane, packed, if it names one of them or counts for them.
local function parts(holder, value)
  local request, from, of_lane = nil, nil, nil
  local flags, weight, lease, request_bytes, session_bytes, at = struct.unpack('$ENTRY', value)
  local at_least, version, keeps, lane, share, key, queued = 0, 0, flags % 8 >= $KEEPS, '', 1, nil, 0
  if flags % 4 >= $TIMES then at_least, version, at = struct.unpack('<I4I4', value, at) end
  if flags % 16 >= $LANED then share, queued, at = struct.unpack('<I2d', value, at) end
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
  if flags % 16 >= $LANED then lane, at = struct.unpack('s', value, at) end
  if share >= $BOUNDED then share, of_lane, at = share - $BOUNDED, string.sub(value, at, at + 7), at + 8 end
  if at_least >= $KEYED then
    at_least = at_least - $KEYED
    key, at = struct.unpack('s', value, at)
  end
  local token, slot, last = 0, 0, -1
  if flags % 2 == 1 then
    token, slot = struct.unpack('<dI4', value, #value - $GRANT_BYTES + 1)
    last = -$GRANT_BYTES - 1
  end
  return token, slot, weight, lease, request, from, string.sub(value, at, last), at_least, version, keeps, lane, share, key, queued, of_lane
end

-- The packed entry of a holder.
local function pack(holder, weight, lease, request, from, label, at_least, version, token, slot, keeps, lane, share, key, of_lane)
  local request_bytes = string.sub(holder, -#request) == request and #request or 0
  local session_bytes = string.sub(request, 1, #from) == from and #from or 0
  local times = (key or at_least + version > 0) and struct.pack('<I4I4', at_least + (key and $KEYED or 0), version) or ''
  local laned = lane ~= '' or share ~= 1
  return struct.pack('<BI4I4BBc0c0c0c0c0c0c0c0dI4', $HOLDS + (times == '' and 0 or $TIMES) + (keeps and $KEEPS or 0) + (laned and $LANED or 0), weight, lease,
    request_bytes, session_bytes, times, laned and struct.pack('<I2d', share + (of_lane and $BOUNDED or 0), 0) or '', request_bytes > 0 and '' or struct.pack('s', request),
    session_bytes > 0 and '' or struct.pack('s', from), laned and struct.pack('s', lane) or '', of_lane or '', key and struct.pack('s', key) or '', label, token, slot)
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

-- The ms until which the units of a grant stay taken, even if its holder leaves. A token is the time of its
-- grant, or later: after the clock was set back.
local function counts_until(token, at_least)
  return at_least > 0 and token > 0 and math.min(math.ceil(token / 1000), now_ms + 1) + at_least or 0
end

-- Passes over all tokens of a grant, if its session may have used them.
local function spend_tokens(token, keeps)
  if keeps and token > 0 then s.last_token = math.max(s.last_token, token + $KEPT_TOKENS - 1) end
end
