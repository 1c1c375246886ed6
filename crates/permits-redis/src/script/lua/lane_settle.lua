-- Decides which lanes are full, and which waiters are in line: see lane_limits.

-- Puts the lanes that have changed into their places: those that are full behind all others, and those
-- that no longer are behind the first one. When leases that have ended are reaped, and at the end of a
-- command, forgets the limits of lanes that neither hold nor wait.
local function settle(is_end)
  if next(limits.unsettled) == nil then return end
  local first, left = lanes > 0 and read_first() or {}, {}
  for name in pairs(limits.unsettled) do
    local limited, record = limit_of(name), lanes > 0 and record_of(name)
    if limited and record then
      local head = redis.call('ZRANGEBYSCORE', queue_key, first_ticket(name, record.number), '+inf', 'LIMIT', 0, 1)
      find(head)
      local member = member_of(name, record.number)
      local score, full = tonumber(redis.call('ZSCORE', lanes_key, member)), is_full_for(limited, struct.unpack('<I4', known[head[1]], 2))
      if full and score < $FULL then
        redis.call('ZADD', lanes_key, text_of(score * $FULL), member)
      elseif not full and score >= $FULL then
        score = score / $FULL
        if first[1] then score = math.max(score, begins_behind(first, record.number)) end
        redis.call('ZADD', lanes_key, text_of(score), member)
      end
    elseif limited and not is_end then
      left[name] = true
    elseif limited and limited.held == 0 then
      s.limited, limits.of[name], limits.changed[name] = s.limited - 1, false, true
    end
  end
  limits.unsettled = left
end

-- Returns true if a waiter is in line: its lane is not full.
local function in_line()
  return s.waiting > 0 and (lanes == 0 or s.limited == 0 or redis.call('ZCOUNT', lanes_key, 0, '($FULL') > 0)
end

-- Appends the changed limits to `fields`, as HSET takes them, and the fields of those that are gone to
-- `gone`.
local function write_limits(fields, gone)
  for name in pairs(limits.changed) do
    local limited, field, n = limits.of[name], string.format('\t#%s', name), #fields
    if limited then
      fields[n + 1], fields[n + 2] = field, struct.pack('<dd', limited.limit, limited.held)
    else
      gone[#gone + 1] = field
    end
  end
end
