//! A client: the library's own [`Acquisition`], and the calls, replies and releases around it. What a client
//! decides is decided there; where the session picks a moment, every moment is possible here.

use std::time::Duration;

use permits_core::acquisition::{Acquisition, Effect, Failure, Input, ReplyTimes, Stage, Terms};
use permits_core::clock::Moment;
use permits_core::keeping::{Keeping, Notice, is_token_due, is_token_left};
use permits_core::protocol::{AcquireOutcome, EventKind, Grant, RenewOutcome};
use permits_core::timing::lease_until;

use super::scope::ClientBehaviour;

/// A client's clock is slow by 1 %, as much as the margin of a lease allows: it shows this for each tick.
const SHOWN_PER_TICK_US: u64 = super::world::TICK_MS * 990;

/// The operation of a call. A client has at most one call of each kind in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Acquire,
    Renew,
    Release,
    /// A renewal whose reply says how many replicas have it: by a connection of its own.
    Confirm,
    Adopt,
}

pub(crate) const KINDS: [Kind; 5] = [Kind::Acquire, Kind::Renew, Kind::Release, Kind::Confirm, Kind::Adopt];

/// The name of a holder: the client and its request that acquired the permit first.
pub(crate) type Origin = (usize, u8);

/// The terms of a permit that its holder may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OwnTerms {
    pub(crate) weight: u32,
    pub(crate) lease_ms: u64,
    /// The number of changes of the lease.
    pub(crate) version: u32,
}

/// A call on its way to the store, or back.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) request: u8,
    pub(crate) origin: Origin,
    pub(crate) terms: OwnTerms,
    /// The grant that a renewal or an adoption names.
    pub(crate) grant: Option<Grant>,
    /// The client that had the permit which it adopts, and its request.
    pub(crate) adopts: Option<(usize, u8)>,
    pub(crate) sent: u32,
    /// The reply on its way back.
    pub(crate) reply: Option<Reply>,
}

/// A reply: the outcome, the server's time, and the server's run.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) outcome: Outcome,
    pub(crate) now_us: u64,
    pub(crate) run: u32,
    /// The reply says that permits may be kept.
    pub(crate) keepable: bool,
    /// The limit that the reply names.
    pub(crate) limit: u32,
}

#[derive(Debug, Clone)]
pub(crate) enum Outcome {
    Acquired(AcquireOutcome),
    Renewed(RenewOutcome),
    /// True if the store had it.
    Released(bool),
    Adopted(bool),
}

/// An acquisition, and what the session keeps beside it.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) request: u8,
    pub(crate) origin: Origin,
    pub(crate) terms: OwnTerms,
    /// The session renews it while it is held.
    pub(crate) auto_renew: bool,
    /// The session may have been forgotten, and renews it once although its holder does that.
    pub(crate) is_claimed: bool,
    /// Replicas have confirmed the grant.
    pub(crate) confirmed: bool,
    pub(crate) acquisition: Acquisition,
    /// The deadline of the permit.
    pub(crate) until: u32,
    /// The time at which a renewal was last sent.
    pub(crate) renewed: u32,
    /// The run of the server that last replied about it.
    pub(crate) replied: u32,
    /// The holder has released the permit, and the client keeps it.
    pub(crate) kept: bool,
    /// The number of grants by the client itself.
    pub(crate) granted_again: u32,
}

impl Entry {
    pub(crate) fn stage(&self) -> Stage {
        self.acquisition.stage
    }

    /// The grant that the client believes to hold, and its deadline.
    pub(crate) fn held(&self) -> Option<(Grant, u32)> {
        match self.stage() {
            Stage::Held(grant) => Some((grant, self.until)),
            _ => None,
        }
    }

    /// Token and slot, as its holder sees them.
    pub(crate) fn granted(&self) -> Option<Grant> {
        let (Grant { token, slot }, _) = self.held()?;
        Some(Grant { token: token + u64::from(self.granted_again), slot })
    }

    /// Returns true if the session renews it.
    pub(crate) fn is_renewed(&self) -> bool {
        self.acquisition.needs_renewal(self.auto_renew || self.is_claimed)
    }

    pub(super) fn lease(&self) -> Duration {
        Duration::from_millis(self.terms.lease_ms)
    }
}

/// A release to send, until a moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Release {
    pub(crate) request: u8,
    pub(crate) origin: Origin,
    pub(crate) until: u32,
    /// The release is in flight.
    pub(crate) sent: bool,
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Client {
    /// The last request made. Requests are numbered from 1.
    pub(crate) made: u8,
    /// Requests up to this one are of a session that has crashed.
    pub(crate) crashed: u8,
    pub(crate) entry: Option<Entry>,
    pub(crate) releases: Vec<Release>,
    pub(crate) calls: [Option<Call>; KINDS.len()],
    pub(crate) keeping: Keeping,
    /// A request that was handed over while a renewal of it was in flight.
    pub(crate) handed_over: Option<u8>,
}

/// The circumstances of a client.
#[derive(Clone, Copy)]
pub(crate) struct Circumstances {
    pub(crate) now: u32,
    /// The client's number.
    pub(crate) client: usize,
    /// The weight of its requests.
    pub(crate) weight: u32,
    /// The lease of its requests.
    pub(crate) lease: u32,
    /// Replicas have to confirm each grant.
    pub(crate) replicas: bool,
    /// The holder of a permit renews it.
    pub(crate) by_program: bool,
    /// Clients keep what they release.
    pub(crate) keep: bool,
    pub(crate) behaviour: ClientBehaviour,
}

impl Circumstances {
    fn terms(&self) -> Terms {
        let replicated = self.replicas && self.behaviour != ClientBehaviour::AsksNoReplicas;
        Terms { lease: Duration::from_millis(self.own_terms().lease_ms), replicated }
    }

    fn own_terms(&self) -> OwnTerms {
        let lease_ms = u64::from(self.lease) * super::world::TICK_MS;
        OwnTerms { weight: self.weight, lease_ms, version: 0 }
    }
}

/// The client's clock at a tick.
pub(super) fn moment(tick: u32) -> Moment {
    Moment::from_micros(u64::from(tick) * SHOWN_PER_TICK_US)
}

/// The first tick at which the client's clock has reached `moment`.
pub(crate) fn tick(moment: Moment) -> u32 {
    u32::try_from(moment.as_micros().div_ceil(SHOWN_PER_TICK_US)).expect("ticks are few")
}

impl Client {
    pub(crate) fn call(&self, kind: Kind) -> Option<&Call> {
        self.calls[kind as usize].as_ref()
    }

    /// Returns true if it has nothing on its way, and has sent what was due by now.
    pub(crate) fn is_punctual(&self, now: u32) -> bool {
        let punctual = self.entry.as_ref().is_none_or(|entry| match entry.stage() {
            Stage::Held(_) if !entry.is_renewed() => true,
            Stage::Unconfirmed(_) => false,
            _ => entry.is_renewed() && entry.renewed == now,
        });
        punctual && self.releases.is_empty() && self.calls.iter().all(Option::is_none)
    }

    /// Sends a call about its acquisition.
    fn send(&mut self, kind: Kind, grant: Option<Grant>, now: u32) {
        let Some(Entry { request, origin, terms, .. }) = self.entry else { return };
        let call = Call { request, origin, terms, grant, adopts: None, sent: now, reply: None };
        self.calls[kind as usize] = Some(call);
    }

    /// Steps an acquisition and carries out the effect.
    pub(super) fn step(&mut self, request: u8, input: Input, known: Circumstances) {
        self.step_of((known.client, request), request, input, known);
    }

    /// Steps an acquisition by the outcome of a renewal. What was handed over is another process's to
    /// release.
    fn step_unless_handed_over(&mut self, origin: Origin, request: u8, input: Input, known: Circumstances) {
        if self.handed_over != Some(request) {
            self.step_of(origin, request, input, known);
        }
    }

    /// Steps an acquisition that may be of an adopted permit.
    fn step_of(&mut self, origin: Origin, request: u8, input: Input, known: Circumstances) {
        let Some(entry) = self.entry.as_mut().filter(|entry| entry.request == request) else {
            let effect = Acquisition::ended().step(input, &known.terms(), moment(known.now));
            if effect == (Effect::End { release: true }) {
                self.queue_release(origin, request, known);
            }
            return;
        };
        let (origin, terms) = (entry.origin, Terms { lease: entry.lease(), ..known.terms() });
        match entry.acquisition.step(input, &terms, moment(known.now)) {
            Effect::Deliver { until, .. } => entry.until = tick(until),
            Effect::Extend { until } => entry.until = entry.until.max(tick(until)),
            // The holder has released the kept permit, so nobody has to stop.
            Effect::Lose { .. } if entry.kept => self.entry = None,
            Effect::Lose { .. } => {
                // The holder stops, and drops the permit.
                self.entry = None;
                self.queue_release(origin, request, known);
            }
            Effect::End { release } => {
                self.entry = None;
                if release && known.behaviour != ClientBehaviour::ReleasesNothing {
                    self.queue_release(origin, request, known);
                }
            }
            Effect::ReleaseBehind if known.behaviour == ClientBehaviour::WithdrawsLater => {}
            Effect::ReleaseBehind => self.queue_release(origin, request, known),
            // Effects that only decide when to send change nothing, because the check explores every moment.
            Effect::None
            | Effect::Send
            | Effect::Wait { .. }
            | Effect::Renew
            | Effect::Confirm
            | Effect::MarkUnsure
            | Effect::RenewSoon => {}
        }
    }

    pub(crate) fn acquire(&mut self, known: Circumstances) {
        self.made += 1;
        let (origin, terms) = ((known.client, self.made), known.own_terms());
        self.entry = Some(new_entry(self.made, origin, terms, Acquisition::new(moment(known.now)), known));
        self.send_acquire(known);
    }

    /// Sends the unsent request.
    pub(crate) fn send_acquire(&mut self, known: Circumstances) {
        let Some(request) = self.entry.as_ref().map(|entry| entry.request) else { return };
        self.step(request, Input::Sent, known);
        self.send(Kind::Acquire, None, known.now);
    }

    pub(crate) fn renew(&mut self, known: Circumstances) {
        let Some(entry) = &mut self.entry else { return };
        entry.renewed = known.now;
        let (grant, extended_at) = (entry.acquisition.grant(), entry.acquisition.extended_at);
        let claimed = (entry.is_claimed && !entry.auto_renew).then(|| {
            let now = moment(known.now);
            let ends = (extended_at + entry.lease()).since(now);
            let held = lease_until(moment(entry.until).since(now));
            let lease_ms = ends.max(held).as_millis().max(1);
            let lease_ms = u64::try_from(lease_ms).expect("it is a part of a lease");
            // A change of the lease, which the next renewal by its holder changes back.
            OwnTerms { lease_ms, version: entry.terms.version - 1, ..entry.terms }
        });
        self.handed_over = None;
        self.send(Kind::Renew, grant, known.now);
        if let (Some(terms), Some(call)) = (claimed, &mut self.calls[Kind::Renew as usize]) {
            call.terms = terms;
        }
    }

    /// Asks the replicas for a grant.
    pub(crate) fn confirm(&mut self, known: Circumstances) {
        let grant = self.entry.as_ref().and_then(|entry| entry.acquisition.grant());
        self.send(Kind::Confirm, grant, known.now);
    }

    /// The holder releases its permit. `passed` is the time since the store granted it.
    pub(crate) fn release(&mut self, passed: Duration, known: Circumstances) {
        if let Some(entry) = &mut self.entry
            && entry.granted().is_some_and(|grant| self.keeping.allows(grant.slot))
            && is_token_left(entry.granted_again)
            && is_token_due(entry.granted_again, passed)
        {
            entry.kept = true;
            return;
        }
        self.give_back(known);
    }

    /// Returns true if it has a permit that no caller holds.
    pub(crate) fn keeps(&self) -> bool {
        self.entry.as_ref().is_some_and(|entry| entry.kept)
    }

    /// Grants the permit that it keeps to another holder.
    pub(crate) fn grant_again(&mut self, known: Circumstances) -> Option<Grant> {
        let entry = self.entry.as_mut()?;
        entry.kept = false;
        entry.granted_again += u32::from(known.behaviour != ClientBehaviour::RepeatsTokens);
        entry.granted()
    }

    /// Notes what it learns about the semaphore.
    pub(crate) fn note(&mut self, notice: Notice, known: Circumstances) {
        let notice = match (known.behaviour, notice) {
            _ if !known.keep => return,
            (ClientBehaviour::IgnoresRecalls, Notice::Recall) => return,
            (ClientBehaviour::KeepsAlways, Notice::Reply { limit, in_order, .. }) => {
                Notice::Reply { keepable: true, limit, in_order }
            }
            _ => notice,
        };
        if self.keeping.note(notice) && self.keeps() {
            self.give_back(known);
        }
    }

    /// Releases the permit in the store.
    pub(crate) fn give_back(&mut self, known: Circumstances) {
        let Some(request) = self.entry.as_ref().map(|entry| entry.request) else { return };
        self.step(request, Input::Released, known);
        if self.call(Kind::Release).is_none() {
            self.send_release(known);
        }
    }

    pub(crate) fn send_release(&mut self, known: Circumstances) {
        if let Some(release) = self.releases.iter_mut().find(|release| !release.sent) {
            release.sent = true;
            let (Release { request, origin, .. }, terms) = (*release, known.own_terms());
            let sent = known.now;
            let call = Call { request, origin, terms, grant: None, adopts: None, sent, reply: None };
            self.calls[Kind::Release as usize] = Some(call);
        }
    }

    pub(super) fn queue_release(&mut self, origin: Origin, request: u8, known: Circumstances) {
        let until = known.now + known.lease;
        match self.releases.iter_mut().find(|release| release.request == request && !release.sent) {
            Some(queued) => queued.until = until,
            None => self.releases.push(Release { request, origin, until, sent: false }),
        }
    }

    /// The caller no longer waits.
    pub(crate) fn cancel(&mut self, known: Circumstances) {
        let Some(request) = self.entry.as_ref().map(|entry| entry.request) else { return };
        self.step(request, Input::Withdrawn, known);
    }

    /// Time has passed. A permit whose deadline has come is lost, and released when its holder has stopped.
    pub(crate) fn pass(&mut self, known: Circumstances) {
        if let Some((origin, request, (_, until))) =
            self.entry.as_ref().and_then(|entry| Some((entry.origin, entry.request, entry.held()?)))
            && until <= known.now
        {
            if self.keeps() {
                self.step(request, Input::Released, known);
            } else {
                self.step(request, Input::Expired, known);
                self.queue_release(origin, request, known);
            }
        }
        self.drop_late_releases(known);
    }

    /// Releases whose lease has ended are no longer sent.
    fn drop_late_releases(&mut self, known: Circumstances) {
        let is_late = |release: &mut Release| known.now >= release.until && !release.sent;
        for Release { request, .. } in self.releases.extract_if(.., is_late).collect::<Vec<_>>() {
            self.step(request, Input::ReleaseReturned { ended: false }, known);
        }
    }

    /// A message arrives.
    pub(crate) fn on_push(&mut self, request: u8, kind: EventKind, known: Circumstances) {
        self.step(request, Input::Pushed(kind), known);
    }

    /// A call returns. `confirmed` is the number of replicas that have it: 1 or 0, as one is asked for.
    pub(crate) fn on_return(&mut self, kind: Kind, confirmed: u32, known: Circumstances) {
        let Some(call) = self.calls[kind as usize].take() else { return };
        let (Call { request, origin, terms, sent, .. }, Some(reply)) = (call.clone(), call.reply.clone())
        else {
            return;
        };
        let (keepable, limit) = (reply.keepable, reply.limit);
        self.note(Notice::Reply { keepable, limit, in_order: kind != Kind::Confirm }, known);
        let sent = if known.behaviour == ClientBehaviour::DatesFromReply { known.now } else { sent };
        let times = ReplyTimes { sent_at: moment(sent), server_us: reply.now_us };
        if let Some(entry) = self.entry.as_mut().filter(|entry| entry.request == request) {
            entry.replied = reply.run;
            if kind == Kind::Acquire {
                let forgets = known.behaviour == ClientBehaviour::ForgetsLateCalls;
                entry.acquisition.may_be_stored &= !forgets;
            }
        }
        match reply.outcome {
            Outcome::Acquired(outcome) => self.step(request, Input::Acquired(outcome, times), known),
            Outcome::Renewed(outcome) => {
                let entry = self.entry.as_mut().filter(|entry| entry.request == request);
                if let RenewOutcome::Held | RenewOutcome::Granted(_) = outcome
                    && let Some(entry) = entry
                {
                    entry.is_claimed &= outcome != RenewOutcome::Held;
                    if kind == Kind::Renew && terms.version < entry.terms.version {
                        // The renewal may have extended an earlier lease, not the present one.
                        return;
                    }
                }
                let is_confirmed = confirmed > 0 && outcome == RenewOutcome::Held;
                self.step_unless_handed_over(origin, request, Input::Renewed(outcome, times), known);
                if kind == Kind::Confirm {
                    let entry = self.entry.iter_mut().filter(|entry| entry.request == request);
                    entry.for_each(|entry| entry.confirmed |= is_confirmed);
                    self.step(request, Input::Confirmed { confirmed, wanted: 1 }, known);
                }
            }
            Outcome::Adopted(true) => self.on_adopted(&call, known),
            Outcome::Adopted(false) => {}
            Outcome::Released(ended) => {
                self.releases.retain(|release| !release.sent);
                self.step(request, Input::ReleaseReturned { ended }, known);
            }
        }
    }

    /// A call is given up: its outcome is not known, and a later call has to find it out.
    pub(crate) fn on_failure(&mut self, kind: Kind, known: Circumstances) {
        let Some(Call { request, origin, .. }) = self.calls[kind as usize].take() else { return };
        self.note(Notice::Unsure, known);
        let failure = Failure { temporary: true, outcome_unknown: true };
        match kind {
            Kind::Acquire => {
                self.step(request, Input::AcquireFailed(failure), known);
            }
            Kind::Renew => self.step_unless_handed_over(origin, request, Input::RenewFailed, known),
            Kind::Confirm => {
                self.step_unless_handed_over(origin, request, Input::ConfirmFailed(failure), known)
            }
            // The caller of the adoption has given up, and the store may have given it the permit.
            Kind::Adopt => self.queue_release(origin, request, known),
            Kind::Release => {
                self.releases.iter_mut().for_each(|release| release.sent = false);
                self.drop_late_releases(known);
            }
        }
    }
}

pub(super) fn new_entry(
    request: u8,
    origin: Origin,
    terms: OwnTerms,
    acquisition: Acquisition,
    known: Circumstances,
) -> Entry {
    Entry {
        request,
        origin,
        terms,
        auto_renew: !known.by_program,
        is_claimed: false,
        confirmed: false,
        acquisition,
        until: 0,
        renewed: known.now,
        replied: 0,
        kept: false,
        granted_again: 0,
    }
}
