-- The bounds of a lane as a setting: an operator pins them, so that requests do not change them, or lifts the
-- pin. All units that the lane holds count for pinned bounds. A pin grants at once. Like bounds that a
-- request names, it revokes nothing, and refuses a waiter heavier than the limit when it comes to the head of
-- its lane.

function settings.lane(lane, limit, floor)
  limit, floor = tonumber(limit), tonumber(floor)
  local AT_ONCE = 1000

  -- Counts the grants of the lane that did not count for its bounds, as far as their leases are among the
  -- first to end.
  local function count_held()
    for from = 0, $COUNTED_MAX - 1, AT_ONCE do
      local holders = redis.call('ZRANGEBYSCORE', leases_key, '(0', '+inf', 'LIMIT', from, AT_ONCE)
      find(holders)
      for _, holder in ipairs(holders) do
        local entry = known[holder]
        if entry and lane_of(entry) == lane and not names_bounds(entry) then count_grant(holder) end
      end
      write()
      if #holders < AT_ONCE then return end
    end
  end

  -- Adds the lane to the names of pinned lanes, or removes it. Finish writes the names.
  local function name_pin(is_pin)
    local names = {}
    for name in string.gmatch(s.pin_names or redis.call('HGET', state_key, '$PINS') or '', '[^\n]+') do
      if name ~= lane then names[#names + 1] = name end
    end
    if is_pin then names[#names + 1] = lane end
    s.pins, s.pin_names = #names, table.concat(names, '\n')
  end

  local found, is_pin = bounds_of(lane), limit + floor > 0
  local was_pin = found and found.pinned
  if is_pin and s.limit > 0 and floor > s.limit then return 'floor_above_limit' end
  if is_pin and not was_pin and s.pins >= $PINS_MAX then return 'too_many_pins' end
  if is_pin and was_pin and found.limit == limit and found.floor == floor or not is_pin and not was_pin then return end
  if not found then
    found, bounded_lanes = { held = 0 }, bounded_lanes + 1
    bounds.of[lane] = found
  end
  if is_pin then found.limit, found.floor = limit, floor end
  found.pinned, bounds.changed[lane], bounds.unsettled[lane] = is_pin, true, true
  if is_pin then count_held() end
  if is_pin ~= (was_pin or false) then name_pin(is_pin) end
  remember('lane', is_pin and 'pin' or 'unpin', is_pin and string.format('%.0f %.0f', limit, floor) or '', lane, '')
end
