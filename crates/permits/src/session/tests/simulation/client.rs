//! A client of a simulation: its engine, and what its callers hold and wait for.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::world::{Coming, LEASE, LIMIT};
use crate::protocol::{Declaration, PermitTerms};
use crate::session::callers::{Message, PermitGuard, Session};
use crate::session::engine::Engine;
use crate::session::pending_acquire::PendingAcquire;
use crate::session::shelf::{Keep, Shelf};
use crate::session::spec::{AcquireSpec, ClientTerms, Wait};
use crate::session::tests::spec;
use crate::sys::clock::{Moment, millis};

pub(super) struct Client {
    pub(super) engine: Engine,
    pub(super) session: Session,
    pub(super) messages: mpsc::UnboundedReceiver<Message>,
    pub(super) pending: Vec<PendingAcquire>,
    pub(super) held: Vec<PermitGuard>,
    pub(super) frozen: bool,
    /// The events while it was frozen.
    pub(super) backlog: Vec<Coming>,
    pub(super) connected: bool,
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
    pub(super) fn acquire(
        &mut self,
        weight: u32,
        at_least: Duration,
        wait: Wait,
        now: Moment,
    ) -> Option<PermitGuard> {
        let keeps = !self.keep.is_zero() && at_least.is_zero();
        let terms = PermitTerms {
            at_least_ms: millis(at_least),
            keep: keeps,
            ..PermitTerms::new(weight, millis(LEASE))
        };
        let declaration = Declaration::Declare(LIMIT);
        let keep = keeps.then(|| Keep { shelf: self.shelf.clone(), idle: self.keep, declaration });
        if let Some(keep) = &keep {
            let shown = Cell::new(now);
            let clock = || shown.replace(shown.get() + Duration::from_micros(1));
            let kept = keep.shelf.take(declaration, |kept| *kept == terms, clock);
            if let Some(permit) = kept {
                return Some(PermitGuard::new(permit, self.session.clone(), Some(keep.clone())));
            }
        }
        let spec = spec(&self.session, "simulated", terms, declaration);
        let spec = AcquireSpec { client: ClientTerms { wait, ..spec.client }, keep, ..spec };
        let mut pending = PendingAcquire::new(&self.session, spec);
        pending.send();
        self.pending.push(pending);
        None
    }
}
