//! The clients, the operators and the server of a random history. Their knowledge gives the abstract steps a
//! meaning.
//!
//! Clients know only the replies and messages that reached them: a client that lost a reply retries, a client
//! that lost a message renews without a grant, and after the server forgot everything clients renew with the
//! tokens that they have.

use permits_core::model::{ServerClock, State};
use permits_core::protocol::{
    AcquireOutcome, AcquireRequest, AdoptRequest, Alert, Answers, ChangeOrigin, Command, Declaration, Event,
    EventKind, Grant, Holder, Label, LaneName, LanePin, MAX_BATCH, Name, Operation, Pause, PermitTerms,
    ReleaseRequest, RenewOutcome, RenewRequest, Reply, RequestId, RequestKey, SessionId, Setting,
    SupersedeKey,
};

use super::steps::{
    Action, Ask, Asked, Claiming, Elapse, Fault, HOLDERS, Hears, LANES, NAMES, Naming, SESSIONS, Step,
    Version, parts,
};

/// 2100-01-01: late enough that no real key expires by the real clock.
const EPOCH_US: u64 = 4_102_444_800_000_000;

/// The number of acquisitions that clients remember. Crowds may be larger.
const REMEMBERED: usize = 3_000;

/// An acquisition as its client knows it.
#[derive(Debug, Clone)]
struct Known {
    session: usize,
    /// The next renewal.
    renewal: RenewRequest,
}

impl Known {
    fn is(&self, holder: &Holder, request: &RequestId) -> bool {
        self.renewal.holder == *holder && self.renewal.request == *request
    }
}

/// Everything outside the store.
pub(crate) struct Simulation {
    pub(crate) name: Name,
    pub(crate) now_us: u64,
    pub(crate) run_id: String,
    runs: u64,
    booted_us: u64,
    made: u64,
    known: Vec<Known>,
    ended: Vec<Known>,
    /// The requests of changes by operators: of limits, revocations, pauses, the line, alerts, and lanes.
    changes: [Vec<RequestId>; 6],
    /// Clients know at once what has ended by time.
    pub(crate) knows_ends: bool,
}

impl Simulation {
    pub(crate) fn new(name: usize) -> Self {
        Self {
            name: Name::new(NAMES[name]).expect("the names are valid"),
            now_us: EPOCH_US,
            run_id: "run0".into(),
            runs: 0,
            booted_us: EPOCH_US - 1_000_000_000_000,
            made: 0,
            known: Vec::new(),
            ended: Vec::new(),
            changes: Default::default(),
            knows_ends: false,
        }
    }

    pub(crate) fn session_id(session: usize) -> SessionId {
        SessionId::new(&format!("s{session}")).expect("it is plain")
    }

    pub(crate) fn uptime_ms(&self) -> u64 {
        self.now_us.saturating_sub(self.booted_us) / 1000
    }

    pub(crate) fn server(&self) -> ServerClock<'_> {
        ServerClock { now_us: self.now_us, run_id: &self.run_id, uptime_ms: self.uptime_ms() }
    }

    /// Lets the time of `step` pass and its fault happen, also to the model's state.
    pub(crate) fn pass(&mut self, step: &Step, state: &mut Option<State>) {
        self.elapse(&step.elapse, state.as_ref());
        if matches!(step.fault, Some(Fault::RestartEmpty { .. } | Fault::Flush | Fault::LoseKeys(_))) {
            // A grant takes a server more than the microsecond by which it advances the token.
            self.now_us = self.now_us.max(state.as_ref().map_or(0, |state| state.last_token + 1));
        }
        match step.fault {
            None | Some(Fault::ForgetScripts) => {}
            Some(Fault::Restart) => self.restart(0),
            Some(Fault::RestartEmpty { uptime_ms }) => {
                self.restart(uptime_ms);
                *state = None;
            }
            Some(Fault::Flush) => *state = None,
            Some(Fault::LoseKeys(bits)) => *state = state.take().and_then(|state| lose(state, bits)),
            Some(Fault::Uptime { uptime_ms }) => self.booted_us = self.now_us - uptime_ms * 1000,
        }
    }

    pub(crate) fn restart(&mut self, uptime_ms: u64) {
        self.runs += 1;
        self.run_id = format!("run{}", self.runs);
        self.booted_us = self.now_us - uptime_ms * 1000;
    }

    fn elapse(&mut self, elapse: &Elapse, state: Option<&State>) {
        let deadlines = || state.into_iter().flat_map(|state| &state.leases).map(|(at, _)| at.unsigned_abs());
        let about = |at_ms: u64, off_ms: i64| at_ms.saturating_add_signed(off_ms) * 1000;
        let until = match *elapse {
            Elapse::Not => return,
            Elapse::Micros(micros) => self.now_us + micros,
            Elapse::Back(micros) => {
                self.now_us -= micros;
                return;
            }
            Elapse::To { pick, off_ms, micros } => {
                let windows = state.into_iter().flat_map(|state| {
                    [
                        state.recovering_until_ms,
                        state.pause_ends_ms().unwrap_or(0),
                        state.era_began_us / 1000 + state.lease_max_ms,
                    ]
                });
                let moments: Vec<u64> = deadlines().chain(windows).collect();
                let Some(&at) = moments.get(pick % moments.len().max(1)) else { return };
                about(at, off_ms) + micros
            }
            Elapse::PastLeases => deadlines().max().map_or(0, |last| about(last, 1)),
            Elapse::Expiry { off_ms } => state.map_or(0, |state| about(state.expires_ms, off_ms)),
        };
        // The clock never goes back here, and stays far below 2^53: a lease of a day would soon take it
        // there.
        if until < EPOCH_US * 2 {
            self.now_us = self.now_us.max(until);
        }
    }

    /// The command that `step` stands for in the present state.
    pub(crate) fn command(&mut self, step: &Step, state: Option<&State>) -> Command {
        if self.knows_ends {
            self.known.retain(|known| {
                let entry = state.and_then(|state| state.entries.get(&known.renewal.holder));
                entry.is_some_and(|entry| entry.request == known.renewal.request)
            });
        }
        Command {
            semaphore: self.name.clone(),
            session: Self::session_id(step.session),
            lease_ms: step.lease_ms,
            recovery: step.recovery,
            declaration: declared(step.declaration, state),
            operation: self.operation(step, state),
        }
    }

    fn operation(&mut self, step: &Step, state: Option<&State>) -> Operation {
        let limit = state.map_or(4, |state| state.limit);
        match &step.action {
            Action::Acquire { queue_max, requests } => {
                let requests = requests.iter().map(|ask| self.ask(ask, step.session, limit)).collect();
                Operation::Acquire { queue_max: *queue_max, requests }
            }
            Action::Crowd { count, weight, wait } => {
                let requests = (0..*count).map(|number| {
                    let named = format!("crowd-{}", self.made);
                    let holder = (number % 2 == 0).then_some(named.as_str());
                    let terms = PermitTerms::new(*weight, step.lease_ms);
                    let asked = self.acquire(step.session, holder, terms, *wait);
                    // The limits of few holders would stop a crowd before any bound does.
                    let wide = if (self.made / 2_048).is_multiple_of(2) { 400 } else { 1 };
                    let lane_limit = wide * asked.terms.lane_limit;
                    AcquireRequest { terms: PermitTerms { lane_limit, ..asked.terms }, ..asked }
                });
                Operation::Acquire { queue_max: 2_000, requests: requests.collect() }
            }
            Action::Release(namings) => {
                let releases = namings.iter().map(|naming| release(&self.named(naming).renewal));
                Operation::Release(releases.collect())
            }
            Action::ReleaseMany { every, max } => {
                let known = self.known.iter().step_by(*every).take((*max).min(MAX_BATCH));
                let releases = known.map(|known| release(&known.renewal));
                Operation::Release(releases.collect())
            }
            Action::Renew(renewals) => {
                let renewals = renewals.iter().map(|(naming, claiming)| self.renewal(naming, claiming));
                Operation::Renew(renewals.collect())
            }
            Action::RenewAll => {
                let own = self.known.iter().filter(|known| known.session == step.session);
                Operation::Renew(own.take(MAX_BATCH).map(|known| known.renewal.clone()).collect())
            }
            Action::Adopt(naming, claiming) => {
                let renewal = self.renewal(naming, claiming);
                let last_token = last_used(&renewal);
                let RenewRequest { holder, request, terms, grant, .. } = renewal;
                let grant = grant.unwrap_or(Grant { token: 1_000, slot: 0 });
                let new_request = self.fresh();
                Operation::Adopt(AdoptRequest { holder, request, terms, grant, new_request, last_token })
            }
            Action::Set { asked, again } => {
                let (number, setting) = Self::setting(*asked, state);
                Operation::Set { origin: self.change(number, *again), setting }
            }
            Action::Revoke { naming, cooling, again } => {
                let origin = self.change(1, *again);
                let RenewRequest { holder, grant, .. } = self.named(naming).renewal;
                let cooling = grant.filter(|_| *cooling).map(|grant| grant.token);
                Operation::Revoke { origin, holder, cooling, reason: "it is late, 100 %s".into() }
            }
            Action::Delete => Operation::Delete { unreadable: self.now_us.is_multiple_of(2) },
            Action::Inspect { max } => Operation::Inspect { max: *max },
        }
    }

    /// The setting, and the index in `changes` of the requests that changed it.
    fn setting(asked: Asked, state: Option<&State>) -> (usize, Setting) {
        match asked {
            Asked::Limit(change, version) => {
                let right = state.map_or(0, |state| state.limit_version);
                let expected_version = match version {
                    Version::Any => None,
                    Version::Right => Some(right),
                    Version::Wrong => Some(right + 1),
                };
                (0, Setting::Limit { change, expected_version })
            }
            Asked::Pause(pause) => {
                let pause = pause.map(|(for_ms, reason)| Pause { for_ms, reason: reason.into() });
                (2, Setting::Pause(pause))
            }
            Asked::Line(reason) => (3, Setting::Line(reason.map(Into::into))),
            Asked::Alert(wait_ms, waiting) => (4, Setting::Alert(Alert::of(wait_ms, waiting))),
            Asked::Lane(lane, pin) => {
                let lane = LaneName::new(LANES[lane]).expect("it is valid");
                (5, Setting::Lane { lane, pin: pin.map(|(limit, floor)| LanePin { limit, floor }) })
            }
        }
    }

    fn ask(&mut self, ask: &Ask, session: usize, limit: u32) -> AcquireRequest {
        match *ask {
            Ask::New { holder, weight, lease_ms, at_least_ms, wait, supersedes } => {
                let weight = u32::try_from(weight).expect("it is small") % (limit + 1) + 1;
                let holder = HOLDERS.get(holder).copied();
                let key = if supersedes && wait { ["main", "k %s"][self.made as usize / 2 % 2] } else { "" };
                let supersede = SupersedeKey::new(key).expect("it is valid");
                let terms = PermitTerms { at_least_ms, supersede, ..PermitTerms::new(weight, lease_ms) };
                self.acquire(session, holder, terms, wait)
            }
            Ask::Again { pick, wait } => {
                let RenewRequest { holder, request, terms, .. } = self.named(&Naming::Known(pick)).renewal;
                let terms = PermitTerms { label: label(0), ..terms };
                let wait = wait || terms.is_keyed();
                let lane_waiters = lane_waiters(&terms, pick as u64);
                let supersedes = pick.is_multiple_of(2);
                AcquireRequest { holder, request, terms, wait, lane_waiters, supersedes }
            }
        }
    }

    /// A new request, remembered before it is sent, because its reply may be lost. A holder without a name
    /// gets a name that ends in the request, as by default.
    fn acquire(
        &mut self,
        session: usize,
        holder: Option<&str>,
        terms: PermitTerms,
        wait: bool,
    ) -> AcquireRequest {
        let request = self.fresh();
        let keep = self.made.is_multiple_of(3);
        let (lane, share, [lane_limit, lane_floor]) = lane(self.made);
        let terms = PermitTerms { keep, lane, share, lane_limit, lane_floor, ..terms };
        let by_default = format!("\u{fc}:1/{request}");
        let holder = Holder::new(holder.unwrap_or(&by_default)).expect("holders are valid");
        if self.known.len() < REMEMBERED {
            let renewal = renewal(holder.clone(), request.clone(), terms.clone(), None);
            self.known.push(Known { session, renewal });
        }
        let terms = PermitTerms { label: label(self.made), ..terms };
        let lane_waiters = lane_waiters(&terms, self.made);
        AcquireRequest { holder, request, supersedes: terms.is_keyed(), terms, wait, lane_waiters }
    }

    fn fresh(&mut self) -> RequestId {
        self.made += 1;
        // Some ids begin with the id of a session, which may be the session that sends the request.
        let id = match self.made as usize % (SESSIONS + 1) {
            SESSIONS => format!("r.{}_x-", self.made),
            session => format!("{}.{}", Self::session_id(session), self.made),
        };
        RequestId::new(&id).expect("it is plain")
    }

    /// The origin of a change by an operator: with a new request, or with the request of an earlier change.
    fn change(&mut self, kind: usize, again: bool) -> ChangeOrigin {
        if !again || self.changes[kind].is_empty() {
            let request = self.fresh();
            self.changes[kind].push(request);
        }
        let made = &self.changes[kind];
        let back = if again { self.made as usize % made.len().min(40) } else { 0 };
        let request = made[made.len() - 1 - back].clone();
        ChangeOrigin { by: label(self.made), request }
    }

    fn named(&mut self, naming: &Naming) -> Known {
        let from = |list: &[Known], pick: usize| list.get(pick % list.len().max(1)).cloned();
        let (found, pick) = match *naming {
            Naming::Known(pick) => (from(&self.known, pick), pick),
            Naming::Ended(pick) => (from(&self.ended, pick), pick),
            Naming::OtherRequest(pick) => {
                let mut known = from(&self.known, pick);
                let request = self.fresh();
                known.iter_mut().for_each(|known| known.renewal.request = request.clone());
                (known, pick)
            }
            Naming::Unknown(pick) => (None, pick),
        };
        found.unwrap_or_else(|| {
            let holder = Holder::new(HOLDERS[pick % HOLDERS.len()]).expect("holders are valid");
            let renewal = renewal(holder, self.fresh(), PermitTerms::new(1, 3_000), None);
            Known { session: 0, renewal }
        })
    }

    fn renewal(&mut self, naming: &Naming, claiming: &Claiming) -> RenewRequest {
        let mut renewal = self.named(naming).renewal;
        let invented = Grant { token: self.now_us, slot: 0 };
        let grant = renewal.grant.unwrap_or(invented);
        match *claiming {
            Claiming::AsKnown => {}
            Claiming::Nothing => renewal.grant = None,
            Claiming::OtherToken => renewal.grant = Some(Grant { token: grant.token - 1, ..grant }),
            Claiming::OtherSlot => renewal.grant = Some(Grant { slot: grant.slot + 1, ..grant }),
            Claiming::OtherWeight => renewal.terms.weight += 1,
            Claiming::Lighter => renewal.terms.weight = (renewal.terms.weight - 1).max(1),
            Claiming::Lease { lease_ms, later } => {
                renewal.terms.lease_ms = lease_ms;
                let version = renewal.lease_version;
                renewal.lease_version = if later { version + 1 } else { version.saturating_sub(1) };
            }
            Claiming::ByHandle => renewal.by_handle = true,
            Claiming::Counts { at_least_ms } => renewal.terms.at_least_ms = at_least_ms,
            Claiming::Invented { age_us, slot } => {
                renewal.grant = Some(Grant { token: self.now_us - age_us, slot });
            }
        }
        renewal
    }

    /// Updates the clients' knowledge by the reply and the events that reach them.
    pub(crate) fn learn(&mut self, step: &Step, command: &Command, reply: &Reply, events: &[Event]) {
        if step.hears != Hears::Nothing {
            self.learn_reply(step.session, command, reply);
        }
        if step.hears == Hears::All {
            for Event { holder, request, kind, .. } in events {
                match kind {
                    EventKind::Granted(grant) => self.holds(holder, request, *grant),
                    EventKind::Revoked(_)
                    | EventKind::Refused
                    | EventKind::Superseded
                    | EventKind::LineClosed(_) => {
                        self.end(holder, request);
                    }
                    EventKind::Turn(_) => {}
                }
            }
        }
    }

    fn learn_reply(&mut self, session: usize, command: &Command, reply: &Reply) {
        match (&command.operation, &reply.answers) {
            (Operation::Acquire { requests, .. }, Answers::Acquire(answers)) => {
                for (request, answer) in requests.iter().zip(answers) {
                    match answer {
                        AcquireOutcome::Granted(grant) => {
                            self.holds(&request.holder, &request.request, *grant)
                        }
                        AcquireOutcome::Waiting { .. } => {}
                        AcquireOutcome::Refused(_) => self.end(&request.holder, &request.request),
                    }
                }
            }
            (Operation::Release(releases), _) => {
                for release in releases {
                    self.end(&release.holder, &release.request);
                }
            }
            (Operation::Renew(renewals), Answers::Renew(answers)) => {
                for (renewal, answer) in renewals.iter().zip(answers) {
                    self.learn_renewed(session, renewal, answer);
                }
            }
            (Operation::Adopt(adopt), Answers::Adopt(true)) => {
                let AdoptRequest { holder, request, terms, grant, new_request, .. } = adopt.clone();
                self.end(&holder, &request);
                let renewal = renewal(holder, new_request, terms, Some(grant));
                self.known.push(Known { session, renewal });
            }
            _ => {}
        }
    }

    fn learn_renewed(&mut self, session: usize, renewal: &RenewRequest, answer: &RenewOutcome) {
        match answer {
            RenewOutcome::Lost | RenewOutcome::ExceedsLimit | RenewOutcome::LineClosed(_) => {
                self.end(&renewal.holder, &renewal.request)
            }
            RenewOutcome::RetryLater => {}
            RenewOutcome::Held | RenewOutcome::Granted(_) | RenewOutcome::Waiting { .. } => {
                let mut renewal = RenewRequest { by_handle: false, ..renewal.clone() };
                if let RenewOutcome::Granted(grant) = answer {
                    renewal.grant = Some(*grant);
                }
                match self.known.iter_mut().find(|known| known.renewal.request == renewal.request) {
                    Some(known) => *known = Known { session, renewal },
                    None => self.known.push(Known { session, renewal }),
                }
            }
        }
    }

    fn holds(&mut self, holder: &Holder, request: &RequestId, grant: Grant) {
        let mut known = self.known.iter_mut();
        if let Some(known) = known.find(|known| known.is(holder, request)) {
            known.renewal.grant = Some(grant);
        }
    }

    fn end(&mut self, holder: &Holder, request: &RequestId) {
        if let Some(at) = self.known.iter().position(|known| known.is(holder, request)) {
            let known = self.known.remove(at);
            self.ended.push(known);
            if self.ended.len() > 16 {
                self.ended.remove(0);
            }
        }
    }
}

fn renewal(holder: Holder, request: RequestId, terms: PermitTerms, grant: Option<Grant>) -> RenewRequest {
    let terms = PermitTerms { label: label(1), ..terms };
    RenewRequest::new(holder, request, terms, grant)
}

/// An empty label for every second number.
fn label(number: u64) -> Label {
    Label::new(if number.is_multiple_of(2) { "" } else { "night run %s, 50 %" }).expect("it is valid")
}

/// The declaration of a step. Most declarations that require a limit require the stored one, as programs do
/// that agree.
fn declared(declaration: Declaration, state: Option<&State>) -> Declaration {
    match (declaration, state) {
        (Declaration::Require(limit), Some(state)) if limit > 1 => Declaration::Require(state.limit.max(1)),
        _ => declaration,
    }
}

/// The lane of a request, its share, its limit and its floor. Some requests in a row name no lane, and the
/// next ones name several. Every way to make a request refuses a share or a bound without a lane, and a floor
/// above its limit.
fn lane(number: u64) -> (LaneName, u32, [u32; 2]) {
    let (lane, share) = match (number / 16 % 3, number % 7) {
        (0, _) | (_, 0) => ("", 1),
        (_, 1..4) => (LANES[0], 1),
        (_, 4) => (LANES[1], 3),
        _ => (LANES[2], 1),
    };
    let limit = match (number / 48 % 4, number % 11) {
        (0, _) | (_, 0) => 0,
        (1, 1..10) => 1,
        (_, 1..3) => 3,
        _ => 2,
    };
    let floor = match (number / 96 % 3, number % 13) {
        (0, _) | (_, 0..5) => 0,
        (_, 5..9) => 1,
        _ => 2,
    };
    let floor = if limit > 0 { limit.min(floor) } else { floor };
    (LaneName::new(lane).expect("it is valid"), share, if lane.is_empty() { [0, 0] } else { [limit, floor] })
}

/// The bound of the lane's line that a request names, or 0. Only some of the requests with a lane name a
/// bound.
fn lane_waiters(terms: &PermitTerms, number: u64) -> u32 {
    match (number / 32 % 8, number % 4) {
        (1, 1) if !terms.lane.as_str().is_empty() => 1 + u32::from(number.is_multiple_of(3)),
        _ => 0,
    }
}

/// What is left after the loss of keys. An inspection leaves a damaged state as it is, and the model does not
/// know what else may be lost of it.
pub(crate) fn lose(state: State, bits: u8) -> Option<State> {
    if state.damage.is_some() { Some(state) } else { state.lose(&parts(bits)) }
}

/// Returns, for some permits that may be kept, a token that the session has used.
fn last_used(renewal: &RenewRequest) -> Option<u64> {
    let used = renewal.grant.filter(|grant| renewal.terms.keep && grant.token.is_multiple_of(2));
    used.map(|grant| grant.token + u64::from(grant.slot) * 100)
}

/// The release of a permit.
fn release(renewal: &RenewRequest) -> ReleaseRequest {
    let last_token = last_used(renewal);
    // Sometimes with the units that it really cost.
    let cost = renewal.grant.map_or(3, |grant| grant.token % 8);
    let counted = u32::try_from(cost).ok().filter(|cost| cost % 2 == 0).map(|cost| cost / 2 * 3);
    ReleaseRequest { last_token, counted, ..RequestKey::from(renewal).into() }
}
