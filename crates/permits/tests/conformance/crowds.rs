//! Crowds: more waiters than one command grants or refuses. The work that is left is asked for by the session
//! of a waiter, not by a renewal: the lease of the waiters is an hour.

use std::time::Duration;

use permits::{AcquireError, AcquireOptions, Client, Limit, Permit, Semaphore};
use permits_testkit::sound::{Named as _, Succeeds as _};

use crate::fixture::{Fixture, Waiter};

const CROWD: u32 = 1_200;

/// A crowd that waits behind one permit of all units, and an operator's handle of the semaphore.
struct Crowd {
    holder: Client,
    permit: Permit,
    waiters: Vec<Waiter>,
    operator: Semaphore,
}

impl Crowd {
    async fn wait(fixture: &Fixture) -> Self {
        let (holder, other, operator) =
            (fixture.client().await, fixture.client().await, fixture.client().await);
        let all = AcquireOptions::new().weight(CROWD).holder("all");
        let permit = fixture.semaphore(&holder, CROWD).acquire_with(all).succeeds().await;
        let semaphore = fixture.semaphore(&other, CROWD);
        let hour = || AcquireOptions::new().lease(Duration::from_secs(3_600));
        let waiters = (0..CROWD).map(|_| Waiter::start(&semaphore, hour())).collect();
        let operator = operator.named(fixture.name(), Limit::Stored);
        fixture.settles(&operator, CROWD.into(), CROWD.into()).await;
        Self { holder, permit, waiters, operator }
    }

    /// All of it is granted. Nothing else is asked meanwhile.
    async fn is_granted(waiters: Vec<Waiter>) {
        for waiter in waiters {
            drop(waiter.permit().await);
        }
    }
}

pub(crate) async fn a_release_grants_a_crowd(fixture: &Fixture) {
    let Crowd { permit, waiters, .. } = Crowd::wait(fixture).await;
    permit.release().succeeds().await;
    Crowd::is_granted(waiters).await;
}

pub(crate) async fn a_client_that_closes_grants_a_crowd(fixture: &Fixture) {
    let Crowd { holder, permit: _permit, waiters, .. } = Crowd::wait(fixture).await;
    holder.close().succeeds().await;
    Crowd::is_granted(waiters).await;
}

pub(crate) async fn a_revocation_grants_a_crowd(fixture: &Fixture) {
    let Crowd { permit: _permit, waiters, operator, .. } = Crowd::wait(fixture).await;
    assert_eq!(operator.revoke("all", "").await, Ok(true));
    Crowd::is_granted(waiters).await;
}

pub(crate) async fn a_raised_limit_grants_a_crowd(fixture: &Fixture) {
    let Crowd { permit, waiters, operator, .. } = Crowd::wait(fixture).await;
    operator.set_limit(2 * CROWD).succeeds().await;
    Crowd::is_granted(waiters).await;
    permit.release().succeeds().await;
    operator.unpin().succeeds().await;
}

pub(crate) async fn a_resumed_semaphore_grants_a_crowd(fixture: &Fixture) {
    let Crowd { permit, waiters, operator, .. } = Crowd::wait(fixture).await;
    operator.pause("").succeeds().await;
    permit.release().succeeds().await;
    operator.resume().succeeds().await;
    Crowd::is_granted(waiters).await;
}

pub(crate) async fn a_closed_line_refuses_a_crowd(fixture: &Fixture) {
    let Crowd { permit, waiters, operator, .. } = Crowd::wait(fixture).await;
    operator.close_line("moved").succeeds().await;
    for waiter in waiters {
        let refused = waiter.outcome().await.expect_err("the line is closed");
        assert_eq!(refused, AcquireError::LineClosed { reason: "moved".into() });
    }
    permit.release().succeeds().await;
    operator.open_line().succeeds().await;
}
