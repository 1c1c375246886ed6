//! One semaphore, as this session sees it: what it asked for, waits for, holds and gives back.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::core::PermitState;
use super::engine::Trouble;
use super::message::{Ask, Leaving, Wait};
use super::{Map, Set, timers};
use crate::clock::Moment;
use crate::protocol::{
    AcquireRequest, Declaration, Grant, MAX_BATCH, ReleaseRequest, RenewRequest, RequestId,
};

/// A semaphore of this session. It exists as long as there is something in it.
#[derive(Default)]
pub(crate) struct Lane {
    /// Everything that is asked for, waits or is held.
    pub(crate) entries: Map<RequestId, Entry>,
    /// What is to be asked for, in the order in which it came.
    pub(crate) pending: BTreeMap<u64, RequestId>,
    /// What is to be released, in order; and whatever is, until the store has answered.
    pub(crate) releases: VecDeque<(Moment, Leaving)>,
    pub(crate) leaving: Set<RequestId>,
    /// Calls in flight: some to acquire, some to release (see `calls`); renewals may need several.
    pub(crate) acquiring: usize,
    pub(crate) releasing: usize,
    pub(crate) renewing: usize,
    pub(crate) confirming: bool,
    /// What replicas are to be asked about.
    pub(crate) unconfirmed: Vec<RequestId>,
    /// Renew everything, or only let time take effect, at the next opportunity.
    pub(crate) renew_due: bool,
    pub(crate) recheck_due: bool,
    pub(crate) renew_at: Option<Moment>,
    /// When everything in it was last renewed, if anything is; at the earliest when the first of it came.
    pub(crate) renewed_at: Option<Moment>,
    pub(crate) recheck_at: Option<Moment>,
    /// How many replies in a row have asked for a recheck at once.
    pub(crate) rechecked_at_once: u32,
    /// After a failure: send nothing before.
    pub(crate) retry_at: Option<Moment>,
    pub(crate) failures: u32,
    pub(crate) trouble: Option<Trouble>,
    /// The alarm set for the earliest of the times above.
    pub(crate) alarm: Option<timers::Key>,
    /// It stands in the engine's list of lanes to look at.
    pub(crate) dirty: bool,
    /// The shortest lease that anything in it has had.
    pub(crate) shortest: Option<Duration>,
    /// The limit, as the store last told.
    pub(crate) limit: Option<u32>,
    /// The limit that was last warned about.
    pub(crate) warned: Option<u32>,
}

/// One acquisition, from the call to the release.
pub(crate) struct Entry {
    pub(crate) ask: Ask,
    /// Its place in `pending`, also when it comes back there.
    pub(crate) order: u64,
    pub(crate) created: Moment,
    pub(crate) stage: Stage,
    /// The store may know it, or come to know it: an earlier call was sent and not answered. It may arrive at any
    /// time, also after a later one.
    pub(crate) maybe_known: bool,
    /// Just before the request was sent that, as far as is known, last extended it.
    pub(crate) extended: Moment,
    /// The server's clock when it last said that it waits, or is not there; a grant with an older token is of
    /// an earlier life, and its message was late.
    pub(crate) told_us: u64,
    /// The alarm for the end of its wait, or of its lease.
    pub(crate) alarm: Option<timers::Key>,
}

/// How far an acquisition has come.
pub(crate) enum Stage {
    /// To be asked for.
    Pending,
    /// Asked for, in a call that is in flight.
    Asked { cancelled: bool },
    /// In line.
    Waiting,
    /// Granted; the replicas are asked whether they have it.
    Unconfirmed(Grant),
    /// Granted.
    Held(Arc<PermitState>),
}

impl Lane {
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
            && self.releases.is_empty()
            && self.leaving.is_empty()
            && self.acquiring == 0
            && self.releasing == 0
            && self.renewing == 0
            && !self.confirming
    }

    /// Puts an entry (back) among those to be asked for.
    pub(crate) fn queue(&mut self, request: &RequestId) {
        if let Some(entry) = self.entries.get_mut(request) {
            entry.stage = Stage::Pending;
            self.pending.insert(entry.order, request.clone());
        }
    }

    /// Takes an entry out. Its alarm must be removed by the caller.
    pub(crate) fn take(&mut self, request: &RequestId) -> Option<Entry> {
        let entry = self.entries.remove(request)?;
        self.pending.remove(&entry.order);
        Some(entry)
    }

    pub(crate) fn leave(&mut self, now: Moment, leaving: Leaving) {
        if self.leaving.insert(leaving.request.clone()) {
            self.releases.push_back((now + leaving.lease, leaving));
        }
    }

    /// The next acquisitions to ask for: as many as go into one call, which has one declaration.
    pub(crate) fn next_asks(&mut self, sent_at: Moment) -> Option<(Declaration, Vec<AcquireRequest>)> {
        let mut batch: Option<(Declaration, Vec<AcquireRequest>)> = None;
        let fallback = self.fallback();
        while let Some(first) = self.pending.first_entry() {
            let entry = self.entries.get_mut(first.get()).expect("what is pending has an entry");
            // A waiter that the store has forgotten brings the limit under which it came in.
            let came_in = entry.told_us > 0 && entry.ask.opening.limit.is_none();
            let declaration = if came_in { fallback } else { entry.declaration() };
            let (declared, requests) = batch.get_or_insert((declaration, Vec::new()));
            if *declared != declaration || requests.len() == MAX_BATCH {
                break;
            }
            first.remove();
            entry.stage = Stage::Asked { cancelled: false };
            if !entry.maybe_known {
                // Otherwise an earlier call may be the one that counts.
                entry.extended = sent_at;
            }
            let ask = &entry.ask;
            requests.push(AcquireRequest {
                holder: ask.holder.clone(),
                request: ask.request.clone(),
                weight: ask.weight,
                lease_ms: millis(ask.lease),
                wait: ask.wait != Wait::No,
                label: ask.label.clone(),
            });
        }
        batch
    }

    /// What to ask replicas about.
    pub(crate) fn next_confirmations(&mut self) -> Vec<RenewRequest> {
        let count = self.unconfirmed.len().min(MAX_BATCH);
        let granted = |id: RequestId| {
            self.entries.get(&id).filter(|entry| matches!(entry.stage, Stage::Unconfirmed(_)))
        };
        self.unconfirmed.drain(..count).filter_map(granted).map(Entry::renewal).collect()
    }

    /// The next entries to release.
    pub(crate) fn next_releases(&mut self) -> Vec<(Moment, Leaving)> {
        let count = self.releases.len().min(MAX_BATCH);
        self.releases.drain(..count).collect()
    }

    fn renewed(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values().filter(|entry| entry.is_renewed())
    }

    /// All that needs renewal.
    pub(crate) fn renewals(&self) -> Vec<RenewRequest> {
        self.renewed().map(Entry::renewal).collect()
    }

    /// How often to renew: a third of the shortest lease among what needs it.
    pub(crate) fn renewal_interval(&self) -> Option<Duration> {
        self.renewed().map(|entry| entry.ask.lease / 3).min()
    }

    /// What is renewed in the background could not be.
    pub(crate) fn doubt(&self) {
        for entry in self.renewed() {
            if let Stage::Held(core) = &entry.stage {
                core.mark_unsure();
            }
        }
    }

    /// One waiter to ask about, so that the store lets time take effect and says when to ask again.
    pub(crate) fn first_waiter(&self) -> Option<&Entry> {
        let waiters = self.entries.values().filter(|entry| matches!(entry.stage, Stage::Waiting));
        waiters.min_by_key(|entry| entry.order)
    }

    /// What to say of the limit in calls that are not about it.
    pub(crate) fn fallback(&self) -> Declaration {
        self.limit.map_or(Declaration::Stored, Declaration::Fallback)
    }

    /// When something must be done next, if nothing happens before.
    pub(crate) fn next_time(&self) -> Option<Moment> {
        [self.renew_at, self.recheck_at, self.retry_at].into_iter().flatten().min()
    }
}

impl Entry {
    fn declaration(&self) -> Declaration {
        let opening = &self.ask.opening;
        match opening.limit {
            None => Declaration::Stored,
            Some(limit) if opening.require => Declaration::Require(limit),
            Some(limit) if opening.declared.load(Ordering::Relaxed) => Declaration::Fallback(limit),
            Some(limit) => Declaration::Declare(limit),
        }
    }

    pub(crate) fn is_renewed(&self) -> bool {
        match self.stage {
            Stage::Waiting | Stage::Unconfirmed(_) => true,
            Stage::Held(_) => self.ask.renew,
            Stage::Pending | Stage::Asked { .. } => false,
        }
    }

    pub(crate) fn renewal(&self) -> RenewRequest {
        RenewRequest {
            holder: self.ask.holder.clone(),
            request: self.ask.request.clone(),
            weight: self.ask.weight,
            lease_ms: millis(self.ask.lease),
            grant: match &self.stage {
                Stage::Held(core) => Some(core.grant),
                Stage::Unconfirmed(grant) => Some(*grant),
                _ => None,
            },
            label: self.ask.label.clone(),
        }
    }

    /// The release of this entry.
    pub(crate) fn leaving(&self) -> Leaving {
        Leaving {
            holder: self.ask.holder.clone(),
            request: self.ask.request.clone(),
            lease: self.ask.lease,
            sent_before: self.maybe_known,
            answer: None,
        }
    }
}

impl Leaving {
    pub(crate) fn request(&self) -> ReleaseRequest {
        ReleaseRequest { holder: self.holder.clone(), request: self.request.clone() }
    }
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
