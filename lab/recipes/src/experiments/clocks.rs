//! Clients whose clocks differ, and clients with different leases: the number admitted beyond the limit.
//!
//! Time is set by hand, so the published leases can be used, and the speed of the machine has no effect. A
//! client counts as a holder if it was admitted, has had no notice of a loss, and its own lease has not ended
//! by its own clock.

use std::time::Duration;

use permits_bench::Failure;

use super::{Fixture, LIMIT, admitted};
use crate::{Kind, Role, Semaphore, Time};

/// The number admitted beyond the limit when the clocks of later clients are off by `skew_ms`: behind or
/// ahead, while the holders are fresh or are about to renew. The worst of the four.
///
/// # Errors
/// If a client fails.
pub async fn over_admission(fixture: &Fixture, kind: Kind, skew_ms: i64) -> Result<u32, Failure> {
    let mut worst = 0;
    for ahead_ms in [-skew_ms, skew_ms] {
        for age in [Duration::ZERO, kind.published_lease() / 2] {
            let mut semaphore = fixture.semaphore(kind);
            semaphore.time = Time::manual();
            let role = Role { ahead_ms, ..Role::default() };
            worst = worst.max(late_comers(fixture, &semaphore, age, role).await?);
        }
    }
    Ok(worst)
}

/// The number admitted beyond the limit when later clients ask for a tenth of the holders' lease, after a
/// fifth of it.
///
/// # Errors
/// If a client fails.
pub async fn mixed_leases(fixture: &Fixture, kind: Kind) -> Result<u32, Failure> {
    let mut semaphore = fixture.semaphore(kind);
    if kind == Kind::Permits {
        // The time of `permits` is the server's, and passes by itself.
        semaphore.lease = Duration::from_secs(2);
    } else {
        semaphore.time = Time::manual();
    }
    let role = Role { lease: Some(semaphore.lease / 10), ..Role::default() };
    late_comers(fixture, &semaphore, semaphore.lease / 5, role).await
}

/// The limit is taken; after a while as many clients retry, in another role.
async fn late_comers(
    fixture: &Fixture,
    semaphore: &Semaphore,
    after: Duration,
    role: Role,
) -> Result<u32, Failure> {
    let mut holders = fixture.users(semaphore, LIMIT).await?;
    let before = admitted(&mut holders).await?;
    match &semaphore.time {
        Time::Manual(_) => semaphore.time.pass(after),
        Time::System => tokio::time::sleep(after).await,
    }
    fixture.let_cleaning_come_due(semaphore);
    let mut late = Vec::new();
    for _ in 0..LIMIT {
        late.push(fixture.user(semaphore, role.clone()).await?);
    }
    Ok((before + admitted(&mut late).await?).saturating_sub(LIMIT))
}
