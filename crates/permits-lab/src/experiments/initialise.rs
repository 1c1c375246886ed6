//! The beginning, and a second beginning in the middle.

use std::sync::Arc;

use permits_testkit::Proxy;
use tokio::sync::Barrier;

use super::{Capacity, LIMIT, SHORT_LEASE, Stage, admitted};
use crate::Failure;
use crate::recipes::{Gate, Kind, Process, Role};

/// How many come at once.
const CROWD: u32 = 50;

/// What a crowd found that came to a new semaphore at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crowd {
    /// How many got in.
    pub admitted: u32,
    /// What there was room for when all had released.
    pub afterwards: Capacity,
}

/// Fifty clients in as many processes come to a new semaphore at once.
///
/// # Errors
/// If one of them fails.
pub async fn crowd(stage: &Stage, kind: Kind) -> Result<Crowd, Failure> {
    let semaphore = stage.semaphore(kind);
    let mut coming = tokio::task::JoinSet::new();
    let start = Arc::new(Barrier::new(CROWD as usize));
    for _ in 0..CROWD {
        let mut user = stage.user(&semaphore, Role::default()).await?;
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
    Ok(Crowd { admitted, afterwards: stage.capacity(&semaphore).await? })
}

/// What there is room for, two leases later, when the very first client has died after its first request.
///
/// # Errors
/// If a client fails.
pub async fn first_client_dies(stage: &Stage, kind: Kind) -> Result<u32, Failure> {
    let mut semaphore = stage.semaphore(kind);
    semaphore.lease = SHORT_LEASE;
    let (gate, mut turns) = Gate::new(true);
    let proxy = Proxy::start(stage.server.address());
    let role = Role { gate: Some(gate), ..Role::default() };
    let mut user = Process::start(&semaphore, &proxy.url(), role).await?.client().await?;
    let task = tokio::spawn(async move {
        user.try_acquire().await?;
        Ok::<_, Failure>(user)
    });
    let died = if kind == Kind::Permits {
        // It has no gate, and but one request.
        Some(task.await??)
    } else {
        turns.arrived().await;
        turns.give();
        // It stands before its second request, or there was none.
        tokio::select! {
            _ = turns.arrived() => None,
            ended = task => Some(ended??),
        }
    };
    proxy.refuse(true);
    tokio::time::sleep(2 * SHORT_LEASE).await;
    let capacity = stage.capacity(&semaphore).await?;
    drop(died);
    Ok(capacity.admitted)
}

/// What came of a semaphore that was cleared in mid-use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cleared {
    /// How many got in beside the holders.
    pub beside: u32,
    /// What there was room for when all had released.
    pub afterwards: Capacity,
}

/// All keys go while all places are held; others come; then all release.
///
/// # Errors
/// If a client fails.
pub async fn cleared(stage: &Stage, kind: Kind) -> Result<Cleared, Failure> {
    let semaphore = stage.semaphore(kind);
    let mut holders = stage.users(&semaphore, LIMIT).await?;
    admitted(&mut holders).await?;
    stage.clear(&semaphore);
    let mut others = stage.users(&semaphore, 2 * LIMIT).await?;
    let beside = admitted(&mut others).await?;
    for user in holders.iter_mut().chain(&mut others) {
        // One that was lost says so, and has nothing to give back.
        let _ = user.release().await;
    }
    Ok(Cleared { beside, afterwards: stage.capacity(&semaphore).await? })
}
