//! Recipe 4: recipe 3 under a lock.
//!
//! SET NX with an expiry, tried ten times a millisecond apart; a script deletes the lock if the client still
//! owns it.
//!
//! **Right**: as recipe 3, without the race between its two transactions.
//!
//! **Breaks**: the race is closed while the lock lasts. A client that is held up for longer inside has the
//! race back without notice. All attempts go one after the other, with two round trips more; a client that
//! does not get the lock in time is refused while places are free; a client that crashes inside stops all
//! others until the lock expires. Clocks and shorter leases have the same effect as in recipe 3.

use std::time::Duration;

use permits_bench::Failure;

use super::fair_zset::FairZset;
use super::session::{Session, random_id};
use super::{Client, Doing, Semaphore};

/// The pause between two attempts to get the lock.
const PAUSE: Duration = Duration::from_millis(1);

const UNLOCK: &str = "
if redis.call('GET', KEYS[1]) == ARGV[1] then
    return redis.call('DEL', KEYS[1])
end
return 0";

pub(super) struct LockedFairZset {
    key: String,
    lease: Duration,
    attempts: u32,
    session: Session,
    unlock: String,
    inner: FairZset,
}

impl LockedFairZset {
    pub(super) async fn new(semaphore: Semaphore, mut session: Session) -> Result<Self, Failure> {
        let unlock = session.load(UNLOCK).await?;
        Ok(Self {
            key: semaphore.key("lock"),
            lease: semaphore.lease,
            attempts: semaphore.lock_attempts,
            session: session.clone(),
            unlock,
            inner: FairZset::new(semaphore, session),
        })
    }

    async fn lock(&mut self) -> Result<Option<String>, Failure> {
        let id = random_id();
        for attempt in 0..self.attempts {
            if attempt > 0 {
                tokio::time::sleep(PAUSE).await;
            }
            let mut lock = redis::cmd("SET");
            lock.arg(&self.key).arg(&id).arg("NX").arg("PX").arg(self.lease.as_millis() as u64);
            if self.session.ask::<Option<String>>(&lock).await?.is_some() {
                return Ok(Some(id));
            }
        }
        Ok(None)
    }
}

impl Client for LockedFairZset {
    fn try_acquire(&mut self) -> Doing<'_, bool> {
        Box::pin(async move {
            let Some(id) = self.lock().await? else { return Ok(false) };
            let admitted = self.inner.try_acquire().await;
            let mut unlock = redis::cmd("EVALSHA");
            unlock.arg(&self.unlock).arg(1).arg(&self.key).arg(id);
            self.session.ask::<()>(&unlock).await?;
            admitted
        })
    }

    fn release(&mut self) -> Doing<'_, ()> {
        self.inner.release()
    }

    fn refresh(&mut self) -> Doing<'_, Option<bool>> {
        self.inner.refresh()
    }

    fn poll(&self) -> Duration {
        self.inner.poll()
    }
}
