//! Recipe 7: a hash of hosts and a list of free numbers.
//!
//! Locking is one script: a host that holds already gets 0; if the hash is full, −1; the list is filled on
//! first use; else the host gets the first free number. Unlocking is HDEL and RPUSH. Each user is a host of
//! its own here.
//!
//! **Right**: one script, so no race; a number to each host, and no two hosts with the same.
//!
//! **Breaks**: a crashed host keeps its number, because the recipe has no lease. An unlock that is sent twice
//! puts the number into the list twice, and so does one after the keys were cleared: then two hosts have the
//! same number. The limit cannot be raised. There is no queue.

use permits_bench::Failure;

use super::session::Session;
use super::{Client, Doing, Semaphore};

const LOCK: &str = "
local hosts, free = KEYS[1], KEYS[2]
local host, limit = ARGV[1], tonumber(ARGV[2])
if redis.call('HEXISTS', hosts, host) == 1 then
    return 0
end
local held = redis.call('HLEN', hosts)
if held >= limit then
    return -1
end
if held == 0 and redis.call('EXISTS', free) == 0 then
    for number = 1, limit do
        redis.call('RPUSH', free, number)
    end
end
local number = redis.call('LPOP', free)
if not number then
    return -1
end
redis.call('HSET', hosts, host, number)
return tonumber(number)";

pub(super) struct HostSlots {
    semaphore: Semaphore,
    session: Session,
    lock: String,
    host: String,
    number: Option<u32>,
}

impl HostSlots {
    pub(super) async fn new(semaphore: Semaphore, mut session: Session, user: u64) -> Result<Self, Failure> {
        let lock = session.load(LOCK).await?;
        Ok(Self { semaphore, session, lock, host: format!("host-{user}"), number: None })
    }
}

impl Client for HostSlots {
    fn try_acquire(&mut self) -> Doing<'_, bool> {
        Box::pin(async move {
            let mut lock = redis::cmd("EVALSHA");
            lock.arg(&self.lock).arg(2).arg(self.semaphore.key("hosts")).arg(self.semaphore.key("free"));
            lock.arg(&self.host).arg(self.semaphore.limit);
            let number: i64 = self.session.ask(&lock).await?;
            let admitted = number > 0;
            if admitted {
                self.number = u32::try_from(number).ok();
            }
            Ok(admitted)
        })
    }

    fn release(&mut self) -> Doing<'_, ()> {
        Box::pin(async move {
            let Some(number) = self.number.take() else { return Ok(()) };
            let mut unlock = redis::pipe();
            unlock.atomic();
            unlock.cmd("HDEL").arg(self.semaphore.key("hosts")).arg(&self.host).ignore();
            unlock.cmd("RPUSH").arg(self.semaphore.key("free")).arg(number).ignore();
            self.session.send(&unlock).await
        })
    }

    fn slot(&self) -> Option<u32> {
        self.number
    }

    fn poll(&self) -> std::time::Duration {
        self.semaphore.poll
    }
}
