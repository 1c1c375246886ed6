//! The outages of one semaphore. Each kind of call has its own.
//!
//! Calls of one kind may fail for hours while the others succeed: confirmations have a connection of their
//! own, which a server at its `maxclients` refuses, while the connection for everything else works. So an
//! outage belongs to the kind of call that failed. It ends when such a call succeeds, or when no request
//! needs such a call any more: a failure that nobody repeats says nothing about the store a minute later. But
//! until the store replies on the same connection, it still explains why a waiting request has heard nothing:
//! see [`Outages::unheard`].
//!
//! Calls that a caller asks for one by one ([`CallKind::Single`]) have no outage here. If such a call is
//! repeated, it keeps its own outage ([`SingleCall`](crate::session::single_call::SingleCall)). A renewal
//! that the program asked for is not repeated.

use crate::acquisition::Stage;
use crate::clock::Moment;
use crate::session::call::CallKind;
use crate::session::timers::Outage;
use permits_store::StoreError;

/// See the module.
#[derive(Default)]
pub(super) struct Outages {
    pub(super) acquiring: Option<Outage>,
    pub(super) releasing: Option<Outage>,
    pub(super) renewing: Option<Outage>,
    pub(super) confirming: Option<Outage>,
    /// An outage of the session's own connection that ended because no request needed its call any more, and
    /// the store has not replied since. For example, a request that does not wait fails for lack of an
    /// answer, and beside it another request waits in line. If that one times out next, the reason is that
    /// the store was silent, not that the line was long.
    pub(super) unheard: Option<Outage>,
}

impl Outages {
    fn of(&mut self, kind: &CallKind) -> Option<&mut Option<Outage>> {
        match kind {
            CallKind::Acquire(_) => Some(&mut self.acquiring),
            CallKind::Release(_) => Some(&mut self.releasing),
            CallKind::Renew(_) => Some(&mut self.renewing),
            CallKind::Confirm(_) => Some(&mut self.confirming),
            CallKind::Single(_) | CallKind::Inspect => None,
        }
    }

    /// Notes that a call has returned, and the error if it failed.
    pub(super) fn note(&mut self, kind: &CallKind, failed: Option<&StoreError>, now: Moment) {
        let is_answer = failed.is_none_or(|error| !error.is_temporary());
        if is_answer && !matches!(kind, CallKind::Confirm(_)) {
            self.unheard = None;
        }
        let Some(outage) = self.of(kind) else { return };
        match failed {
            // A waiter has to learn why its renewals fail, although the store answers.
            Some(error) if error.is_temporary() || matches!(kind, CallKind::Renew(_)) => {
                Outage::record(outage, error.clone(), now);
            }
            Some(_) => {}
            None => *outage = None,
        }
    }

    /// The outage that keeps a request of this stage from its next stage: the outage of the calls that it
    /// waits for.
    pub(super) fn at(&self, stage: Stage) -> &Option<Outage> {
        match stage {
            Stage::Unsent | Stage::InFlight => &self.acquiring,
            Stage::Waiting => &self.renewing,
            Stage::Unconfirmed(_) => &self.confirming,
            Stage::Withdrawn { .. } | Stage::Held(_) | Stage::Ended => &None,
        }
    }

    /// The longest outage that a request of this stage may blame when it times out: the outage of its own
    /// calls, or of any call on the connection that it uses.
    pub(super) fn to_blame(&self, stage: Stage) -> Option<&Outage> {
        let Self { acquiring, releasing, renewing, confirming: _, unheard } = self;
        let of_the_store = [acquiring, releasing, renewing, unheard].into_iter().flatten();
        self.at(stage).iter().chain(of_the_store).min_by_key(|outage| outage.since)
    }

    /// Notes an outage that ends although the store has not replied.
    pub(super) fn end_unheard(unheard: &mut Option<Outage>, ended: Option<Outage>) {
        let since = unheard.as_ref().map(|outage| outage.since);
        if let Some(ended) = ended.filter(|ended| since.is_none_or(|since| ended.since < since)) {
            *unheard = Some(ended);
        }
    }

    pub(super) fn longest(&self) -> Option<&Outage> {
        let Self { acquiring, releasing, renewing, confirming, unheard: _ } = self;
        let all = [acquiring, releasing, renewing, confirming];
        all.into_iter().flatten().min_by_key(|outage| outage.since)
    }
}
