//! The beginning, and a second beginning in the middle.

use std::sync::Arc;

use permits_bench::Failure;
use permits_testkit::Proxy;
use tokio::sync::Barrier;

use super::{Capacity, Fixture, LIMIT, SHORT_LEASE, admitted};
use crate::{Gate, Kind, Process, Role};

/// The clients that come at once.
const CROWD: u32 = 50;

/// The outcome for clients that come to a new semaphore at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crowd {
    /// The clients that were admitted.
    pub admitted: u32,
    /// The room when all had released.
    pub afterwards: Capacity,
}

/// Fifty clients in as many processes come to a new semaphore at once.
///
/// # Errors
/// If one of them fails.
pub async fn crowd(fixture: &Fixture, kind: Kind) -> Result<Crowd, Failure> {
    let semaphore = fixture.semaphore(kind);
    let mut coming = tokio::task::JoinSet::new();
    let start = Arc::new(Barrier::new(CROWD as usize));
    for _ in 0..CROWD {
        let mut user = fixture.user(&semaphore, Role::default()).await?;
        let start = start.clone();
        coming.spawn(async move {
            start.wait().await;
            let admitted = user.try_acquire().await?;
            Ok::<_, Failure>((admitted, user))
        });
    }
    let mut users = Vec::new();
    while let Some(came) = coming.join_next().await {
        users.push(came??);
    }
    let admitted = users.iter().filter(|(admitted, _)| *admitted).count() as u32;
    for (_, user) in &mut users {
        user.release().await?;
    }
    Ok(Crowd { admitted, afterwards: fixture.capacity(&semaphore).await? })
}

/// The room two leases after the very first client has died after its first request.
///
/// # Errors
/// If a client fails.
pub async fn first_client_dies(fixture: &Fixture, kind: Kind) -> Result<u32, Failure> {
    let mut semaphore = fixture.semaphore(kind);
    semaphore.lease = SHORT_LEASE;
    let (gate, mut turns) = Gate::new(true);
    let proxy = Proxy::start(fixture.server.address());
    let role = Role { gate: Some(gate), ..Role::default() };
    let mut user = Process::start(&semaphore, &proxy.url(), role).await?.client().await?;
    let task = tokio::spawn(async move {
        user.try_acquire().await?;
        Ok::<_, Failure>(user)
    });
    let died = if kind == Kind::Permits {
        // A client of `permits` has no gate, and a single request.
        Some(task.await??)
    } else {
        turns.arrived().await;
        turns.give();
        // The client stands before its second request, or there was none.
        tokio::select! {
            _ = turns.arrived() => None,
            ended = task => Some(ended??),
        }
    };
    proxy.refuse(true);
    tokio::time::sleep(2 * SHORT_LEASE).await;
    let capacity = fixture.capacity(&semaphore).await?;
    drop(died);
    Ok(capacity.admitted)
}

/// The outcome for a semaphore that was cleared in mid-use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cleared {
    /// The clients that were admitted beside the holders.
    pub beside: u32,
    /// The room when all had released.
    pub afterwards: Capacity,
}

/// All keys vanish while all places are held; other clients come; then all release.
///
/// # Errors
/// If a client fails.
pub async fn cleared(fixture: &Fixture, kind: Kind) -> Result<Cleared, Failure> {
    let semaphore = fixture.semaphore(kind);
    let mut holders = fixture.users(&semaphore, LIMIT).await?;
    admitted(&mut holders).await?;
    fixture.clear(&semaphore);
    let mut others = fixture.users(&semaphore, 2 * LIMIT).await?;
    let beside = admitted(&mut others).await?;
    for user in holders.iter_mut().chain(&mut others) {
        // A client whose permit was lost says so, and has nothing to release.
        let _ = user.release().await;
    }
    Ok(Cleared { beside, afterwards: fixture.capacity(&semaphore).await? })
}
