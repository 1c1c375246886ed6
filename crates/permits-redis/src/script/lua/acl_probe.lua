-- acl_probe: lists the commands of the other scripts, and of a session, that this user may not run. It runs
-- no command.
-- KEYS      none: in a cluster any node can answer
-- ARGV      1 a key such as the others use; 2 a channel such as they publish on; 3 S in a cluster, where
--           channels are sharded, else empty
-- Returns   each denied command with its first argument; nothing before Redis 7.0, which has no acl_check_cmd
-- Idempotent.
-- Cost      no calls

local KEYED = { 'HGET', 'HGETALL', 'HMGET', 'HSET', 'HDEL', 'ZADD', 'ZREM', 'ZRANGE', 'ZRANGEBYSCORE', 'ZREVRANGEBYSCORE', 'ZCARD',
  'ZCOUNT', 'ZPOPMIN', 'ZRANK', 'ZREVRANK', 'ZSCORE', 'TYPE', 'PEXPIREAT', 'PERSIST' }
local key, channel, sharded = ARGV[1], ARGV[2], ARGV[3]
local denied = {}
local function check(command, ...)
  if redis.acl_check_cmd and not redis.acl_check_cmd(command, ...) then
    denied[#denied + 1] = string.format('%s %s', command, ...)
  end
end

check('EVALSHA', '', '0')
check('PING', '')
if sharded == 'S' then check('ASKING', '') end
check('TIME', '')
check('INFO', 'server')
check(sharded .. 'SUBSCRIBE', channel)
check(sharded .. 'UNSUBSCRIBE', channel)
check(sharded .. 'PUBLISH', channel, '')
check('EXISTS', key)
check('DEL', key)
check('UNLINK', key)
-- Arguments enough for each of them: only its name and its key count.
for _, command in ipairs(KEYED) do check(command, key, '0', '0', 'LIMIT', '0', '1') end
return denied
