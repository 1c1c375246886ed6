//! A reply that is lost after the server has done what it was asked, so that the client asks again.

use std::time::Duration;

use permits_testkit::{Proxy, wait};

use super::{Capacity, LIMIT, Stage};
use crate::Failure;
use crate::recipes::Kind;

/// A word of the request that acquires, and one of the request that releases.
fn words(kind: Kind) -> [&'static [u8]; 2] {
    match kind {
        Kind::List => [b"RPOP", b"LPUSH"],
        Kind::TimeZset | Kind::FairZset | Kind::LockedFairZset => [b"ZRANK", b"ZREM"],
        Kind::LuaFairZset => [b"EVALSHA", b"LPUSH"],
        Kind::Counter => [b"INCR", b"DECR"],
        Kind::HostSlots => [b"EVALSHA", b"HDEL"],
        // The most waiters that there may be are named in an acquisition alone, the last word in a release.
        Kind::Permits => [b"100000", b"stored"],
    }
}

/// What there is room for after a client has released as often as the limit, and each time the reply was lost and it
/// released again.
///
/// # Errors
/// If a client fails.
pub async fn release(stage: &Stage, kind: Kind) -> Result<Capacity, Failure> {
    around(stage, kind, words(kind)[1]).await
}

/// What there is room for after a client has acquired as often as the limit, and each time the reply was lost and it
/// asked again, and released what it then had.
///
/// # Errors
/// If a client fails.
pub async fn acquisition(stage: &Stage, kind: Kind) -> Result<Capacity, Failure> {
    around(stage, kind, words(kind)[0]).await
}

/// Acquires and releases, and loses the reply to the request that has `word`.
async fn around(stage: &Stage, kind: Kind, word: &[u8]) -> Result<Capacity, Failure> {
    let mut semaphore = stage.semaphore(kind);
    // So long that nothing heals by itself meanwhile.
    semaphore.lease = Duration::from_secs(120);
    let proxy = Proxy::start(stage.server.address());
    let mut user = stage.user_behind(&proxy, &semaphore).await?;
    // Once without a loss, so that scripts are known and lists are filled.
    if !user.try_acquire().await? {
        return Err("the first was refused".into());
    }
    user.release().await?;
    for lost in 1..=LIMIT as usize {
        proxy.swallow_reply_to(word);
        // Asked again, it may be refused: there is a host that is told that it holds already.
        user.try_acquire().await?;
        user.release().await?;
        let swallowed = wait::until(Duration::from_secs(10), || proxy.swallowed() == lost);
        assert!(swallowed, "no request of {kind} has the word {:?}", String::from_utf8_lossy(word));
    }
    stage.capacity(&semaphore).await
}
