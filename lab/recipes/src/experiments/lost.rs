//! A reply that is lost after the server has executed the request, so that the client retries.

use std::time::Duration;

use permits_bench::Failure;
use permits_testkit::{Proxy, wait};

use super::{Capacity, Fixture, LIMIT};
use crate::Kind;

/// A word of the request that acquires, and one of the request that releases.
fn words(kind: Kind) -> [&'static [u8]; 2] {
    match kind {
        Kind::List => [b"RPOP", b"LPUSH"],
        Kind::TimeZset | Kind::FairZset | Kind::LockedFairZset => [b"ZRANK", b"ZREM"],
        Kind::LuaFairZset => [b"EVALSHA", b"LPUSH"],
        Kind::Counter => [b"INCR", b"DECR"],
        Kind::HostSlots => [b"EVALSHA", b"HDEL"],
        // Only an acquisition contains the maximum of the queue, only a release the last word.
        Kind::Permits => [b"100000", b"stored"],
    }
}

/// The room after a client has released as often as the limit, with the first reply lost each time, and a
/// retry.
///
/// # Errors
/// If a client fails.
pub async fn release(fixture: &Fixture, kind: Kind) -> Result<Capacity, Failure> {
    around(fixture, kind, words(kind)[1]).await
}

/// The room after a client has acquired as often as the limit, with the first reply lost each time, a retry,
/// and a release.
///
/// # Errors
/// If a client fails.
pub async fn acquisition(fixture: &Fixture, kind: Kind) -> Result<Capacity, Failure> {
    around(fixture, kind, words(kind)[0]).await
}

/// Acquires and releases, and loses the reply to the request that has `word`.
async fn around(fixture: &Fixture, kind: Kind, word: &[u8]) -> Result<Capacity, Failure> {
    let mut semaphore = fixture.semaphore(kind);
    // Longer than the experiment, so that nothing heals by itself.
    semaphore.lease = Duration::from_secs(120);
    let proxy = Proxy::start(fixture.server.address());
    let mut user = fixture.user_behind(&proxy, &semaphore).await?;
    // Once without a loss, so that scripts are loaded and lists are filled.
    if !user.try_acquire().await? {
        return Err("the first was refused".into());
    }
    user.release().await?;
    for lost in 1..=LIMIT as usize {
        proxy.swallow_reply_to(word);
        // The retry may be refused, because a host that holds already is refused.
        user.try_acquire().await?;
        user.release().await?;
        let swallowed = wait::until(|| proxy.swallowed() == lost);
        assert!(swallowed, "no request of {kind} has the word {:?}", String::from_utf8_lossy(word));
    }
    fixture.capacity(&semaphore).await
}
