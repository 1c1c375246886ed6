//! Recipe 3: two sorted sets and a counter.
//!
//! A number that the server counts decides which client is admitted; the clients' clocks decide only which
//! permits have expired. One transaction drops the expired from the time set and, by intersecting, from the
//! owner set, and draws a number; a second one enters both sets and asks for the rank. Refreshing rewrites
//! the time: if that *adds* the member, the permit was lost before, and is removed again.
//!
//! **Right**: clocks may differ by the rest of a lease; a crashed holder's place is freed after the lease; a
//! holder that refreshes learns of a loss.
//!
//! **Breaks**: between the two transactions a later number can be ranked first, and then the earlier one as
//! well, so that both hold. A clock that is ahead by the lease evicts all holders, and so does a shorter
//! lease. Every attempt copies the whole owner set. There is no queue: a refused client starts again, and
//! "fair" says only that a slow clock gains nothing.

use permits_bench::Failure;

use super::session::{Session, random_id};
use super::{Client, Doing, Semaphore};

pub(super) struct FairZset {
    semaphore: Semaphore,
    session: Session,
    held: Option<String>,
}

impl FairZset {
    pub(super) fn new(semaphore: Semaphore, session: Session) -> Self {
        Self { semaphore, session, held: None }
    }

    /// The first transaction: drops the expired and draws a number.
    async fn draw(&mut self) -> Result<u64, Failure> {
        let [time, owner, counter] = ["time", "owner", "counter"].map(|part| self.semaphore.key(part));
        let oldest = self.session.now_us() - self.semaphore.lease.as_micros() as i64;
        let mut draw = redis::pipe();
        draw.atomic();
        draw.cmd("ZREMRANGEBYSCORE").arg(&time).arg("-inf").arg(oldest).ignore();
        let drop_expired = draw.cmd("ZINTERSTORE").arg(&owner).arg(2).arg(&owner).arg(&time);
        drop_expired.arg("WEIGHTS").arg(1).arg(0).ignore();
        draw.cmd("INCR").arg(&counter);
        let (number,) = self.session.send(&draw).await?;
        Ok(number)
    }

    /// The second transaction: enters with that number, and leaves again if the rank is too high.
    async fn claim(&mut self, number: u64) -> Result<bool, Failure> {
        let [time, owner] = ["time", "owner"].map(|part| self.semaphore.key(part));
        let id = random_id();
        let mut claim = redis::pipe();
        claim.atomic();
        claim.cmd("ZADD").arg(&time).arg(self.session.now_us()).arg(&id).ignore();
        claim.cmd("ZADD").arg(&owner).arg(number).arg(&id).ignore();
        claim.cmd("ZRANK").arg(&owner).arg(&id);
        let (rank,): (u32,) = self.session.send(&claim).await?;
        self.held = Some(id);
        if rank < self.semaphore.limit {
            return Ok(true);
        }
        self.leave().await?;
        Ok(false)
    }

    async fn leave(&mut self) -> Result<(), Failure> {
        let Some(id) = self.held.take() else { return Ok(()) };
        let mut leave = redis::pipe();
        leave.atomic();
        leave.cmd("ZREM").arg(self.semaphore.key("owner")).arg(&id).ignore();
        leave.cmd("ZREM").arg(self.semaphore.key("time")).arg(&id).ignore();
        self.session.send(&leave).await
    }
}

impl Client for FairZset {
    fn try_acquire(&mut self) -> Doing<'_, bool> {
        Box::pin(async move {
            let number = self.draw().await?;
            self.claim(number).await
        })
    }

    fn release(&mut self) -> Doing<'_, ()> {
        Box::pin(self.leave())
    }

    fn refresh(&mut self) -> Doing<'_, Option<bool>> {
        Box::pin(async move {
            let Some(id) = &self.held else { return Ok(Some(false)) };
            let mut beat = redis::cmd("ZADD");
            beat.arg(self.semaphore.key("time")).arg(self.session.now_us()).arg(id);
            let added: u32 = self.session.ask(&beat).await?;
            if added > 0 {
                self.leave().await?;
            }
            Ok(Some(added == 0))
        })
    }

    fn poll(&self) -> std::time::Duration {
        self.semaphore.poll
    }
}
