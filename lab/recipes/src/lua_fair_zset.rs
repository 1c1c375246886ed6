//! Recipe 5: counter, ZADD and ZRANK in one script; a list on which waiters block; renewal in the background.
//!
//! A client that wins a key with an expiry of an interval cleans before its own attempt. A refused client
//! blocks on the list, and retries when it is woken. A release pushes one wake-up, which expires. A
//! background task rewrites the time at half the lease, and removes the id once more when it is stopped. The
//! published times are a lease of 2 min, an interval of 30 s and 5 s for a wake-up; the experiments keep this
//! proportion to the lease.
//!
//! Filled in: the block on the list ends after an interval as well, because otherwise no client cleans while
//! all wait. A release waits for the background task, because the task shares the id and a late removal would
//! hit the next permit.
//!
//! **Right**: one script, so no race; one wake-up for one place; an early wake-up is kept for a moment.
//!
//! **Breaks**: a newcomer overtakes the woken waiter, which then goes to the end of the queue. A wake-up that
//! goes to a vanished waiter is lost, and the place stays free until another client tries. A crashed holder's
//! place is freed only when its lease is over and a cleaning is due after that. A clock that is ahead by the
//! rest of a lease evicts all holders; the background task rewrites the time of the lost permit, and reports
//! nothing.

use std::time::Duration;

use permits_bench::Failure;
use redis::aio::MultiplexedConnection;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::session::Session;
use super::{Client, Doing, Semaphore};

const ENTER: &str = "
local counter, owner, time = KEYS[1], KEYS[2], KEYS[3]
local id, now, limit = ARGV[1], ARGV[2], tonumber(ARGV[3])
local number = redis.call('INCR', counter)
redis.call('ZADD', time, now, id)
redis.call('ZADD', owner, number, id)
if redis.call('ZRANK', owner, id) < limit then
    return 1
end
redis.call('ZREM', owner, id)
redis.call('ZREM', time, id)
return 0";

pub(super) struct LuaFairZset {
    semaphore: Semaphore,
    session: Session,
    line: Option<MultiplexedConnection>,
    enter: String,
    id: String,
    renewal: Option<Renewal>,
}

/// The background task. A client that is dropped without stopping it has crashed.
struct Renewal {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), Failure>>,
}

impl LuaFairZset {
    pub(super) async fn new(semaphore: Semaphore, mut session: Session, user: u64) -> Result<Self, Failure> {
        let enter = session.load(ENTER).await?;
        let id = format!("host-{}-{user}", std::process::id());
        Ok(Self { semaphore, session, line: None, enter, id, renewal: None })
    }

    fn interval(&self) -> Duration {
        self.semaphore.lease / 4
    }

    async fn clean(&mut self) -> Result<(), Failure> {
        let mut win = redis::cmd("SET");
        let interval = self.interval().as_millis() as u64;
        win.arg(self.semaphore.key("clear")).arg(1).arg("NX").arg("PX").arg(interval);
        if self.session.ask::<Option<String>>(&win).await?.is_none() {
            return Ok(());
        }
        let [time, owner] = ["time", "owner"].map(|part| self.semaphore.key(part));
        let oldest = self.session.now_ns() - self.semaphore.lease.as_nanos() as i64;
        let mut clean = redis::pipe();
        clean.cmd("ZREMRANGEBYSCORE").arg(&time).arg(0).arg(oldest).ignore();
        let drop_expired = clean.cmd("ZINTERSTORE").arg(&owner).arg(2).arg(&time).arg(&owner);
        drop_expired.arg("AGGREGATE").arg("MIN").ignore();
        self.session.send(&clean).await
    }

    fn start_renewal(&mut self) {
        let (stop, mut stopped) = oneshot::channel();
        let mut session = self.session.ungated();
        let [time, owner] = ["time", "owner"].map(|part| self.semaphore.key(part));
        let (id, half) = (self.id.clone(), self.semaphore.lease / 2);
        let task = tokio::spawn(async move {
            loop {
                tokio::select! {
                    stop = &mut stopped => {
                        if stop.is_ok() {
                            session.send::<()>(&removal(&owner, &time, &id)).await?;
                        }
                        return Ok(());
                    }
                    () = tokio::time::sleep(half) => {
                        let now = session.now_ns();
                        session.ask::<()>(redis::cmd("ZADD").arg(&time).arg(now).arg(&id)).await?;
                    }
                }
            }
        });
        self.renewal = Some(Renewal { stop, task });
    }
}

fn removal(owner: &str, time: &str, id: &str) -> redis::Pipeline {
    let mut removal = redis::pipe();
    removal.atomic();
    removal.cmd("ZREM").arg(owner).arg(id).ignore();
    removal.cmd("ZREM").arg(time).arg(id).ignore();
    removal
}

impl Client for LuaFairZset {
    fn try_acquire(&mut self) -> Doing<'_, bool> {
        Box::pin(async move {
            self.clean().await?;
            let mut enter = redis::cmd("EVALSHA");
            enter.arg(&self.enter).arg(3);
            for part in ["counter", "owner", "time"] {
                enter.arg(self.semaphore.key(part));
            }
            enter.arg(&self.id).arg(self.session.now_ns()).arg(self.semaphore.limit);
            let admitted = self.session.ask(&enter).await?;
            if admitted {
                self.start_renewal();
            }
            Ok(admitted)
        })
    }

    fn acquire(&mut self) -> Doing<'_, ()> {
        Box::pin(async move {
            while !self.try_acquire().await? {
                let mut pop = redis::cmd("BRPOP");
                pop.arg(self.semaphore.key("wait")).arg(self.interval().as_secs_f64());
                self.session.block::<Option<(String, String)>>(&mut self.line, &pop).await?;
            }
            Ok(())
        })
    }

    fn release(&mut self) -> Doing<'_, ()> {
        Box::pin(async move {
            let Some(Renewal { stop, task }) = self.renewal.take() else { return Ok(()) };
            let [time, owner, wait] = ["time", "owner", "wait"].map(|part| self.semaphore.key(part));
            let mut leave = removal(&owner, &time, &self.id);
            leave.cmd("LPUSH").arg(&wait).arg(1).ignore();
            let kept = self.semaphore.lease / 24;
            leave.cmd("PEXPIRE").arg(&wait).arg(kept.as_millis() as u64).ignore();
            self.session.send::<()>(&leave).await?;
            // The task cannot have ended yet. If it has failed, the error is returned here.
            let _ = stop.send(());
            task.await?
        })
    }

    fn refresh(&mut self) -> Doing<'_, Option<bool>> {
        Box::pin(async move {
            let mut beat = redis::cmd("ZADD");
            beat.arg(self.semaphore.key("time")).arg(self.session.now_ns()).arg(&self.id);
            self.session.ask::<()>(&beat).await?;
            // The client learns of a loss only by a check of its own.
            Ok(Some(true))
        })
    }
}
