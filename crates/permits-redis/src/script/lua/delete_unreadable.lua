-- The course of delete for a semaphore whose state, or an entry of it, is damaged or of another layout.

if may_delete then
  local COUNT, from = 1000, 0
  local is_set = redis.call('TYPE', leases_key).ok == 'zset'
  while is_set and not unreadable do
    local holders = redis.call('ZRANGE', leases_key, from, from + COUNT - 1)
    if #holders == 0 then break end
    for _, entry in ipairs(redis.call('HMGET', state_key, unpack(holders))) do unreadable = unreadable or fault_of(entry) end
    from = from + COUNT
  end
  if unreadable then
    redis.call('DEL', unpack(KEYS))
    return { now_us, 0, -1, 0, 0, 0, 0, 0, 'deleted', 0, 0 }
  end
end
