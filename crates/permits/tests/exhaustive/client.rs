//! A client as the session engine is one: what it asks for, when it asks again, and until when it believes that
//! it holds. An abstraction of `src/session`, stage by stage and answer by answer; where the engine picks a
//! moment, every moment is possible here.

use permits::protocol::{AcquireOutcome, Grant, RenewOutcome};

use super::scope::Manners;

/// What a call is about. A client has at most one of each kind on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Acquire,
    Renew,
    Release,
}

pub(crate) const KINDS: [Kind; 3] = [Kind::Acquire, Kind::Renew, Kind::Release];

/// A call on its way to the store, or back.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) request: u8,
    /// What a renewal says that it holds.
    pub(crate) grant: Option<Grant>,
    pub(crate) sent: u32,
    /// On its way back.
    pub(crate) answer: Option<Told>,
}

/// What the store answered, and when, by its clock, and in which life.
#[derive(Debug, Clone)]
pub(crate) struct Told {
    pub(crate) answer: Answer,
    pub(crate) now_us: u64,
    pub(crate) run: u32,
}

#[derive(Debug, Clone)]
pub(crate) enum Answer {
    Acquired(AcquireOutcome),
    Renewed(RenewOutcome),
    Released,
}

/// How far an acquisition has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    Pending,
    Asked { cancelled: bool },
    Waiting,
    Held { grant: Grant, until: u32 },
}

/// An acquisition.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) request: u8,
    pub(crate) stage: Stage,
    pub(crate) maybe_known: bool,
    /// Just before the request was sent that, as far as is known, last extended it.
    pub(crate) extended: u32,
    /// When a renewal was last sent.
    pub(crate) renewed: u32,
    pub(crate) told_us: u64,
    /// The life of the server in which it last answered about this.
    pub(crate) heard: u32,
}

/// What is to be released, and until when that is tried.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Leaving {
    pub(crate) request: u8,
    pub(crate) until: u32,
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Client {
    /// The last request made. Requests are numbered from 1.
    pub(crate) made: u8,
    /// Requests up to this one are of a session that has crashed.
    pub(crate) crashed: u8,
    pub(crate) entry: Option<Entry>,
    pub(crate) leaving: Vec<Leaving>,
    pub(crate) calls: [Option<Call>; KINDS.len()],
}

/// What all clients know of the world.
#[derive(Clone, Copy)]
pub(crate) struct Known {
    pub(crate) now: u32,
    pub(crate) lease: u32,
    pub(crate) manners: Manners,
}

impl Client {
    pub(crate) fn call(&self, kind: Kind) -> Option<&Call> {
        self.calls[kind as usize].as_ref()
    }

    /// Whether it has nothing on its way, and has sent what it would have by now.
    pub(crate) fn is_punctual(&self, now: u32) -> bool {
        let stands = self.entry.as_ref().is_none_or(|entry| match entry.stage {
            Stage::Pending | Stage::Asked { .. } => false,
            Stage::Waiting | Stage::Held { .. } => entry.renewed == now,
        });
        stands && self.leaving.is_empty() && self.calls.iter().all(Option::is_none)
    }

    fn send(&mut self, kind: Kind, request: u8, grant: Option<Grant>, now: u32) {
        self.calls[kind as usize] = Some(Call { request, grant, sent: now, answer: None });
    }

    pub(crate) fn acquire(&mut self, known: Known) {
        self.made += 1;
        self.entry = Some(Entry {
            request: self.made,
            stage: Stage::Pending,
            maybe_known: false,
            extended: known.now,
            renewed: known.now,
            told_us: 0,
            heard: 0,
        });
        self.ask(known);
    }

    /// Sends what is pending.
    pub(crate) fn ask(&mut self, known: Known) {
        let Some(entry) = &mut self.entry else { return };
        entry.stage = Stage::Asked { cancelled: false };
        if !entry.maybe_known {
            entry.extended = known.now;
        }
        let request = entry.request;
        self.send(Kind::Acquire, request, None, known.now);
    }

    pub(crate) fn renew(&mut self, known: Known) {
        let Some(entry) = &mut self.entry else { return };
        let grant = if let Stage::Held { grant, .. } = entry.stage { Some(grant) } else { None };
        entry.renewed = known.now;
        let request = entry.request;
        self.send(Kind::Renew, request, grant, known.now);
    }

    /// Lets go of what it holds.
    pub(crate) fn release(&mut self, known: Known) {
        if let Some(entry) = self.entry.take() {
            self.leave(entry.request, known);
            if self.call(Kind::Release).is_none() {
                self.send_release(known);
            }
        }
    }

    pub(crate) fn send_release(&mut self, known: Known) {
        if let Some(leaving) = self.leaving.first() {
            self.send(Kind::Release, leaving.request, None, known.now);
        }
    }

    fn leave(&mut self, request: u8, known: Known) {
        if !self.leaving.iter().any(|leaving| leaving.request == request) {
            self.leaving.push(Leaving { request, until: known.now + known.lease });
        }
    }

    /// The caller does not wait any more.
    pub(crate) fn cancel(&mut self, known: Known) {
        let Some(entry) = &mut self.entry else { return };
        match entry.stage {
            Stage::Asked { .. } => entry.stage = Stage::Asked { cancelled: true },
            Stage::Pending if !entry.maybe_known => self.entry = None,
            Stage::Pending | Stage::Waiting => {
                let request = entry.request;
                self.entry = None;
                self.leave(request, known);
            }
            Stage::Held { .. } => {}
        }
    }

    /// Time has passed. What has reached its deadline is lost, and released when its work has stopped.
    pub(crate) fn pass(&mut self, known: Known) {
        if let Some(entry) = &self.entry
            && matches!(entry.stage, Stage::Held { until, .. } if until <= known.now)
        {
            let request = entry.request;
            self.entry = None;
            self.leave(request, known);
        }
        let sent = self.call(Kind::Release).map(|call| call.request);
        self.leaving.retain(|leaving| known.now < leaving.until || sent == Some(leaving.request));
    }

    /// A message that a request was granted.
    pub(crate) fn hear(&mut self, request: u8, grant: Grant, known: Known) {
        match self.entry.as_ref().filter(|entry| entry.request == request) {
            None => self.leave(request, known),
            Some(entry) if grant.token <= entry.told_us => {}
            Some(Entry { stage: Stage::Held { .. } | Stage::Asked { cancelled: true }, .. }) => {}
            Some(_) => self.hand_out(grant, known),
        }
    }

    fn hand_out(&mut self, grant: Grant, known: Known) {
        let Some(entry) = &mut self.entry else { return };
        let from = match known.manners {
            Manners::DatesFromReply => known.now,
            Manners::Sound | Manners::ForgetsLateCalls => entry.extended,
        };
        let until = from + known.lease;
        entry.stage = if until <= known.now { Stage::Waiting } else { Stage::Held { grant, until } };
    }

    /// A call has come back.
    pub(crate) fn on_return(&mut self, kind: Kind, known: Known) {
        let Some(Call { request, sent, answer: Some(told), .. }) = self.calls[kind as usize].take() else {
            return;
        };
        match told.answer {
            Answer::Acquired(ref acquired) => self.on_acquired(request, acquired, sent, &told, known),
            Answer::Renewed(ref renewed) => self.on_renewed(request, renewed, sent, &told, known),
            Answer::Released => self.leaving.retain(|leaving| leaving.request != request),
        }
    }

    fn entry_of(&mut self, request: u8) -> Option<&mut Entry> {
        self.entry.as_mut().filter(|entry| entry.request == request)
    }

    fn on_acquired(&mut self, request: u8, acquired: &AcquireOutcome, sent: u32, told: &Told, known: Known) {
        let Some(entry) = self.entry_of(request) else { return };
        entry.maybe_known &= known.manners != Manners::ForgetsLateCalls;
        entry.heard = told.run;
        match (entry.stage, acquired) {
            (Stage::Held { .. } | Stage::Pending | Stage::Waiting, _) => {}
            (Stage::Asked { .. }, AcquireOutcome::Refused(_)) => self.entry = None,
            (Stage::Asked { cancelled: true }, _) => {
                self.entry = None;
                self.leave(request, known);
            }
            (Stage::Asked { cancelled: false }, AcquireOutcome::Granted(grant)) => {
                entry.extended = sent;
                self.hand_out(*grant, known);
            }
            (Stage::Asked { cancelled: false }, AcquireOutcome::Waiting { .. }) => {
                entry.extended = sent;
                entry.told_us = told.now_us;
                entry.stage = Stage::Waiting;
            }
        }
    }

    fn on_renewed(&mut self, request: u8, renewed: &RenewOutcome, sent: u32, told: &Told, known: Known) {
        let Some(entry) = self.entry_of(request) else { return };
        entry.heard = told.run;
        match (&mut entry.stage, renewed) {
            (Stage::Held { until, .. }, RenewOutcome::Held | RenewOutcome::Granted(_)) => {
                *until = (*until).max(sent + known.lease);
                entry.extended = sent;
            }
            (Stage::Held { .. }, RenewOutcome::RetryLater | RenewOutcome::Waiting { .. }) => {}
            (Stage::Held { .. }, RenewOutcome::Lost | RenewOutcome::ExceedsLimit) => {
                self.entry = None;
                self.leave(request, known);
            }
            (Stage::Waiting, RenewOutcome::Granted(grant)) => {
                entry.extended = sent;
                self.hand_out(*grant, known);
            }
            (Stage::Waiting, RenewOutcome::Waiting { .. }) => {
                entry.extended = sent;
                entry.told_us = told.now_us;
            }
            (Stage::Waiting, RenewOutcome::ExceedsLimit) => self.entry = None,
            (Stage::Waiting, RenewOutcome::Held | RenewOutcome::Lost | RenewOutcome::RetryLater) => {
                entry.told_us = told.now_us;
                entry.stage = Stage::Pending;
            }
            (Stage::Pending | Stage::Asked { .. }, _) => {}
        }
    }

    /// A call's outcome is not known and will not be: a later one has to tell.
    pub(crate) fn on_failure(&mut self, kind: Kind, known: Known) {
        let Some(call) = self.calls[kind as usize].take() else { return };
        if kind == Kind::Release {
            self.leaving.retain(|leaving| leaving.request != call.request || known.now < leaving.until);
        }
        if kind != Kind::Acquire {
            return;
        }
        let Some(entry) = self.entry_of(call.request) else { return };
        entry.maybe_known = true;
        match entry.stage {
            Stage::Asked { cancelled: false } => entry.stage = Stage::Pending,
            Stage::Asked { cancelled: true } => {
                self.entry = None;
                self.leave(call.request, known);
            }
            Stage::Pending | Stage::Waiting | Stage::Held { .. } => {}
        }
    }
}
