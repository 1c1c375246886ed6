//! Recipe 6: a number.
//!
//! INCR; up to N it is in, above it takes the one back with DECR. Releasing is DECR. An expiry is the fuse by which
//! leaked counts heal.
//!
//! Filled in: the expiry goes out with every INCR, in one round trip. Set by the first alone it would end a count in
//! the middle of its use.
//!
//! **Right**: never more than N while nothing goes wrong, with clocks however wrong; the least work of all.
//!
//! **Breaks**: what goes wrong cannot be told from what goes well, for the number has no owner. A crashed holder's
//! count stays, and the fuse does not blow as long as anybody asks, be it in vain. If nobody asks it blows under a
//! holder who works on. A release that is sent twice, or a number that was cleared or expired in mid-use, goes below
//! what is held, for good. Between the INCR and the DECR of one in vain others are refused while places are free:
//! the more ask, the less get in. Nobody stands in line.

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
