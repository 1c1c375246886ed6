//! A client of a simulation: its session, what its callers hold and wait for, and what it has sent.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::ideas::Adopting;
use super::world::{Coming, LEASE, LIMIT, SIMULATED};
use crate::clock::{Moment, SetClock, millis};
use crate::error::ReleaseError;
use crate::protocol::{Command, Declaration, PermitTerms, SessionId};
use crate::session::callers::{PermitGuard, Session};
use crate::session::driver::Driver;
use crate::session::pending_acquire::PendingAcquire;
use crate::session::shelf::{Keep, Shelf};
use crate::session::spec::{AcquireSpec, ClientTerms, Wait};
use crate::session::tests::{Silent, spec};
use crate::several::{AcquireAll, PermitSet};
use permits_store::{Report, Sink as _};

/// A request of a program.
pub(super) struct Ask {
    pub(super) terms: PermitTerms,
    pub(super) wait: Wait,
    pub(super) declaration: Declaration,
    pub(super) max_hold: Option<Duration>,
}

impl Default for Ask {
    fn default() -> Self {
        Self {
            terms: PermitTerms::new(1, millis(LEASE)),
            wait: Wait::Forever,
            declaration: Declaration::Declare(LIMIT),
            max_hold: None,
        }
    }
}

/// A request to the store, on its way.
#[derive(Debug, Clone)]
pub(super) struct Sent {
    pub(super) id: u64,
    pub(super) command: Command,
    /// How many replicas are asked. That call goes by a connection of its own.
    pub(super) replicas: u32,
    /// Sent at this time by the session's clock. The timeout ends by the same clock.
    pub(super) at: Moment,
    pub(super) until: Moment,
}

impl Sent {
    pub(super) fn timeout(&self) -> Duration {
        self.until.since(self.at)
    }
}

/// A waker that notes that a task of the program has to run again.
#[derive(Default)]
pub(super) struct Woken(AtomicBool);

impl Woken {
    pub(super) fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

pub(super) struct Client {
    pub(super) id: SessionId,
    pub(super) driver: Arc<Driver>,
    pub(super) session: Session,
    pub(super) clock: SetClock,
    /// The client's way to the store.
    pub(super) store: Arc<Silent>,
    /// The client's requests without an outcome, by number.
    pub(super) calls: BTreeMap<u64, Sent>,
    pub(super) woken: Arc<Woken>,
    pub(super) pending: Vec<PendingAcquire>,
    pub(super) held: Vec<PermitGuard>,
    pub(super) releasing: Vec<BoxFuture<'static, Result<(), ReleaseError>>>,
    /// The sets that the client acquires, and the sets that it holds.
    pub(super) acquiring: Vec<AcquireAll>,
    pub(super) sets: Vec<PermitSet>,
    pub(super) adopting: Vec<Adopting>,
    pub(super) frozen: bool,
    /// The events that came while it was frozen.
    pub(super) backlog: Vec<Coming>,
    pub(super) connected: bool,
    /// The last report was that the store cannot be reached.
    pub(super) is_down: bool,
    /// The last call has failed, and its callers still wait.
    pub(super) has_failed: bool,
    /// The time of the last return of a call, by the client's clock.
    pub(super) heard_at: Moment,
    /// True if the store had not answered the engine for some time when it last checked the times of callers.
    pub(super) was_deaf: bool,
    /// Calls on one connection arrive in their order.
    pub(super) last_arrival: Moment,
    /// Replies and recalls arrive in order, too; and all messages, in a world where they come in order.
    pub(super) last_reply: Moment,
    pub(super) last_recall: Moment,
    /// The time for which the client keeps permits; 0 if it does not.
    pub(super) keep: Duration,
    pub(super) shelf: Arc<Shelf>,
}

impl Client {
    pub(super) fn report(&self, report: Report) {
        self.driver.report(&mut vec![report]);
    }

    /// Acquires a permit. Returns it if the client has kept it. Otherwise the request is sent in its turn.
    pub(super) fn acquire(&mut self, ask: Ask) -> Option<PermitGuard> {
        let Ask { mut terms, wait, declaration, max_hold } = ask;
        terms.keep =
            !self.keep.is_zero() && terms.at_least_ms == 0 && max_hold.is_none() && !terms.is_keyed();
        let keep = Keep { shelf: self.shelf.clone(), idle: self.keep, declaration };
        let keep = terms.keep.then(|| keep.within(terms.lease()));
        if let Some(keep) = &keep {
            let kept = keep.shelf.take(declaration, |kept| *kept == terms, || self.session.now());
            if let Some(permit) = kept {
                return Some(PermitGuard::new(permit, self.session.clone(), Some(keep.clone())));
            }
        }
        let spec = spec(&self.session, SIMULATED, terms, declaration);
        let client = ClientTerms { wait, max_hold, ..spec.client };
        let spec = AcquireSpec { client, keep, ..spec };
        self.pending.push(PendingAcquire::new(&self.session, spec));
        None
    }
}
