-- waits: the waits that grants have ended, in the last bytes of the state: their sum in µs, and how many took
-- up to 0.01, 0.1, 1, 10, 100 s, and longer. Behind read in every script, since both courses grant.

local WAITS_BYTES = 8 + 6 * 4
local NO_WAITS = string.rep('\0', WAITS_BYTES)

-- The waits with one more, of a request that was queued at this µs. A clock that was set back makes it 0.
local function add_wait(waits, queued)
  local us = math.max(0, now_us - queued)
  local at = us <= 1e6 and (us <= 1e4 and 9 or us <= 1e5 and 13 or 17) or us <= 1e7 and 21 or us <= 1e8 and 25 or 29
  local total, number = struct.unpack('<d', waits), struct.unpack('<I4', waits, at)
  return struct.pack('<dc0I4c0', total + us, string.sub(waits, 9, at - 1), (number + 1) % 4294967296, string.sub(waits, at + 4))
end
