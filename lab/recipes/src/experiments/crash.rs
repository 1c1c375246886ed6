//! Holders and waiters that crash, and holders that work longer than a lease.
//!
//! A crash is a connection that a proxy cuts and keeps cut. A machine that vanishes closes nothing: the
//! proxy stops passing bytes, and the server sees an open connection.

use std::time::{Duration, Instant};

use permits_bench::Failure;
use permits_testkit::{Proxy, wait};
use tokio::time::timeout;

use super::order::{blocked, in_line};
use super::{Fixture, LIMIT, NEVER, SHORT_LEASE, admitted};
use crate::{Client, Gate, Kind, Process, Role, Semaphore};

fn short(fixture: &Fixture, kind: Kind) -> Semaphore {
    let mut semaphore = fixture.semaphore(kind);
    semaphore.lease = SHORT_LEASE;
    semaphore
}

/// The time that a client waits for a place after all holders have crashed; `None` for longer than [`NEVER`].
///
/// # Errors
/// If a client fails.
pub async fn holder(fixture: &Fixture, kind: Kind) -> Result<Option<Duration>, Failure> {
    let semaphore = short(fixture, kind);
    let (_proxy, _crashed) = crashed_holders(fixture, &semaphore).await?;
    let mut waiter = fixture.user(&semaphore, Role::default()).await?;
    let began = Instant::now();
    match timeout(NEVER, waiter.acquire()).await {
        Ok(acquired) => acquired.map(|()| Some(began.elapsed())),
        Err(_) => Ok(None),
    }
}

/// The places that are free when no client has tried for two leases after all holders have crashed.
///
/// # Errors
/// If a client fails.
pub async fn holder_left_alone(fixture: &Fixture, kind: Kind) -> Result<u32, Failure> {
    let semaphore = short(fixture, kind);
    let (_proxy, _crashed) = crashed_holders(fixture, &semaphore).await?;
    tokio::time::sleep(2 * SHORT_LEASE).await;
    Ok(fixture.capacity(&semaphore).await?.admitted)
}

/// Takes all places with clients that crash. Returns them, because a dropped client might release something.
async fn crashed_holders(
    fixture: &Fixture,
    semaphore: &Semaphore,
) -> Result<(Proxy, Vec<Box<dyn Client>>), Failure> {
    let proxy = Proxy::start(fixture.server.address());
    let mut holders = Vec::new();
    for _ in 0..LIMIT {
        holders.push(fixture.user_behind(&proxy, semaphore).await?);
    }
    if admitted(&mut holders).await? != LIMIT {
        return Err("not all holders got in".into());
    }
    proxy.refuse(true);
    // The server has to notice the closed connection; before that it would still serve a client that blocks.
    let gone = wait::until(|| proxy.connections() == 0);
    assert!(gone, "the proxy has cut them");
    Ok((proxy, holders))
}

/// The end of a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The process dies, and its connection closes.
    Dies,
    /// The machine vanishes, and nothing closes.
    Vanishes,
}

/// The first waiter ends, the only place is released, and a second client waits: the time until it has the
/// place. `None` for longer than [`NEVER`].
///
/// The first client of a recipe without a queue ends in the middle of a refused attempt, before it takes back
/// what it wrote: a poller is there for much of its time.
///
/// # Errors
/// If a client fails.
pub async fn waiter(fixture: &Fixture, kind: Kind, fate: Fate) -> Result<Option<Duration>, Failure> {
    let mut semaphore = short(fixture, kind);
    semaphore.limit = 1;
    let mut holder = fixture.user(&semaphore, Role::default()).await?;
    if !holder.try_acquire().await? {
        return Err("the first was refused".into());
    }
    let proxy = Proxy::start(fixture.server.address());
    let (gate, mut turns) = Gate::new(!kind.waits());
    let role = Role { gate: Some(gate), ..Role::default() };
    let mut first = Process::start(&semaphore, &proxy.url(), role).await?.client().await?;
    let first = if kind.waits() {
        let first = tokio::spawn(async move { first.acquire().await });
        in_line(fixture, &semaphore, 1).await?;
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
    // A queue of blocked connections loses a closed one only when the server notices; before that the server
    // would still serve it.
    let leaves = fate == Fate::Dies && matches!(kind, Kind::List | Kind::LuaFairZset);
    let left = wait::until(|| !leaves || blocked(fixture) == 0);
    assert!(left, "the server has seen that the connection is closed");
    let standing = usize::from(kind.waits() && !leaves);
    let mut second = fixture.user(&semaphore, Role::default()).await?;
    let second = tokio::spawn(async move { second.acquire().await });
    in_line(fixture, &semaphore, standing + 1).await?;
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

/// The requests of an attempt after which a client knows that it is refused.
fn requests_until_refused(kind: Kind) -> u32 {
    match kind {
        Kind::FairZset => 2,
        Kind::LockedFairZset => 3,
        _ => 1,
    }
}

/// The number of others admitted while all places are held by clients that work for two leases, and refresh
/// four times a lease where the recipe can.
///
/// # Errors
/// If a client fails.
pub async fn long_work(fixture: &Fixture, kind: Kind) -> Result<u32, Failure> {
    let semaphore = short(fixture, kind);
    let mut holders = fixture.users(&semaphore, LIMIT).await?;
    admitted(&mut holders).await?;
    for _ in 0..8 {
        tokio::time::sleep(SHORT_LEASE / 4).await;
        for holder in &mut holders {
            holder.refresh().await?;
        }
    }
    let mut others = fixture.users(&semaphore, LIMIT).await?;
    admitted(&mut others).await
}
