-- The last changes by operators, so that one that is sent again has one effect and one answer: what set_limit and
-- revoke do besides what all commands do. A line a change, oldest first: request, and two words of its answer.

local CHANGES_MAX = 32
local changes = redis.call('HGET', state_key, 'changes') or ''

-- The words of the answer to a change that was made before, if that is remembered.
local function recall(request)
  for made, a, b in string.gmatch(s.existed and changes or '', '(%S+) (%S+) (%S+)\n') do
    if made == request then return a, b end
  end
end

-- Remembers a change; finish writes it.
local function remember(request, a, b)
  local lines = s.existed and changes or ''
  local _, count = string.gsub(lines, '\n', '')
  if count >= CHANGES_MAX then lines = string.gsub(lines, '^[^\n]*\n', '') end
  s.changes = string.format('%s%s %s %s\n', lines, request, a, b)
end
