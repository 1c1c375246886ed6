-- ordinary: recognises the ordinary case, in which neither time nor the declaration changes anything: the
-- state exists, is not paused and not recovering, the line is not closed, no lease has ended, the expiry is
-- far, the era is the same, and no holder is named twice.
--
-- Acquire, release and renew have an ordinary course, in straight-line code that ends the script. It runs
-- before the functions of the general course are made, and gives the same replies and states. A course leaves
-- any rare case, such as a pause or a key that has vanished, to the general course before it writes anything.
-- Only a release may have removed leases by then, if others have vanished: begin finds that loss. Each course
-- checks the keys whose absence no other call of it would show.
-- If the line has lanes or bounds of lanes, the same course runs a second time, behind the functions that it
-- needs then.
--
-- For example, a release with a waiter in line: the state that was read says that no lease has ended and that
-- no pause or window is in force. The course removes the holder, takes the first waiter out of the queue,
-- writes its entry with the slot of the holder, publishes its grant, and packs the state again. The general
-- course would reap, compare the keys, order the lanes, and fill the slots in a loop, to find that there is
-- nothing else to do. If the weight of the waiter does not fit, nothing is written, and that course begins.
--
-- Contract: `reply` is as finish returns it, without answers; `stored` is the number of requests whose holder
--   has an entry. A course changes the variables of the state, appends its answers to `reply` and its entries
--   to `fields`, writes the other keys, and sets `decided`. Then finish_ordinary ends the script.

local ordinary, decided, events, recipients, waited = false, false, nil, nil, nil
local $ORDINARY_LOCALS
local stored, reply, fields = 0, nil, nil
local in_bounds = nil   -- what the bounds of lanes decide, where there are any
if packed then
  $ORDINARY = struct.unpack('$UNPACKED_ORDINARY', packed, $NUMBERS_AT)
  kept_until = keeps_for == 0 and kept_until or math.max(kept_until, now_ms + keeps_for)
  ordinary = now_ms < earliest and pause == 0 and now_ms >= recovering_until and limit > 0
    and now_ms + 2 * lease_max < expires and longest_ms <= lease_max and now_us >= checked
    and (declaration == 'fallback' or declaration == 'stored' or tonumber(declared_limit) == limit
      or declaration == 'declare' and pin % 2 == 1)
  if ordinary and now_us - checked >= $IDENTITY_EVERY_US then
    ordinary, checked = struct.unpack('s', packed, $SERVER_AT) == server_identity(), now_us
  end
end
if ordinary then
  -- A nil makes room for a single request.
  reply = { 0, sequence + 1, -1, limit, limit_version, 0, 0, 0, nil, nil, nil }
  fields = { '$STATE_FIELD', false, nil, nil }
  for k = 1, count do stored = stored + (found[k + 1] and 1 or 0) end
end
if ordinary and count > 1 then
  local seen = {}
  for k = 1, count do
    if seen[named[k]] then ordinary = false end
    seen[named[k]] = true
  end
end
