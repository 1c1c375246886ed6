-- waits: the waits that grants have ended, in the last bytes of the state: their sum in µs, and how many took
-- up to 0.01, 0.1, 1, 10, 100 s, and longer. Behind read in every script, since both courses grant.

-- The waits with one more, of a request that was queued at this µs. A clock that was set back makes it 0.
local function add_wait(waits, queued)
  local total, a, b, c, d, e, f = struct.unpack('$WAITS', waits)
  local us = now_us - queued
  if us < 0 then us = 0 end
  if us <= 1e4 then a = a + 1 elseif us <= 1e5 then b = b + 1 elseif us <= 1e6 then c = c + 1
  elseif us <= 1e7 then d = d + 1 elseif us <= 1e8 then e = e + 1 else f = f + 1 end
  return struct.pack('$WAITS', total + us, a, b, c, d, e, f)
end
