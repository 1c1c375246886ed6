-- The last changes by operators, so that a change that is sent again has one effect and one answer. Before set_limit and
-- revoke. One line for each change, oldest first: request, and two words of its answer.

local CHANGES_MAX = 32
local changes = s.changes or s.existed and redis.call('HGET', state_key, CHANGES) or ''

-- The words of the answer to a change that was made before, if it is remembered.
local function recall(request)
  for made, a, b in string.gmatch(changes, '(%S+) (%S+) (%S+)\n') do
    if made == request then return a, b end
  end
end

-- Remembers a change; finish writes it.
local function remember(request, a, b)
  local lines = changes
  local _, count = string.gsub(lines, '\n', '')
  if count >= CHANGES_MAX then lines = string.gsub(lines, '^[^\n]*\n', '') end
  s.changes = string.format('%s%s %s %s\n', lines, request, a, b)
end
