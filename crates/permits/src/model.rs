//! The executable specification of a semaphore: `apply(state, server, command) → (reply, events)`.
//!
//! Pure: the time and the server's identity are arguments, nothing is read from outside. It is used three
//! times: it *is* the memory store, it is the oracle that the Lua of the Redis store is tested against step
//! by step, and it is where a reader learns what a semaphore does. The Lua follows it name by name; a change
//! here is a change there.
//!
//! Every command runs the same course:
//!
//! 1. **begin**: find the state or start one, and notice a new era: of the server, or after a loss of state;
//! 2. **reap**: entries whose deadline has passed leave;
//! 3. **decide**: what the command asks for;
//! 4. **promote**: grant the head of the line while it fits, strictly in order;
//! 5. **finish**: sequence number, expiry, and when to ask again.
//!
//! Newcomers are decided on after the promotion, so a newcomer never overtakes.

mod state;

use std::collections::BTreeSet;

use crate::protocol::{
    AcquireOutcome, AcquireRequest, AdoptRequest, Answers, Command, Declaration, Event, EventKind, Grant,
    Holder, InspectedHolder, InspectedWaiter, Inspection, LimitChange, LimitOutcome, MAX_BATCH, Operation,
    Refusal, ReleaseOutcome, ReleaseRequest, RenewOutcome, RenewRequest, Reply, RequestId,
};

use self::state::signed;
pub use self::state::{CHANGES_MAX, Change, ChangeAnswer, Damage, Entry, EntryState, Part, State};

/// The most expired entries that one command reaps.
pub const REAP_MAX: usize = 128;

/// The most waiters that one command examines for promotion.
pub const PROMOTE_MAX: u64 = MAX_BATCH as u64;

/// The most holders, and the most waiters, that one command lists.
pub const INSPECT_MAX: u32 = 1_000;

/// How often the server's identity is looked up, in microseconds.
pub const IDENTITY_EVERY_US: u64 = 10_000;

/// The clock and the identity of the server at the moment of a command.
#[derive(Debug, Clone, Copy)]
pub struct ServerClock<'a> {
    /// Its clock, in microseconds since 1970.
    pub now_us: u64,
    /// A name that is new after each restart.
    pub run_id: &'a str,
    /// How long it has been up, in milliseconds.
    pub uptime_ms: u64,
}

/// Executes one command on the state of its semaphore. `None` is a semaphore that nobody uses.
pub fn apply(state: &mut Option<State>, server: &ServerClock<'_>, command: &Command) -> (Reply, Vec<Event>) {
    let mut run = Execution::begin(state.take(), server, command);
    run.reap();
    let answers = match &command.operation {
        Operation::Acquire { queue_max, requests } => run.acquire(*queue_max, requests),
        Operation::Release(requests) => run.release(requests),
        Operation::Renew(requests) => run.renew(requests),
        Operation::Adopt(adopt) => run.adopt(adopt),
        Operation::SetLimit { request, change, expected_version } => {
            run.set_limit(request, *change, *expected_version)
        }
        Operation::Pause(paused) => run.pause(*paused),
        Operation::Revoke { request, holder, reason } => run.revoke(request, holder, reason),
        Operation::Inspect { max } => run.inspect(*max),
    };
    let (left, reply, events) = run.finish(answers);
    *state = left;
    (reply, events)
}

/// On which terms new holders are let in.
#[derive(Clone, Copy)]
enum Terms {
    /// Under the limit in force.
    Open,
    /// Not: none would be under the limit that the program declares, which therefore does not count.
    RefusedUnder(u32),
    /// Not, whatever the limit.
    Refused(Refusal),
}

/// One command in execution.
struct Execution<'a> {
    state: State,
    existed: bool,
    command: &'a Command,
    now_us: u64,
    now_ms: u64,
    /// Units held after the reaping: while recovering, no more than that may be held after the command.
    held_at_start: u64,
    /// Slots that this command freed otherwise than by reaping, and nobody has taken since.
    freed_slots: BTreeSet<u64>,
    /// Whether expired entries may be left.
    reap_truncated: bool,
    /// Whether the promotion stopped at its bound.
    promote_truncated: bool,
    /// Whether the command extends the life of the state.
    extends: bool,
    /// The limit that the declaration has replaced.
    replaced_limit: Option<u32>,
    events: Vec<Event>,
}

impl<'a> Execution<'a> {
    fn begin(state: Option<State>, server: &ServerClock<'_>, command: &'a Command) -> Self {
        let now_us = server.now_us;
        let now_ms = now_us / 1000;
        let state = state.filter(|state| !state.is_expired(now_ms));
        let damage = state.as_ref().and_then(|state| state.damage);
        let state = state.and_then(State::found);
        let existed = state.is_some();
        let mut state = state.unwrap_or_else(|| State::new(server));
        let extends = !command.only_looks() || damage == Some(Damage::StateLost);
        let lease_known = state.lease_max_ms;
        let lease_max_ms = lease_known.max(command.longest_lease_ms());
        if extends {
            state.lease_max_ms = lease_max_ms;
        }
        let window_ms = command.recovery.window_ms(lease_max_ms);
        if damage.is_some() {
            // Its holders are alive, and may come back as after a restart that kept nothing.
            state.server = server.run_id.to_owned();
            state.checked_us = now_us;
            state.era_known = 0;
            state.era_began_us = now_us;
            state.recovering_until_ms = state.recovering_until_ms.max(now_ms + window_ms);
        } else if !existed {
            // A young server may have forgotten holders; an old one without state has none to forget,
            // unless it was flushed: that over-grant is bounded by the reclaim.
            if server.uptime_ms < window_ms {
                state.recovering_until_ms = now_ms - server.uptime_ms + window_ms;
            }
        } else if now_us < state.checked_us || now_us - state.checked_us >= IDENTITY_EVERY_US {
            state.checked_us = now_us;
            if state.server != server.run_id {
                state.server = server.run_id.to_owned();
                state.era_known = state.last_token;
                state.era_began_us = now_us;
                state.recovering_until_ms = now_ms + window_ms;
            }
        }
        if existed && now_ms < state.recovering_until_ms && state.lease_max_ms > lease_known {
            state.recovering_until_ms = state.recovering_until_ms.max(state.era_began_us / 1000 + window_ms);
        }
        Self {
            state,
            existed: existed || damage.is_some(),
            command,
            now_us,
            now_ms,
            held_at_start: 0,
            freed_slots: BTreeSet::new(),
            reap_truncated: false,
            promote_truncated: false,
            extends,
            replaced_limit: None,
            events: Vec::new(),
        }
    }

    /// Entries whose deadline has passed leave: holders first, then waiters; at most [`REAP_MAX`].
    fn reap(&mut self) {
        let now = signed(self.now_ms);
        let expired = self.state.leases.range((-now, Holder::min())..(now + 1, Holder::min()));
        let expired: Vec<Holder> = expired.rev().take(REAP_MAX).map(|(_, holder)| holder.clone()).collect();
        self.reap_truncated = expired.len() == REAP_MAX;
        for holder in expired {
            self.state.remove(&holder);
        }
        // What was reaped is not handed on while recovering: the store may remember a holder that has released
        // since, and have forgotten the one that came after it.
        self.held_at_start = self.state.held;
    }

    /// Forgets an entry: its units and slot come back, or its place in line goes.
    fn forget(&mut self, holder: &Holder) -> ReleaseOutcome {
        if let Some(EntryState::Holding(grant)) = self.state.entries.get(holder).map(|entry| entry.place) {
            self.freed_slots.insert(grant.slot.into());
        }
        self.state.remove(holder)
    }

    fn is_recovering(&self) -> bool {
        self.now_ms < self.state.recovering_until_ms
    }

    /// How many units may be held after this command, under `limit`.
    fn capacity(&self, limit: u32) -> u64 {
        if self.state.paused {
            0
        } else if self.is_recovering() {
            self.held_at_start.min(limit.into())
        } else {
            limit.into()
        }
    }

    /// Whether `weight` units can be granted now, under `limit`.
    fn fits(&self, limit: u32, weight: u32) -> bool {
        self.state.held + u64::from(weight) <= self.capacity(limit) && self.next_slot(limit).is_some()
    }

    /// The slot of the next grant: the lowest free one. While recovering, only one that was given back now: any
    /// other may be that of a holder which the store forgot, and which could then not be put back.
    fn next_slot(&self, limit: u32) -> Option<u64> {
        if self.is_recovering() {
            self.freed_slots.first().copied().filter(|slot| *slot < limit.into())
        } else {
            Some(self.state.lowest_slot())
        }
    }

    /// Grants the head of the line while it is alive and fits. A heavy head is not overtaken; one that can
    /// never fit any more is refused.
    fn promote(&mut self) {
        let limit = self.state.limit;
        let capacity = self.capacity(limit);
        if capacity <= self.state.held {
            return;
        }
        let bound = PROMOTE_MAX.min(capacity - self.state.held);
        for _ in 0..bound {
            let Some((&ticket, holder)) = self.state.queue.first_key_value() else { return };
            let holder = holder.clone();
            let entry = &self.state.entries[&holder];
            if self.reap_truncated && -entry.deadline <= signed(self.now_ms) {
                return;
            }
            if entry.weight > limit {
                self.emit(&holder, EventKind::Refused);
                self.forget(&holder);
            } else if self.fits(limit, entry.weight) {
                self.state.queue.remove(&ticket);
                let grant = self.grant(&holder);
                self.emit(&holder, EventKind::Granted(grant));
            } else {
                return;
            }
        }
        self.promote_truncated = !self.state.queue.is_empty() && self.state.held < capacity;
    }

    /// Makes a holder of an entry that stands nowhere and fits: token, slot, deadline.
    fn grant(&mut self, holder: &Holder) -> Grant {
        let token = self.now_us.max(self.state.last_token + 1);
        self.state.last_token = token;
        let slot = self.next_slot(self.state.limit).expect("it fits");
        self.take_slot(slot);
        let slot = u32::try_from(slot).expect("slots granted are below the limit, which is a u32");
        let grant = Grant { token, slot };
        self.state.hold(holder, grant);
        self.extend(holder);
        grant
    }

    fn take_slot(&mut self, slot: u64) -> bool {
        self.freed_slots.remove(&slot);
        self.state.take_slot(slot)
    }

    /// A new deadline, a lease from now.
    fn extend(&mut self, holder: &Holder) {
        let lease_ms = self.state.entries[holder].lease_ms;
        self.state.set_deadline(holder, self.now_ms + lease_ms);
    }

    fn emit(&mut self, holder: &Holder, news: EventKind) {
        let entry = &self.state.entries[holder];
        self.events.push(Event {
            session: entry.session.clone(),
            semaphore: self.command.semaphore.clone(),
            holder: holder.clone(),
            request: entry.request.clone(),
            kind: news,
        });
    }

    /// The limit that the command's declaration puts in the place of the stored one, if it does.
    fn declared(&self) -> Result<Option<u32>, Refusal> {
        let state = &self.state;
        match self.command.declaration {
            Declaration::Stored if state.limit == 0 => Err(Refusal::NoLimit),
            Declaration::Require(limit) if state.limit != 0 && state.limit != limit => {
                Err(Refusal::LimitMismatch)
            }
            Declaration::Stored => Ok(None),
            Declaration::Declare(limit) => Ok((state.limit != limit && !state.pinned).then_some(limit)),
            Declaration::Fallback(limit) | Declaration::Require(limit) => {
                Ok((state.limit == 0).then_some(limit))
            }
        }
    }

    fn replace_limit(&mut self, limit: u32) {
        self.replaced_limit = Some(self.state.limit).filter(|replaced| *replaced > 0);
        self.state.limit = limit;
        self.state.limit_version += 1;
    }

    fn acquire(&mut self, queue_max: u32, requests: &[AcquireRequest]) -> Answers {
        let mut terms = self.declare(queue_max, requests);
        self.promote();
        if let Terms::RefusedUnder(_) = terms {
            // The promotion may have emptied the line.
            terms = self.declare(queue_max, requests);
            self.promote();
        }
        Answers::Acquire(requests.iter().map(|request| self.acquire_one(queue_max, terms, request)).collect())
    }

    /// Takes the program's word for the limit, if that lets one of the requests in: a request that is refused changes
    /// nothing.
    fn declare(&mut self, queue_max: u32, requests: &[AcquireRequest]) -> Terms {
        match self.declared() {
            Err(refusal) => return Terms::Refused(refusal),
            Ok(Some(limit)) if !self.lets_any_in(limit, queue_max, requests) => {
                return Terms::RefusedUnder(limit);
            }
            Ok(Some(limit)) => self.replace_limit(limit),
            Ok(None) => {}
        }
        Terms::Open
    }

    /// Whether one of the requests would be granted or queued under `limit`, or is known already.
    fn lets_any_in(&self, limit: u32, queue_max: u32, requests: &[AcquireRequest]) -> bool {
        requests.iter().any(|request| match self.state.entries.get(&request.holder) {
            Some(entry) => entry.request == request.request,
            None => self.refusal(limit, queue_max, request).is_none(),
        })
    }

    /// Why a request of a new holder can be neither granted nor queued under `limit`, if it can not.
    fn refusal(&self, limit: u32, queue_max: u32, request: &AcquireRequest) -> Option<Refusal> {
        let waiting = self.state.queue.len() as u64;
        if request.weight > limit {
            Some(Refusal::ExceedsLimit)
        } else if waiting == 0 && self.fits(limit, request.weight) {
            None
        } else if !request.wait {
            let is_free = self.state.held + u64::from(request.weight) <= limit.into();
            let held_back = self.is_recovering() && waiting == 0 && is_free && !self.state.paused;
            Some(if held_back { Refusal::Recovering } else { Refusal::NoPermits })
        } else if waiting >= u64::from(queue_max) {
            Some(Refusal::QueueFull)
        } else {
            None
        }
    }

    fn acquire_one(&mut self, queue_max: u32, terms: Terms, request: &AcquireRequest) -> AcquireOutcome {
        if let Some(entry) = self.state.entries.get(&request.holder) {
            if entry.request != request.request {
                return AcquireOutcome::Refused(Refusal::AlreadyHeld);
            }
            let place = entry.place;
            self.extend(&request.holder);
            return match place {
                EntryState::Holding(grant) => AcquireOutcome::Granted(grant),
                EntryState::Waiting(ticket) => {
                    AcquireOutcome::Waiting { position: self.state.position(ticket) }
                }
            };
        }
        let refusal = match terms {
            Terms::Open => self.refusal(self.state.limit, queue_max, request),
            Terms::RefusedUnder(limit) => {
                self.refusal(limit, queue_max, request).or(Some(Refusal::NoPermits))
            }
            Terms::Refused(refusal) => Some(refusal),
        };
        if let Some(refusal) = refusal {
            return AcquireOutcome::Refused(refusal);
        }
        let waiting = self.state.queue.len() as u64;
        let fits = waiting == 0 && self.fits(self.state.limit, request.weight);
        // A ticket is the time at which it was given, as a token is.
        let ticket = self.now_us.max(self.state.last_ticket + 1);
        let place = EntryState::Waiting(ticket);
        let AcquireRequest { holder, request, weight, lease_ms, label, .. } = request.clone();
        let session = self.command.session.clone();
        let entry = Entry { request, session, label, weight, lease_ms, deadline: 0, place };
        self.state.entries.insert(holder.clone(), entry);
        if fits {
            AcquireOutcome::Granted(self.grant(&holder))
        } else {
            self.state.last_ticket = ticket;
            self.state.queue.insert(ticket, holder.clone());
            self.extend(&holder);
            AcquireOutcome::Waiting { position: waiting }
        }
    }

    fn release(&mut self, requests: &[ReleaseRequest]) -> Answers {
        let answers = requests.iter().map(|release| match self.state.entries.get(&release.holder) {
            Some(entry) if entry.request == release.request => self.forget(&release.holder),
            _ => ReleaseOutcome::Unknown,
        });
        let answers = answers.collect();
        self.promote();
        Answers::Release(answers)
    }

    fn renew(&mut self, requests: &[RenewRequest]) -> Answers {
        // A forgotten limit must not keep forgotten holders out.
        if let Ok(Some(limit)) = self.declared() {
            self.replace_limit(limit);
        }
        let mut answers: Vec<RenewOutcome> = requests.iter().map(|renew| self.renew_one(renew)).collect();
        self.promote();
        // Waiters are answered as they stand after the promotion.
        for (answer, renew) in answers.iter_mut().zip(requests) {
            if matches!(answer, RenewOutcome::Waiting { .. }) {
                *answer = match self.state.entries.get(&renew.holder).map(|entry| entry.place) {
                    Some(EntryState::Waiting(ticket)) => {
                        RenewOutcome::Waiting { position: self.state.position(ticket) }
                    }
                    Some(EntryState::Holding(grant)) => RenewOutcome::Granted(grant),
                    None => RenewOutcome::ExceedsLimit,
                };
            }
        }
        Answers::Renew(answers)
    }

    fn renew_one(&mut self, renew: &RenewRequest) -> RenewOutcome {
        let Some(entry) = self.state.entries.get(&renew.holder) else {
            return renew.grant.map_or(RenewOutcome::Lost, |grant| self.reclaim(renew, grant));
        };
        if entry.request != renew.request {
            return RenewOutcome::Lost;
        }
        match (entry.place, renew.grant) {
            (EntryState::Holding(grant), None) => {
                self.extend(&renew.holder);
                RenewOutcome::Granted(grant)
            }
            (EntryState::Holding(grant), Some(claimed)) if claimed == grant => {
                self.extend(&renew.holder);
                RenewOutcome::Held
            }
            (EntryState::Holding(_), Some(_)) => {
                // Another era granted the same request again. The older permit's slot may be another's.
                self.forget(&renew.holder);
                RenewOutcome::Lost
            }
            (EntryState::Waiting(_), None) if entry.weight > self.state.limit => {
                self.forget(&renew.holder);
                RenewOutcome::ExceedsLimit
            }
            (EntryState::Waiting(_), None) => {
                self.extend(&renew.holder);
                RenewOutcome::Waiting { position: 0 }
            }
            (EntryState::Waiting(_), Some(claimed)) => {
                // The store remembers the place in line and forgot the grant.
                self.forget(&renew.holder);
                self.reclaim(renew, claimed)
            }
        }
    }

    /// A holder that is not in the entries was either reaped, and lost it for good, or forgotten by the
    /// store. Its token tells which; forgotten, it is put back if it fits.
    fn reclaim(&mut self, renew: &RenewRequest, grant: Grant) -> RenewOutcome {
        let state = &self.state;
        let forgotten = state.era_known < grant.token && grant.token < state.era_began_us;
        // Whoever held when the era began has renewed or stopped a lease later.
        if !forgotten || self.now_ms >= state.era_began_us / 1000 + renew.lease_ms {
            return RenewOutcome::Lost;
        }
        if state.held + u64::from(renew.weight) > state.limit.into() || !self.take_slot(grant.slot.into()) {
            return RenewOutcome::RetryLater;
        }
        let state = &mut self.state;
        state.last_token = state.last_token.max(grant.token);
        let RenewRequest { holder, request, weight, lease_ms, label, .. } = renew.clone();
        let (session, place) = (self.command.session.clone(), EntryState::Holding(grant));
        let entry = Entry { request, session, label, weight, lease_ms, deadline: 0, place };
        state.entries.insert(holder.clone(), entry);
        state.hold(&holder, grant);
        self.extend(&holder);
        RenewOutcome::Held
    }

    /// Gives a permit to another session. Asked again, with the name that it has now, it is done already.
    fn adopt(&mut self, adopt: &AdoptRequest) -> Answers {
        let adopted = match self.state.entries.get_mut(&adopt.holder) {
            Some(entry)
                if (entry.request == adopt.request || entry.request == adopt.new_request)
                    && (entry.weight, entry.lease_ms) == (adopt.weight, adopt.lease_ms)
                    && entry.place == EntryState::Holding(adopt.grant) =>
            {
                entry.request = adopt.new_request.clone();
                entry.session = self.command.session.clone();
                self.extend(&adopt.holder);
                true
            }
            _ => false,
        };
        self.promote();
        Answers::Adopt(adopted)
    }

    fn set_limit(
        &mut self,
        request: &RequestId,
        change: LimitChange,
        expected_version: Option<u64>,
    ) -> Answers {
        let changed = match self.state.change_made(request) {
            Some(ChangeAnswer::Limit(changed)) => changed,
            _ => {
                let version = self.state.limit_version;
                let changed = self.change_limit(change, expected_version);
                if self.state.limit_version != version {
                    self.state.remember_change(request, ChangeAnswer::Limit(changed));
                }
                changed
            }
        };
        self.promote();
        Answers::SetLimit(changed)
    }

    fn change_limit(&mut self, change: LimitChange, expected_version: Option<u64>) -> LimitOutcome {
        let state = &mut self.state;
        if expected_version.is_some_and(|version| version != state.limit_version) {
            return LimitOutcome::OtherVersion;
        }
        let (limit, pinned) = match change {
            LimitChange::Set(limit) => (limit, true),
            LimitChange::Unpin => (state.limit, false),
            LimitChange::Adjust(_) if state.limit == 0 => return LimitOutcome::NoLimit,
            LimitChange::Adjust(number) => match u32::try_from(number.saturating_add(state.limit.into())) {
                Ok(limit) if limit > 0 => (limit, true),
                _ => return LimitOutcome::OutOfRange,
            },
        };
        let is_so = (state.limit, state.pinned) == (limit, pinned);
        if !is_so || expected_version.is_some() {
            state.limit_version += 1;
        }
        state.limit = limit;
        state.pinned = pinned;
        LimitOutcome::Done { limit, version: state.limit_version }
    }

    fn pause(&mut self, paused: bool) -> Answers {
        self.state.paused = paused;
        self.promote();
        Answers::Pause
    }

    fn revoke(&mut self, request: &RequestId, holder: &Holder, reason: &std::sync::Arc<str>) -> Answers {
        let was = match self.state.change_made(request) {
            Some(ChangeAnswer::Revoked(was)) => was,
            _ if self.state.entries.contains_key(holder) => {
                self.emit(holder, EventKind::Revoked(reason.clone()));
                let was = self.forget(holder);
                self.state.remember_change(request, ChangeAnswer::Revoked(was));
                was
            }
            _ => ReleaseOutcome::Unknown,
        };
        self.promote();
        Answers::Revoke(was)
    }

    fn inspect(&mut self, max: u32) -> Answers {
        self.promote();
        let state = &self.state;
        let max = max.min(INSPECT_MAX) as usize;
        let holders = state.leases.range((0, Holder::min())..).take(max).filter_map(|(deadline, holder)| {
            let entry = &state.entries[holder];
            let EntryState::Holding(grant) = entry.place else { return None };
            let lease_remaining_ms = deadline.unsigned_abs().saturating_sub(self.now_ms);
            Some(InspectedHolder {
                holder: holder.clone(),
                weight: entry.weight,
                grant,
                lease_remaining_ms,
                label: entry.label.clone(),
            })
        });
        let waiters = state.queue.iter().take(max).map(|(ticket, holder)| {
            let Entry { weight, label, .. } = &state.entries[holder];
            InspectedWaiter { holder: holder.clone(), weight: *weight, ticket: *ticket, label: label.clone() }
        });
        Answers::Inspect(Inspection {
            held: state.held,
            waiting: state.queue.len() as u64,
            paused: state.paused,
            holders: holders.collect(),
            waiters: waiters.collect(),
        })
    }

    fn finish(mut self, answers: Answers) -> (Option<State>, Reply, Vec<Event>) {
        let state = &mut self.state;
        if state.held == 0 {
            state.slots_made = 0;
            state.free.clear();
        }
        if self.extends && state.expires_ms < self.now_ms + 2 * state.lease_max_ms {
            state.expires_ms = self.now_ms + 4 * state.lease_max_ms;
        }
        let stays = self.existed || !state.entries.is_empty() || state.pinned || state.paused;
        state.sequence = if stays { state.sequence + 1 } else { 0 };
        let reply = Reply {
            now_us: self.now_us,
            sequence: state.sequence,
            recheck_ms: if self.reap_truncated || self.promote_truncated {
                Some(0)
            } else if somebody_waits(&answers) {
                Some(state.next_change_ms(self.now_ms).saturating_sub(self.now_ms).max(1))
            } else {
                None
            },
            limit: state.limit,
            limit_version: state.limit_version,
            pinned: state.pinned,
            recovering_ms: state.recovering_until_ms.saturating_sub(self.now_ms),
            replaced_limit: self.replaced_limit,
            answers,
        };
        (stays.then_some(self.state), reply, self.events)
    }
}

fn somebody_waits(answers: &Answers) -> bool {
    match answers {
        Answers::Acquire(answers) => {
            answers.iter().any(|answer| matches!(answer, AcquireOutcome::Waiting { .. }))
        }
        Answers::Renew(answers) => {
            answers.iter().any(|answer| matches!(answer, RenewOutcome::Waiting { .. }))
        }
        _ => false,
    }
}
