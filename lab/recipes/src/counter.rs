//! Recipe 6: a number.
//!
//! INCR; up to N the client is admitted, above N it takes the count back with DECR. A release is DECR. An
//! expiry is the fuse by which leaked counts heal.
//!
//! Filled in: the expiry goes out with every INCR, in one round trip. An expiry set by the first INCR alone
//! would end a count in the middle of its use.
//!
//! **Right**: never more than N while nothing fails, however wrong the clocks; the least work of all.
//!
//! **Breaks**: the number has no owner, so a leaked count looks like a held one. A crashed holder's count
//! stays, and the fuse does not blow while any client tries, with or without success. Without attempts it
//! blows under a holder that still works. A release that is sent twice, or a number that was cleared or
//! expired in mid-use, leaves the count below the number of holders for good. Between the INCR and the DECR
//! of a refused client others are refused while places are free: the more clients try, the fewer are
//! admitted. There is no queue.

use super::session::Session;
use super::{Client, Doing, Semaphore};

pub(super) struct Counter {
    semaphore: Semaphore,
    session: Session,
    held: bool,
}

impl Counter {
    pub(super) fn new(semaphore: Semaphore, session: Session) -> Self {
        Self { semaphore, session, held: false }
    }
}

impl Client for Counter {
    fn try_acquire(&mut self) -> Doing<'_, bool> {
        Box::pin(async move {
            let key = &self.semaphore.name;
            let mut count = redis::pipe();
            count.cmd("INCR").arg(key);
            count.cmd("PEXPIRE").arg(key).arg(self.semaphore.lease.as_millis() as u64).ignore();
            let (number,): (i64,) = self.session.send(&count).await?;
            self.held = number <= i64::from(self.semaphore.limit);
            if !self.held {
                self.session.ask::<()>(redis::cmd("DECR").arg(key)).await?;
            }
            Ok(self.held)
        })
    }

    fn release(&mut self) -> Doing<'_, ()> {
        Box::pin(async move {
            if !std::mem::take(&mut self.held) {
                return Ok(());
            }
            self.session.ask(redis::cmd("DECR").arg(&self.semaphore.name)).await
        })
    }

    fn poll(&self) -> std::time::Duration {
        self.semaphore.poll
    }
}
