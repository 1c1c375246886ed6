//! The engine behind its lock, with a store that answers at once, or never.

use std::future::{Future as _, poll_fn};
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use super::{Silent, config, reply, spec};
use crate::clock::millis;
use crate::error::{AcquireError, AdminError, CloseError, Ended, Lost, ReleaseError, RenewError};
use crate::protocol::{AcquireOutcome, Answers, Declaration, Grant, Name, Operation, PermitTerms};
use crate::session::Config;
use crate::session::callers::{Message, Session};
use crate::session::driver::Driver;
use crate::session::gathering::Sending;
use crate::session::pending_acquire::PendingAcquire;
use crate::store::Address;
use permits_store::{Executed, Report, Sink as _, StoreError, StoreOptions, open};

const LEASE: Duration = Duration::from_secs(600);

impl Silent {
    /// The kinds of the requests that the store has got.
    fn kinds(&self) -> Vec<&'static str> {
        let requests = self.requests.lock().expect("no panic");
        requests.iter().map(|request| request.command.operation.kind().name()).collect()
    }

    /// Reports that the last request, an acquisition, was granted.
    fn grants(&self, driver: &Driver) {
        let id = self.requests.lock().expect("no panic").last().expect("it was sent").id;
        let grant = Grant { token: id, slot: 0 };
        let reply = reply(1, Answers::Acquire(vec![AcquireOutcome::Granted(grant)]));
        let result = Ok(Executed { reply, confirmed: 0 });
        driver.report(&mut vec![Report::Outcome { id, result }]);
    }
}

/// A session on a silent store, with the shortest lease.
fn silent_session() -> (Session, Arc<Driver>, Arc<Silent>) {
    let lease = Duration::from_millis(100);
    let (session, driver) = Driver::new(Config { store_timeout: lease, ..config("session", lease) });
    let store = Arc::new(Silent::default());
    driver.open(store.clone());
    driver.report(&mut vec![Report::Up]);
    (session, driver, store)
}

#[tokio::test]
async fn a_call_without_an_outcome_fails_in_time() {
    let (session, driver, _store) = silent_session();
    let mut pending = request(&session);
    let keeping_time = tokio::spawn(async move { driver.keep_time().await });
    let result = poll_fn(|context| pending.poll(context));
    let result = permits_testkit::wait::in_time(result).await;
    assert!(matches!(result, Err(AcquireError::Store(StoreError::NoAnswer { .. }))), "{result:?}");
    keeping_time.abort();
}

#[tokio::test]
async fn a_release_that_was_gathered_is_sent_when_it_is_dropped() {
    for polls in [0, 1] {
        let (session, driver, store) = silent_session();
        let mut pending = request(&session);
        pending.send();
        store.grants(&driver);
        let held = pending.try_take().expect("it is answered").expect("it is granted");
        let mut waiting = request(&session);
        waiting.send();
        let mut release = Box::pin(held.release());
        assert_eq!(store.kinds(), ["acquire", "acquire"], "it waits for others");
        for _ in 0..polls {
            assert!(release.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        drop(release);
        assert_eq!(store.kinds(), ["acquire", "acquire", "release"]);
    }
}

/// A session on a memory of this name, without a thread.
async fn session(memory: &str) -> (Session, Arc<Driver>) {
    let config = config("session", LEASE);
    let (id, lease) = (config.session.clone(), config.lease);
    let (session, driver) = Driver::new(config);
    let options = StoreOptions { session: id, prefix: "p".into(), lease, sink: driver.clone() };
    let (address, _) = Address::parse(memory).expect("valid");
    driver.open(open(address.location(), options, Duration::ZERO).await.expect("there is memory"));
    (session, driver)
}

fn request(session: &Session) -> PendingAcquire {
    let terms = PermitTerms::new(1, millis(session.lease()));
    PendingAcquire::new(session, spec(session, "s", terms, Declaration::Declare(1)))
}

#[tokio::test]
async fn an_engine_that_panics_ends_its_permits_and_answers_its_callers() {
    let (session, driver) = session("memory:panics-inside").await;
    let held = request(&session).wait_here().expect("it is free");
    let mut waiting = request(&session);
    waiting.send();
    driver.step(Sending::AtOnce, |_, _| panic!("a fault"));

    assert_eq!(held.state.reason(), Some(Lost::SessionFailed));
    assert_eq!(waiting.wait_here().err(), Some(AcquireError::Ended(Ended::SessionFailed)));
    let refused = request(&session).wait_here();
    assert_eq!(refused.err(), Some(AcquireError::Ended(Ended::SessionFailed)));
    let (semaphore, operation) = (Name::new("s").expect("valid"), Operation::Inspect { max: 0 });
    let inspecting = session.call(|answer| Message::Admin {
        semaphore,
        declaration: Declaration::Stored,
        operation,
        answer,
    });
    assert_eq!(inspecting.await.err(), Some(AdminError::Ended(Ended::SessionFailed)));
    let listing = session.call(|answer| Message::List { answer });
    assert_eq!(listing.await.err(), Some(AdminError::Ended(Ended::SessionFailed)));
    assert_eq!(session.renew(&held.state).await.err(), Some(RenewError::Lost(Lost::SessionFailed)));
    assert_eq!(held.release().await.err(), Some(ReleaseError::Lost(Lost::SessionFailed)));
    assert_eq!(session.close().await.err(), Some(CloseError::Ended(Ended::SessionFailed)));
}
