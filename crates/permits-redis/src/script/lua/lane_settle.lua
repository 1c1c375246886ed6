-- Decides which lanes are short or full, and which waiters are in line: see lane_bounds.

-- Puts the lanes that have changed into their places: short lanes before all others, full lanes behind all
-- others, and lanes that are no longer full behind the first one. When leases that have ended are reaped, and
-- at the end of a command, also forgets the bounds of lanes that neither hold nor wait, and are not pinned.
function settle(is_end)
  if next(bounds.unsettled) == nil then return end
  local several, first, first_short, left = next(bounds.unsettled, (next(bounds.unsettled))) ~= nil, nil, nil, {}
  for name in pairs(bounds.unsettled) do
    local bounded, record = bounds_of(name), lanes > 0 and record_of(name)
    if bounded and record then
      local member = member_of(name, record.number)
      local side, before, progress = side_for(bounded, head_weight(name, record)), side_of(tonumber(redis.call('ZSCORE', lanes_key, member)))
      if side ~= before then
        -- Reads the first lanes before any lane is moved, as far as they are needed.
        first, first_short = first or (several or before ~= 'fair') and read_first(), first_short or (several or side == 'short') and read_first_short()
        -- The lane's progress among the lanes that are not short, and among the lanes that are.
        local fair, short = progress, record.other
        if before == 'short' then
          fair, short = math.max(record.other, tonumber(first[2])), progress
        elseif before == 'full' then
          fair = math.max(fair, begins_behind(first, record.number))
        end
        if side == 'short' and first_short[1] then
          short = math.max(short, begins_behind({ first_short[1], first_short[2] / $SHORT }, record.number))
        end
        -- The lane's record has what the lane owed when it joined, so remove the debt here.
        if side == 'short' then redis.call('ZREM', lanes_key, string.format('-%s', name)) end
        record.other = side == 'short' and fair or short
        change_lane(name, record)
        redis.call('ZADD', lanes_key, text_of(side == 'short' and short * $SHORT or side == 'full' and fair * $FULL or fair), member)
      end
    elseif bounded and not is_end then
      left[name] = true
    elseif bounded and bounded.held == 0 and not bounded.pinned then
      bounded_lanes, bounds.of[name], bounds.changed[name] = bounded_lanes - 1, false, true
    end
  end
  bounds.unsettled = left
end

-- Appends the changed bounds to `fields`, as HSET takes them, and the fields of bounds that are gone to
-- `gone`.
function write_bounds(fields, gone)
  for name in pairs(bounds.changed) do
    local bounded, field, n = bounds.of[name], string.format('\t#%s', name), #fields
    if bounded then
      fields[n + 1], fields[n + 2] = field, struct.pack('<dddc0', bounded.limit, bounded.floor, bounded.held, bounded.pinned and '\1' or '')
    else
      gone[#gone + 1] = field
    end
  end
end
