//! Clients whose clocks differ, and clients that ask for different leases: how many more than the limit get in.
//!
//! Time is set by hand, so the published leases can be used and nothing depends on how fast the machine is. All
//! holders count who were admitted, have not been told otherwise and whose own lease has not ended by their own
//! clock.

use std::time::Duration;

use super::{LIMIT, Stage, admitted};
use crate::Failure;
use crate::recipes::{Kind, Role, Semaphore, Time};

/// How many get in beyond the limit when the clocks of those who come later are off by `skew_ms`: behind or ahead,
/// while the holders are fresh or are about to renew. The worst of the four.
///
/// # Errors
/// If a client fails.
pub async fn over_admission(stage: &Stage, kind: Kind, skew_ms: i64) -> Result<u32, Failure> {
    let mut worst = 0;
    for ahead_ms in [-skew_ms, skew_ms] {
        for age in [Duration::ZERO, kind.published_lease() / 2] {
            let mut semaphore = stage.semaphore(kind);
            semaphore.time = Time::manual();
            let role = Role { ahead_ms, ..Role::default() };
            worst = worst.max(late_comers(stage, &semaphore, age, role).await?);
        }
    }
    Ok(worst)
}

/// How many get in beyond the limit when those who come later ask for a tenth of the holders' lease, after a fifth of
/// it.
///
/// # Errors
/// If a client fails.
pub async fn mixed_leases(stage: &Stage, kind: Kind) -> Result<u32, Failure> {
    let mut semaphore = stage.semaphore(kind);
    if kind == Kind::Permits {
        // Its time is the server's and passes by itself.
        semaphore.lease = Duration::from_secs(2);
    } else {
        semaphore.time = Time::manual();
    }
    let role = Role { lease: Some(semaphore.lease / 10), ..Role::default() };
    late_comers(stage, &semaphore, semaphore.lease / 5, role).await
}

/// The limit is taken; after a while as many come again, in another role.
async fn late_comers(
    stage: &Stage,
    semaphore: &Semaphore,
    after: Duration,
    role: Role,
) -> Result<u32, Failure> {
    let mut holders = stage.users(semaphore, LIMIT).await?;
    let before = admitted(&mut holders).await?;
    match &semaphore.time {
        Time::Manual(_) => semaphore.time.pass(after),
        Time::System => tokio::time::sleep(after).await,
    }
    stage.let_cleaning_come_due(semaphore);
    let mut late = Vec::new();
    for _ in 0..LIMIT {
        late.push(stage.user(semaphore, role.clone()).await?);
    }
    Ok((before + admitted(&mut late).await?).saturating_sub(LIMIT))
}
