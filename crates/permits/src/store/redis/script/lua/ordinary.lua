-- ordinary: recognises the ordinary case, in which neither time nor the declaration changes anything: the
-- state exists, is not paused and not recovering, the line is not closed, no lease has ended, the expiry is
-- far, and the era is the same.
--
-- Acquire, release and renew have an ordinary course, in straight-line code that ends the script. It runs
-- before the functions of the general course are made, and gives the same replies and states as that. What is
-- rare is left to the general course, before anything is written: by `ordinary = false`. A key that has
-- vanished is left to it, too. Each course checks the keys whose absence no other call of it would show.

local ordinary = false
local sequence, held, holders, waiting, last_token, last_ticket, slots_made, earliest, checked, grants, refused, limit, limit_version,
  pinned, paused, recovering_until, lease_max, expires
if packed then
  sequence, held, holders, waiting, last_token, last_ticket, slots_made, earliest, checked, grants, refused, limit, limit_version,
    pinned, paused, recovering_until, lease_max, expires = struct.unpack('<dddddddddddddddddd', packed, 2)
  local declaration = ARGV[6]
  ordinary = now_ms < earliest and paused == 0 and now_ms >= recovering_until and limit > 0
    and now_ms + 2 * lease_max < expires and tonumber(ARGV[4]) <= lease_max and now_us >= checked
    and (declaration == 'fallback' or declaration == 'stored' or tonumber(ARGV[7]) == limit
      or declaration == 'declare' and pinned == 1)
  if ordinary and now_us - checked >= IDENTITY_EVERY_US then
    ordinary, checked = struct.unpack('s', packed, SERVER_AT) == server_identity(), now_us
  end
end
