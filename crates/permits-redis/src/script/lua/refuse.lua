-- Events for sessions, and the refusal of waiters while the line is closed. Before promote.

local events, recipients = {}, {}

-- Adds an event for a session. Finish publishes one message for each session, when all is written.
local function emit(to, line)
  if not events[to] then events[to], recipients[#recipients + 1] = {}, to end
  table.insert(events[to], line)
end

-- Refuses waiters from the head of the queue on.
local function refuse_waiters()
  if s.waiting == 0 then return end
  local heads = redis.call('ZRANGE', queue_key, 0, $REFUSE_MAX - 1)
  find(heads)
  for _, holder in ipairs(heads) do
    local _, _, _, _, request, from = parts(holder, known[holder])
    emit(from, string.format('line_closed %s %s\t%s', request, holder, s.reason))
  end
  s.refused = s.refused + #heads
  forget(heads)
  s.promote_truncated = s.waiting > 0
end
