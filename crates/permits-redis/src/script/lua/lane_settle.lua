-- Decides which lanes are short or full, and which waiters are in line: see lane_bounds.

-- Puts the lanes that have changed into their places: those that are short before all others, those that are
-- full behind all others, and those that no longer are full behind the first one. When leases that have ended
-- are reaped, and at the end of a command, forgets the bounds of lanes that neither hold nor wait, and are
-- not pinned.
local function settle(is_end)
  if next(bounds.unsettled) == nil then return end
  local first, left = lanes > 0 and read_first() or {}, {}
  local first_short = lanes > 0 and read_first_short() or {}
  for name in pairs(bounds.unsettled) do
    local bounded, record = bounds_of(name), lanes > 0 and record_of(name)
    if bounded and record then
      local head = redis.call('ZRANGEBYSCORE', queue_key, first_ticket(name, record.number), '+inf', 'LIMIT', 0, 1)
      find(head)
      local member = member_of(name, record.number)
      local side, before, progress = side_for(bounded, struct.unpack('<I4', known[head[1]], 2)), side_of(tonumber(redis.call('ZSCORE', lanes_key, member)))
      if side ~= before then
        -- Its progress among the lanes that are not short, and among those that are.
        local fair, short = progress, record.other
        if before == 'short' then
          fair, short = math.max(record.other, tonumber(first[2])), progress
        elseif before == 'full' then
          fair = math.max(fair, begins_behind(first, record.number))
        end
        if side == 'short' and first_short[1] then
          short = math.max(short, begins_behind({ first_short[1], first_short[2] / $SHORT }, record.number))
        end
        record.other = side == 'short' and fair or short
        change_lane(name, record)
        redis.call('ZADD', lanes_key, text_of(side == 'short' and short * $SHORT or side == 'full' and fair * $FULL or fair), member)
      end
    elseif bounded and not is_end then
      left[name] = true
    elseif bounded and bounded.held == 0 and not bounded.pinned then
      s.bounded, bounds.of[name], bounds.changed[name] = s.bounded - 1, false, true
    end
  end
  bounds.unsettled = left
end

-- Returns true if a waiter is in line: its lane is not full.
local function in_line()
  return s.waiting > 0 and (lanes == 0 or s.bounded == 0 or redis.call('ZCOUNT', lanes_key, 0, '($FULL') > 0)
end

-- Returns true if a waiter is before a newcomer of this weight in a lane with these bounds, if it has any:
-- one that is in line, unless the lane of the newcomer is short and no other is.
local function is_behind(bounded, weight)
  if not bounded or side_for(bounded, weight) ~= 'short' then return in_line() end
  return lanes > 0 and read_first_short()[1] ~= nil
end

-- Appends the changed bounds to `fields`, as HSET takes them, and the fields of those that are gone to
-- `gone`.
local function write_bounds(fields, gone)
  for name in pairs(bounds.changed) do
    local bounded, field, n = bounds.of[name], string.format('\t#%s', name), #fields
    if bounded then
      fields[n + 1], fields[n + 2] = field, struct.pack('<dddc0', bounded.limit, bounded.floor, bounded.held, bounded.pinned and '\1' or '')
    else
      gone[#gone + 1] = field
    end
  end
  if s.pin_names == '' then
    gone[#gone + 1] = '$PINS'
  elseif s.pin_names then
    fields[#fields + 1] = '$PINS'
    fields[#fields + 1] = s.pin_names
  end
end
