//! A client of a simulation: its engine, and what its callers hold and wait for.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::ideas::Adopting;
use super::world::{Coming, LEASE, LIMIT, SIMULATED};
use crate::clock::{Moment, millis};
use crate::protocol::{Declaration, PermitTerms};
use crate::session::callers::{Message, PermitGuard, Session};
use crate::session::engine::Engine;
use crate::session::pending_acquire::PendingAcquire;
use crate::session::shelf::{Keep, Shelf};
use crate::session::spec::{AcquireSpec, ClientTerms, Wait};
use crate::session::tests::spec;
use crate::several::{AcquireAll, PermitSet};

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

pub(super) struct Client {
    pub(super) engine: Engine,
    pub(super) session: Session,
    pub(super) messages: mpsc::UnboundedReceiver<Message>,
    pub(super) pending: Vec<PendingAcquire>,
    pub(super) held: Vec<PermitGuard>,
    /// Sets that it acquires, and that it holds.
    pub(super) acquiring: Vec<AcquireAll>,
    pub(super) sets: Vec<PermitSet>,
    pub(super) adopting: Vec<Adopting>,
    pub(super) frozen: bool,
    /// The events while it was frozen.
    pub(super) backlog: Vec<Coming>,
    pub(super) connected: bool,
    /// The last report was that the store cannot be reached.
    pub(super) is_down: bool,
    /// The last call has failed, and its callers still wait.
    pub(super) has_failed: bool,
    /// When a call last returned, by its clock.
    pub(super) heard_at: Moment,
    /// The store had not answered it for some time when its engine last checked the times of callers.
    pub(super) was_deaf: bool,
    /// Calls on one connection arrive in their order.
    pub(super) last_arrival: Moment,
    /// So do replies and recalls.
    pub(super) last_reply: Moment,
    pub(super) last_recall: Moment,
    /// The time for which it keeps permits; 0 if it keeps none.
    pub(super) keep: Duration,
    pub(super) shelf: Arc<Shelf>,
}

impl Client {
    /// Acquires a permit at `now` of its clock. Returns it if the client has kept it.
    pub(super) fn acquire(&mut self, ask: Ask, now: Moment) -> Option<PermitGuard> {
        let Ask { mut terms, wait, declaration, max_hold } = ask;
        terms.keep =
            !self.keep.is_zero() && terms.at_least_ms == 0 && max_hold.is_none() && !terms.is_keyed();
        let keep = Keep { shelf: self.shelf.clone(), idle: self.keep, declaration };
        let keep = terms.keep.then(|| keep.within(terms.lease()));
        if let Some(keep) = &keep {
            let shown = Cell::new(now);
            let clock = || shown.replace(shown.get() + Duration::from_micros(1));
            let kept = keep.shelf.take(declaration, |kept| *kept == terms, clock);
            if let Some(permit) = kept {
                return Some(PermitGuard::new(permit, self.session.clone(), Some(keep.clone())));
            }
        }
        let spec = spec(&self.session, SIMULATED, terms, declaration);
        let client = ClientTerms { wait, max_hold, ..spec.client };
        let spec = AcquireSpec { client, keep, ..spec };
        let mut pending = PendingAcquire::new(&self.session, spec);
        pending.send();
        self.pending.push(pending);
        None
    }
}
