//! Holders and waiters that crash, and holders that work longer than a lease.
//!
//! A crash is a connection that a proxy cuts and does not let come back. A machine that vanishes closes nothing: the
//! proxy stops passing anything on, and the server sees an open connection.

use std::time::{Duration, Instant};

use permits_testkit::{Proxy, wait};
use tokio::time::timeout;

use super::order::{blocked, in_line};
use super::{LIMIT, NEVER, SHORT_LEASE, Stage, admitted};
use crate::Failure;
use crate::recipes::{Client, Gate, Kind, Process, Role, Semaphore};

fn short(stage: &Stage, kind: Kind) -> Semaphore {
    let mut semaphore = stage.semaphore(kind);
    semaphore.lease = SHORT_LEASE;
    semaphore
}

/// How long a client waits for a place after all holders have crashed; `None` for longer than [`NEVER`].
///
/// # Errors
/// If a client fails.
pub async fn holder(stage: &Stage, kind: Kind) -> Result<Option<Duration>, Failure> {
    let semaphore = short(stage, kind);
    let (_proxy, _crashed) = crashed_holders(stage, &semaphore).await?;
    let mut waiter = stage.user(&semaphore, Role::default()).await?;
    let began = Instant::now();
    match timeout(NEVER, waiter.acquire()).await {
        Ok(acquired) => acquired.map(|()| Some(began.elapsed())),
        Err(_) => Ok(None),
    }
}

/// How many places there are when nobody has asked for two leases after all holders have crashed.
///
/// # Errors
/// If a client fails.
pub async fn holder_left_alone(stage: &Stage, kind: Kind) -> Result<u32, Failure> {
    let semaphore = short(stage, kind);
    let (_proxy, _crashed) = crashed_holders(stage, &semaphore).await?;
    tokio::time::sleep(2 * SHORT_LEASE).await;
    Ok(stage.capacity(&semaphore).await?.admitted)
}

/// All places are taken by clients that crash. They are returned, for dropped ones might give something back.
async fn crashed_holders(
    stage: &Stage,
    semaphore: &Semaphore,
) -> Result<(Proxy, Vec<Box<dyn Client>>), Failure> {
    let proxy = Proxy::start(stage.server.address());
    let mut holders = Vec::new();
    for _ in 0..LIMIT {
        holders.push(stage.user_behind(&proxy, semaphore).await?);
    }
    if admitted(&mut holders).await? != LIMIT {
        return Err("not all holders got in".into());
    }
    proxy.refuse(true);
    // The server has to have seen it; until then one who blocks would still be served.
    let gone = wait::until(Duration::from_secs(10), || proxy.connections() == 0);
    assert!(gone, "the proxy has cut them");
    Ok((proxy, holders))
}

/// How a waiter ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Its process dies, and its connection closes.
    Dies,
    /// Its machine vanishes, and nothing closes.
    Vanishes,
}

/// The first in line ends, the only place is released, and a second waits: how long until it has the place. `None`
/// for longer than [`NEVER`].
///
/// Where the recipe knows no line, the first ends in the middle of an attempt in vain, before it takes back what it
/// wrote: a poller is there for much of its time.
///
/// # Errors
/// If a client fails.
pub async fn waiter(stage: &Stage, kind: Kind, fate: Fate) -> Result<Option<Duration>, Failure> {
    let mut semaphore = short(stage, kind);
    semaphore.limit = 1;
    let mut holder = stage.user(&semaphore, Role::default()).await?;
    if !holder.try_acquire().await? {
        return Err("the first was refused".into());
    }
    let proxy = Proxy::start(stage.server.address());
    let (gate, mut turns) = Gate::new(!kind.waits());
    let role = Role { gate: Some(gate), ..Role::default() };
    let mut first = Process::start(&semaphore, &proxy.url(), role).await?.client().await?;
    let first = if kind.waits() {
        let first = tokio::spawn(async move { first.acquire().await });
        in_line(stage, &semaphore, 1).await?;
        first
    } else {
        let first = tokio::spawn(async move { first.try_acquire().await.map(drop) });
        for _ in 0..requests_until_refused(kind) {
            turns.arrived().await;
            turns.give();
        }
        turns.arrived().await;
        first
    };
    match fate {
        Fate::Dies => proxy.refuse(true),
        Fate::Vanishes => proxy.stall(true),
    }
    // A line of blocked connections loses one that closes; until it has, the server would still serve it.
    let leaves = fate == Fate::Dies && matches!(kind, Kind::List | Kind::LuaFairZset);
    let left = wait::until(Duration::from_secs(10), || !leaves || blocked(stage) == 0);
    assert!(left, "the server has seen that the connection is closed");
    let standing = usize::from(kind.waits() && !leaves);
    let mut second = stage.user(&semaphore, Role::default()).await?;
    let second = tokio::spawn(async move { second.acquire().await });
    in_line(stage, &semaphore, standing + 1).await?;
    let began = Instant::now();
    holder.release().await?;
    let outcome = timeout(NEVER, second).await;
    let took = began.elapsed();
    first.abort();
    match outcome {
        Ok(acquired) => acquired?.map(|()| Some(took)),
        Err(_) => Ok(None),
    }
}

/// After how many requests of an attempt it is known to be in vain.
fn requests_until_refused(kind: Kind) -> u32 {
    match kind {
        Kind::FairZset => 2,
        Kind::LockedFairZset => 3,
        _ => 1,
    }
}

/// How many others get in while all places are held by clients that work on for two leases, refreshing four times a
/// lease where the recipe can.
///
/// # Errors
/// If a client fails.
pub async fn long_work(stage: &Stage, kind: Kind) -> Result<u32, Failure> {
    let semaphore = short(stage, kind);
    let mut holders = stage.users(&semaphore, LIMIT).await?;
    admitted(&mut holders).await?;
    for _ in 0..8 {
        tokio::time::sleep(SHORT_LEASE / 4).await;
        for holder in &mut holders {
            holder.refresh().await?;
        }
    }
    let mut others = stage.users(&semaphore, LIMIT).await?;
    admitted(&mut others).await
}
