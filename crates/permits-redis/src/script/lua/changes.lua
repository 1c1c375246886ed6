-- The last changes by operators: for operators to read, and so that a change that is sent again has one
-- effect and one answer. The scripts of set, revoke and inspect have this part. The field has a line for each
-- change, oldest first, with tabs between: request, µs of the change, part of the state, what was done, two
-- words of it, reason, label of the session.

local change_request, changed_by = ARGV[8], ARGV[9]
local changes = {}

-- The fields of a line, as far as a script reads them: request, µs, part, what was done, two words.
local function change_fields(line)
  return string.match(line, '^(%C+)\t(%C+)\t(%C+)\t(%C+)\t(%C*)\t(%C*)\t%C*\t%C*$')
end

for line in string.gmatch(s.changes or s.existed and redis.call('HGET', state_key, '$CHANGES') or '', '[^\n]+') do
  if change_fields(line) then changes[#changes + 1] = line end
end

-- The two words and the part of the change that this request has made before; nothing if it is not
-- remembered.
local function recall()
  for _, line in ipairs(changes) do
    local request, _, part, _, a, b = change_fields(line)
    if request == change_request then return a, b, part end
  end
end

-- The reason of the last pause, empty without one.
local function pause_reason()
  for i = #changes, 1, -1 do
    local reason = string.match(changes[i], '^%C+\t%C+\tpause\tpause\t%C*\t%C*\t(%C*)')
    if reason then return reason end
  end
  return ''
end

-- Remembers a change. If there are too many, forgets the oldest ones that no session sends again, but never
-- the last change of a part. Finish writes the changes.
local function remember(part, what, a, b, reason)
  changes[#changes + 1] = table.concat({ change_request, string.format('%.0f', now_us), part, what, a, b, reason, changed_by }, '\t')
  while #changes > $CHANGES_MIN do
    local followed, oldest, made = {}, nil, nil
    for i = #changes, 1, -1 do
      local _, at, of = change_fields(changes[i])
      if followed[of] then oldest, made = i, at end
      followed[of] = true
    end
    if not oldest or now_us < made + $RETRIED_US and #changes <= $CHANGES_MAX then break end
    table.remove(changes, oldest)
  end
  s.changes = table.concat(changes, '\n')
end
