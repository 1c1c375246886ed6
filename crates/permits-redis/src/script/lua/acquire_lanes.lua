-- The ordinary course of acquire, as far as lanes go: the requests that wait join them.

local join_all
if ordinary and lanes > 0 then
  -- If `join` could fail for one of the requests, the general course decides.
  ordinary = lanes + count <= $LANES_MAX
  for k = 1, count do
    local record = record_of((lane_of(given[k])))
    if record and record.next + count > $TICKETS then ordinary = false end
    if not record and not first_lane then first_lane = read_first() end
  end
  -- The key of lanes may have vanished.
  local exists = first_lane and first_lane[1] or not first_lane and redis.call('EXISTS', lanes_key) == 1
  ordinary = ordinary and exists

  -- Sets the positions of the requests with the numbers `new`, and their tickets, which stand before their
  -- holders. Returns the lowest position.
  function join_all(new, tickets)
    local foremost = math.huge
    for i, k in ipairs(new) do
      local name, time = lane_of(given[k])
      time = math.max(now_us, last_ticket + 1)
      if name == '' then last_ticket = time end
      tickets[2 * i - 1], reply[7 + 3 * k] = join(name, time, waiting + i - 1)
      if in_bounds and record_of(name).waiting == 1 then
        note_change(name)
        settle()
        reply[7 + 3 * k] = place_in(name, 0, waiting)
      end
      foremost = math.min(foremost, reply[7 + 3 * k])
    end
    write_lanes(fields, {})
    return foremost
  end
end
