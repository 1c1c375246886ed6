//! [`Fixture`], with a server, a proxy before it, and an observer. It brings an acquisition to its stage, and
//! checks that nothing of it is left.

use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use permits::{AcquireError, AcquireOptions, Ended, Limit, Lost, Recovery};
use permits_testkit::sound::{Named as _, Succeeds as _};
use permits_testkit::{HANGS, Proxy, Server, wait};

use crate::cancellation::user::User;
use crate::cancellation::{FIRST, LEASE, LONGEST_WAIT, Stage, Subject, UNITS};

/// A server, a proxy before it, and an observer that connects directly to the server.
pub(crate) struct Fixture {
    observer: permits::Client,
    blocker: Mutex<Option<permits::Permit>>,
    pub(crate) proxy: Proxy,
    server: Server,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        let server = Server::start();
        let proxy = Proxy::start(server.address());
        let builder = permits::Client::builder(server.url()).recovery(Recovery::Off).lease(LEASE);
        let observer = builder.connect().wait().expect("the server is up");
        // The server learns the scripts, so that each request after this has one reply.
        let permit = observer.named("exports", UNITS).acquire().wait().expect("it is free");
        permit.release().wait().expect("it is held");
        Self { observer, blocker: Mutex::default(), proxy, server }
    }

    /// A client that reaches the server through the proxy.
    pub(crate) async fn client(&self, lease: Duration) -> permits::Client {
        let builder = permits::Client::builder(self.proxy.url()).recovery(Recovery::Off).lease(lease);
        builder.connect().succeeds().await
    }

    pub(crate) fn semaphore(&self) -> permits::Semaphore {
        self.observer.named("exports", UNITS)
    }

    /// Acquires all units, so that other requests wait.
    pub(crate) fn block(&self) {
        let permit =
            self.semaphore().acquire_with(AcquireOptions::new().weight(UNITS)).wait().expect("all is free");
        *self.blocker.lock().expect("no panic") = Some(permit);
    }

    /// Releases the units of [`Fixture::block`].
    pub(crate) fn unblock(&self) {
        if let Some(permit) = self.blocker.lock().expect("no panic").take() {
            permit.release().wait().expect("it is held");
        }
    }

    /// The token of the grant that the store has made, other than the grant of [`Fixture::block`].
    pub(crate) fn token(&self) -> Option<u64> {
        let seen = self.semaphore().inspect().wait().expect("the server is up");
        seen.holders.iter().find(|holder| holder.weight == 1).map(|holder| holder.token)
    }

    fn is_blocked(&self) -> bool {
        self.blocker.lock().expect("no panic").is_some()
    }

    #[track_caller]
    pub(crate) fn settles(&self, held: u64, waiting: u64) {
        Self::semaphore_settles(&self.semaphore(), held, waiting);
    }

    #[track_caller]
    fn semaphore_settles(semaphore: &permits::Semaphore, held: u64, waiting: u64) {
        let mut seen = None;
        let settled = wait::until(|| {
            let now = semaphore.inspect().wait().expect("the server is up");
            let settled = (now.held, now.waiting) == (held, waiting);
            seen = Some(now);
            settled
        });
        assert!(settled, "not {held} held and {waiting} waiting, but {seen:?}");
    }

    /// Starts to acquire a set, and stops it with the grant of the first permit, before the second is
    /// requested.
    fn acquire_first(&self, user: &mut User, options: AcquireOptions) {
        let first = self.observer.named(FIRST, UNITS);
        let permit = first.acquire_with(AcquireOptions::new().weight(UNITS)).wait().expect("all is free");
        user.start(options);
        Self::semaphore_settles(&first, UNITS.into(), 1);
        user.block_on(user.first().inspect()).expect("the server is up");
        user.gate.shut();
        permit.release().wait().expect("it is held");
        user.gate.await_stopped_poll();
    }

    /// Starts an acquisition and brings it to `stage`.
    pub(crate) fn reach(&self, stage: Stage, user: &mut User, options: AcquireOptions) {
        if user.subject == Subject::LastOfASet {
            self.acquire_first(user, options.clone());
        }
        match stage {
            Stage::BeforeTheFirstPoll if user.subject == Subject::LastOfASet => {}
            Stage::BeforeTheFirstPoll => {
                user.gate.shut();
                user.start(options);
                user.gate.await_stopped_poll();
            }
            Stage::BeforeItIsSent => {
                self.proxy.refuse(true);
                // Both connections have been retried, so the session has noticed.
                assert!(wait::until(|| self.proxy.refused() > 4));
                user.start(options);
                user.gate.await_poll();
            }
            Stage::OnItsWay => {
                self.proxy.stall(true);
                user.start(options);
                user.gate.await_poll();
            }
            Stage::GrantedWithTheReplyOnItsWay => {
                self.proxy.delay_replies(Duration::MAX / 4);
                user.start(options);
                self.settles(1, 0);
            }
            Stage::QueuedWithTheReplyOnItsWay => {
                self.block();
                self.proxy.delay_replies(Duration::MAX / 4);
                user.start(options);
                self.settles(UNITS.into(), 1);
            }
            Stage::Queued => self.wait_in_queue(user, options),
            Stage::GrantedWithTheEventOnItsWay => {
                self.wait_in_queue(user, options);
                self.proxy.delay_replies(Duration::MAX / 4);
                self.unblock();
                self.settles(1, 0);
            }
            Stage::GrantedAndNotDelivered => {
                self.wait_in_queue(user, options);
                user.gate.shut();
                self.unblock();
                user.gate.await_stopped_poll();
            }
            Stage::Held => {
                user.start(options);
                user.is_answered();
            }
        }
    }

    fn wait_in_queue(&self, user: &mut User, options: AcquireOptions) {
        self.block();
        user.start(options);
        self.settles(UNITS.into(), 1);
        // The reply to the inspection follows that to the acquisition, so the session has both.
        user.block_on(user.semaphore.inspect()).expect("the server is up");
    }

    pub(crate) fn let_it_time_out(&self, stage: Stage, user: &User) {
        match stage {
            // The timeout began with the first poll of the set, and the second request is not sent any more.
            Stage::BeforeTheFirstPoll if user.subject == Subject::LastOfASet => {
                thread::sleep(LONGEST_WAIT);
                user.gate.open();
                let error =
                    AcquireError::TimedOut { waited: LONGEST_WAIT, inspection: None, retry_after: None };
                assert_eq!(user.result().map(drop), Err(error));
            }
            // The timeout begins with the first poll; a grant before its end stands.
            Stage::BeforeTheFirstPoll | Stage::GrantedAndNotDelivered | Stage::Held => {
                thread::sleep(LONGEST_WAIT + LONGEST_WAIT / 10);
                user.gate.open();
                let permit = user.result().expect("it is granted in time");
                assert!(permit.is_held());
            }
            Stage::Queued | Stage::GrantedWithTheEventOnItsWay => match user.result() {
                Err(AcquireError::TimedOut { waited, .. }) => assert!(waited >= LONGEST_WAIT, "{waited:?}"),
                other => panic!("no timeout: {other:?}"),
            },
            // As far as the caller knows, the store is silent.
            Stage::BeforeItIsSent
            | Stage::OnItsWay
            | Stage::GrantedWithTheReplyOnItsWay
            | Stage::QueuedWithTheReplyOnItsWay => match user.result() {
                Err(AcquireError::Store(error)) if error.is_temporary() => {}
                other => panic!("no error of the store: {other:?}"),
            },
        }
    }

    pub(crate) fn close(&self, stage: Stage, user: &User) {
        let runtime = user.runtime.as_ref().expect("it is not dropped");
        let closing = runtime.spawn(user.client.clone().close());
        match stage {
            // The set is checked again before its caller has it, and its first permit is lost.
            Stage::GrantedAndNotDelivered if user.subject == Subject::LastOfASet => {
                user.block_on(closing).expect("closing does not panic").expect("the server is up");
                user.gate.open();
                assert_eq!(user.result().map(drop), Err(AcquireError::Ended(Ended::Closed)));
            }
            Stage::GrantedAndNotDelivered | Stage::Held => {
                user.block_on(closing).expect("closing does not panic").expect("the server is up");
                user.gate.open();
                let permit = user.result().expect("it was granted before");
                assert!(!permit.is_held());
                assert_eq!(user.block_on(permit.lost()), Lost::Closed);
            }
            _ => {
                if stage == Stage::BeforeTheFirstPoll {
                    assert!(wait::until(|| closing.is_finished()));
                }
                user.gate.open();
                // The request ends at once, in spite of the fault.
                assert_eq!(user.result().map(drop), Err(AcquireError::Ended(Ended::Closed)));
                self.heal();
                user.block_on(closing).expect("closing does not panic").expect("the server is up");
            }
        }
    }

    /// Ends every fault.
    pub(crate) fn heal(&self) {
        self.proxy.stall(false);
        self.proxy.refuse(false);
        self.proxy.delay_replies(Duration::ZERO);
    }

    /// Asserts that no unit is held, the queue is empty, another client can acquire all units, and only idle
    /// state is left.
    pub(crate) fn all_units_come_back(&self) {
        if self.is_blocked() {
            // Waits before the units are free, so that the request has left the queue without a grant.
            self.settles(UNITS.into(), 0);
            self.unblock();
        }
        for name in self.observer.list().wait().expect("the server is up") {
            let semaphore = self.observer.named(&name, Limit::Stored);
            let all = AcquireOptions::new().weight(UNITS).timeout(HANGS);
            let permit = semaphore.acquire_with(all).wait().expect("all units are released");
            permit.release().wait().expect("it is held");
            Self::semaphore_settles(&semaphore, 0, 0);
        }
        // A delayed request may arrive only now, be granted, and be released.
        let mut left = Vec::new();
        let only_state = wait::until(|| {
            let keys = self.server.command(&["KEYS", "*"]);
            left = keys.array().iter().map(|key| key.text().to_owned()).collect();
            left.iter().all(|key| key.ends_with(":state"))
        });
        assert!(only_state, "{left:?} are left");
        for key in &left {
            assert!(self.server.command(&["PTTL", key]).int() > 0, "idle state expires");
        }
    }
}
