//! Recipe 2: a sorted set by time.
//!
//! A member is an acquisition, its score the client's clock. One transaction drops the members older than the
//! lease, adds the new one and asks for its rank; below the limit it is admitted, otherwise it is removed
//! again.
//!
//! **Right**: nothing to initialise; a crashed holder's place is freed after the lease; an acquisition and a
//! release can be sent again.
//!
//! **Breaks**: a clock that is 10 ms behind ranks before the last holder, which is not notified: both hold.
//! Clocks that agree do the same, when one client reads its clock first and the other reaches the server
//! first. A clock that is ahead by the lease, or a client with a shorter lease, evicts all holders without
//! notice. There is no renewal: work that takes longer than the lease is not covered. There is no queue.

use super::session::{Session, random_id};
use super::{Client, Doing, Semaphore};

pub(super) struct TimeZset {
    semaphore: Semaphore,
    session: Session,
    held: Option<String>,
}

impl TimeZset {
    pub(super) fn new(semaphore: Semaphore, session: Session) -> Self {
        Self { semaphore, session, held: None }
    }
}

impl Client for TimeZset {
    fn try_acquire(&mut self) -> Doing<'_, bool> {
        Box::pin(async move {
            let (key, id, now) = (&self.semaphore.name, random_id(), self.session.now_us());
            let oldest = now - self.semaphore.lease.as_micros() as i64;
            let mut enter = redis::pipe();
            enter.atomic();
            enter.cmd("ZREMRANGEBYSCORE").arg(key).arg("-inf").arg(oldest).ignore();
            enter.cmd("ZADD").arg(key).arg(now).arg(&id).ignore();
            enter.cmd("ZRANK").arg(key).arg(&id);
            let (rank,): (u32,) = self.session.send(&enter).await?;
            if rank < self.semaphore.limit {
                self.held = Some(id);
                return Ok(true);
            }
            self.session.ask::<()>(redis::cmd("ZREM").arg(key).arg(&id)).await?;
            Ok(false)
        })
    }

    fn release(&mut self) -> Doing<'_, ()> {
        Box::pin(async move {
            let Some(id) = self.held.take() else { return Ok(()) };
            self.session.ask(redis::cmd("ZREM").arg(&self.semaphore.name).arg(id)).await
        })
    }

    fn poll(&self) -> std::time::Duration {
        self.semaphore.poll
    }
}
