//! The store, the clients, and everything on its way between them; and the effect of each step.
//!
//! The store is `permits_core::model::apply` on the model's own state. A tick is a third of a lease or less;
//! the steps within one have an order and take no time. The clocks of clients are slow by 1 %, which is what
//! the margin of a lease covers.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use permits_core::keeping::Notice;
use permits_core::model::{ServerClock, State, keepable_limit, recalls};
use permits_core::protocol::{
    AcquireOutcome, AcquireRequest, Answers, Command, Declaration, Event, EventKind, Grant, Holder, LaneName,
    LimitChange, Name, Operation, PermitTerms, ReleaseOutcome, RenewOutcome, RenewRequest,
    Reply as StoreReply, RequestId, RequestKey, SessionId, SupersedeKey,
};
use permits_testkit::history::step::Step;

use super::canonical;
use super::client::{Call, Circumstances, Client, Entry, KINDS, Kind, Outcome, Reply};
use super::properties::{self, Broken};
use super::scope::{Budget, ENDLESS, Memory, Scope};
use super::steps::Action;

/// The shortest recovery window is one tick.
pub(crate) const TICK_MS: u64 = 1000;

/// The server's clock at tick 0.
const EPOCH_MS: u64 = 1_800_000_000_000;

/// The first tick: the server is old by then.
const BEGIN: u32 = 1000;

/// A push of a grant to a client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Message {
    pub(crate) client: usize,
    pub(crate) request: u8,
    pub(crate) grant: Grant,
    /// The run of the server that sent it.
    pub(crate) run: u32,
}

/// A recall on its way to a client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Recall {
    pub(crate) client: usize,
    /// When it was sent, by the server's clock.
    pub(crate) at_us: u64,
}

/// A call that its client has given up, and that still arrives.
#[derive(Debug, Clone)]
pub(crate) struct Late {
    pub(crate) client: usize,
    pub(crate) kind: Kind,
    pub(crate) call: Call,
}

/// Everything.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) now: u32,
    /// Commands executed in this tick, each a microsecond after the one before.
    commands: u32,
    pub(crate) state: Arc<Option<State>>,
    /// The state of a replica.
    pub(crate) saved: Option<Arc<Option<State>>>,
    pub(crate) run: u32,
    pub(crate) up_since: u32,
    /// The last loss of state.
    pub(crate) forgot: Option<u32>,
    pub(crate) clients: Vec<Client>,
    pub(crate) late: Vec<Late>,
    pub(crate) messages: Vec<Message>,
    pub(crate) recalls: Vec<Recall>,
    /// Recalls that were lost, or that a flush has prevented. No later reply has reached their clients.
    pub(crate) lost_recalls: Vec<Recall>,
    /// Requests that the store holds without their session ever being notified: the push was lost, or a call
    /// that the client had given up was granted.
    pub(crate) unannounced: Vec<(usize, u8)>,
    pub(crate) left: Budget,
    pub(crate) limit: u32,
    /// The highest token ever granted by the store.
    pub(crate) last_token: u64,
    /// The last token granted for each slot, by the store or by a client.
    pub(crate) last_of_slots: BTreeMap<u32, u64>,
    pub(crate) broken: Broken,
    /// The key of all equivalent worlds.
    key: u128,
}

impl World {
    pub(crate) fn new(scope: &Scope) -> Self {
        let mut world = Self {
            now: BEGIN,
            commands: 0,
            state: Arc::new(None),
            saved: None,
            run: 0,
            up_since: 0,
            forgot: None,
            clients: vec![Client::default(); scope.weights.len()],
            late: Vec::new(),
            messages: Vec::new(),
            recalls: Vec::new(),
            lost_recalls: Vec::new(),
            unannounced: Vec::new(),
            left: scope.budget,
            limit: scope.limit,
            last_token: 0,
            last_of_slots: BTreeMap::new(),
            broken: Broken::default(),
            key: 0,
        };
        scope.begin.iter().for_each(|action| world.take(scope, *action));
        world.settle(scope);
        world
    }

    pub(crate) fn now_ms(&self) -> u64 {
        EPOCH_MS + u64::from(self.now) * TICK_MS
    }

    pub(crate) fn now_us(&self) -> u64 {
        assert!(self.commands < 1000, "all of a tick is at one millisecond");
        self.now_ms() * 1000 + u64::from(self.commands)
    }

    /// The circumstances of a client, by its number.
    fn known<'a>(&self, scope: &'a Scope) -> impl Fn(usize) -> Circumstances + use<'a> {
        let (now, &Scope { keep, behaviour, .. }) = (self.now, scope);
        move |client| Circumstances { now, lease: scope.lease_of(client), keep, behaviour }
    }

    /// After a step: checks the properties of the state, and computes its key.
    fn settle(&mut self, scope: &Scope) {
        let stored = self.state.as_ref().as_ref().map(|state| &state.entries);
        self.unannounced.retain(|(client, request)| {
            stored.is_some_and(|entries| entries.contains_key(&holder(*client, *request)))
        });
        self.unannounced.sort_unstable();
        self.unannounced.dedup();
        properties::judge_world(self, scope);
        self.key = canonical::key(self, scope);
    }

    /// Takes a step.
    pub(crate) fn step(&self, scope: &Scope, action: Action) -> Self {
        let mut next = self.clone();
        next.take(scope, action);
        next.settle(scope);
        next
    }

    /// Takes a step without checking the state.
    pub(crate) fn take(&mut self, scope: &Scope, action: Action) {
        let known = self.known(scope);
        match action {
            Action::Acquire(client) => {
                self.left.acquisitions -= 1;
                if self.clients[client].keeps() {
                    let granted = self.clients[client].grant_again(known(client));
                    granted.into_iter().for_each(|grant| properties::judge_token(self, grant));
                } else {
                    self.clients[client].acquire(known(client));
                }
            }
            Action::Ask(client) => self.clients[client].send_acquire(known(client)),
            Action::Renew(client) => self.clients[client].renew(known(client)),
            Action::Release(client) => {
                // Each step takes a microsecond at least.
                self.commands += u32::from(scope.keep);
                let granted = self.clients[client].entry.as_ref().and_then(Entry::held);
                let passed = granted.map_or(0, |(grant, _)| self.now_us().saturating_sub(grant.token));
                self.clients[client].release(Duration::from_micros(passed), known(client));
            }
            Action::GiveBack(client) => self.clients[client].give_back(known(client)),
            Action::SendRelease(client) => self.clients[client].send_release(known(client)),
            Action::Cancel(client) => {
                self.left.cancels -= 1;
                self.clients[client].cancel(known(client));
            }
            Action::Crash(client) => self.crash(client),
            Action::Execute(client, kind) => {
                let call = self.clients[client].call(kind).expect("it is on its way").clone();
                let (outcome, reply, now_us) = self.execute(scope, client, kind, &call);
                let (keepable, limit) = (reply.keepable, reply.limit);
                let reply = Reply { outcome, now_us, run: self.run, keepable, limit };
                if let Some(call) = &mut self.clients[client].calls[kind as usize] {
                    call.reply = Some(reply);
                }
            }
            Action::ExecuteLate(number) => {
                let Late { client, kind, call } = self.late.remove(number);
                let (outcome, ..) = self.execute(scope, client, kind, &call);
                let granted = matches!(
                    outcome,
                    Outcome::Acquired(AcquireOutcome::Granted(_))
                        | Outcome::Renewed(RenewOutcome::Held | RenewOutcome::Granted(_))
                );
                if granted {
                    self.unannounced.push((client, call.request));
                }
            }
            Action::Return(client, kind) => {
                let returned = self.clients[client].call(kind).and_then(|call| call.reply.as_ref());
                let (returned_us, run) = returned.map_or((0, self.run), |reply| (reply.now_us, reply.run));
                self.lost_recalls.retain(|lost| lost.client != client || lost.at_us > returned_us);
                self.clients[client].on_return(kind, known(client));
                if run < self.run {
                    // The end of its connection is behind it.
                    self.clients[client].note(Notice::Unsure, known(client));
                }
            }
            Action::Lose(client, kind) => {
                self.left.losses -= 1;
                self.clients[client].on_failure(kind, known(client));
            }
            Action::GiveUp(client, kind) => {
                self.left.losses -= 1;
                let call = self.clients[client].call(kind).expect("it is on its way").clone();
                self.late.push(Late { client, kind, call });
                self.clients[client].on_failure(kind, known(client));
            }
            Action::Push(number) => {
                let Message { client, request, grant, .. } = self.messages.remove(number);
                self.clients[client].on_push(request, grant, known(client));
            }
            Action::LoseMessage(number) => {
                self.left.losses -= 1;
                let Message { client, request, .. } = self.messages.remove(number);
                self.unannounced.push((client, request));
            }
            Action::Recall(number) => {
                let Recall { client, .. } = self.recalls.remove(number);
                self.clients[client].note(Notice::Recall, known(client));
            }
            Action::LoseRecall(number) => {
                self.left.losses -= 1;
                self.lost_recalls.push(self.recalls.remove(number));
            }
            Action::Tick => {
                if self.left.delays != ENDLESS && !self.is_punctual() {
                    self.left.delays -= 1;
                }
                self.tick(scope);
            }
            Action::Restart(memory) => self.restart(scope, memory),
            Action::Replicate => self.saved = Some(self.state.clone()),
            Action::SetLimit => {
                self.left.limits -= 1;
                self.limit = scope.other_limit;
                let (request, change) = (request(0, 0), LimitChange::Set(self.limit));
                let limit = Operation::SetLimit { origin: request.into(), change, expected_version: None };
                self.send(scope, 0, Declaration::Stored, limit);
            }
        }
    }

    /// The process is gone, but the calls that it has sent are not. A new one takes its place.
    fn crash(&mut self, number: usize) {
        self.left.crashes -= 1;
        let client = &mut self.clients[number];
        let made = client.made;
        let calls = std::mem::take(&mut client.calls);
        *client = Client { made, crashed: made, ..Client::default() };
        for (kind, call) in KINDS.into_iter().zip(calls) {
            if let Some(call) = call.filter(|call| call.reply.is_none()) {
                self.late.push(Late { client: number, kind, call });
            }
        }
        self.messages.retain(|message| message.client != number);
        self.recalls.retain(|recall| recall.client != number);
        self.lost_recalls.retain(|lost| lost.client != number);
    }

    fn tick(&mut self, scope: &Scope) {
        self.now += 1;
        self.commands = 0;
        let known = self.known(scope);
        for (number, client) in self.clients.iter_mut().enumerate() {
            client.pass(known(number));
        }
    }

    fn restart(&mut self, scope: &Scope, memory: Memory) {
        self.left.restarts -= 1;
        if memory != Memory::All {
            self.forgot = Some(self.now);
        }
        match memory {
            Memory::All => {}
            Memory::Nothing | Memory::Flushed => self.state = Arc::new(None),
            Memory::Earlier => self.state = self.saved.take().expect("there is a replica"),
        }
        if memory == Memory::Flushed {
            // Nothing of what is kept is known any more.
            let at_us = self.now_us();
            self.lost_recalls = (0..self.clients.len()).map(|client| Recall { client, at_us }).collect();
            return;
        }
        self.tick(scope);
        self.run += 1;
        self.up_since = self.now;
        // Connections end. A call that was not executed never is; a reply that was sent may still arrive.
        self.late.clear();
        self.recalls.clear();
        self.lost_recalls.clear();
        let known = self.known(scope);
        for (number, client) in self.clients.iter_mut().enumerate() {
            client.note(Notice::Unsure, known(number));
            for kind in KINDS {
                if client.call(kind).is_some_and(|call| call.reply.is_none()) {
                    client.on_failure(kind, known(number));
                }
            }
        }
    }

    /// The store executes a call.
    pub(crate) fn execute(
        &mut self,
        scope: &Scope,
        client: usize,
        kind: Kind,
        call: &Call,
    ) -> (Outcome, StoreReply, u64) {
        let (holder, request) = (holder(client, call.request), request(client, call.request));
        let lease_ms = u64::from(scope.lease_of(client)) * TICK_MS;
        let at_least_ms = u64::from(scope.at_least) * TICK_MS;
        let (lane, share) = scope.lane(client);
        let terms = PermitTerms {
            at_least_ms,
            keep: scope.keep,
            lane: LaneName::new(lane).expect("it is valid"),
            share,
            supersede: SupersedeKey::new(if scope.keyed { "k" } else { "" }).expect("it is valid"),
            ..PermitTerms::new(scope.weights[client], lease_ms)
        };
        let fallback = Declaration::Fallback(scope.limit);
        let (declaration, operation) = match kind {
            Kind::Acquire => {
                let entry = self.clients[client].entry.as_ref();
                let supersedes = entry.is_none_or(|entry| entry.acquisition.last_answer_us == 0);
                let requests = vec![AcquireRequest { holder, request, terms, wait: true, supersedes }];
                (fallback, Operation::Acquire { queue_max: 100, requests })
            }
            Kind::Renew => {
                let (lease_version, grant, by_handle) = (0, call.grant, false);
                let renewal = RenewRequest { holder, request, terms, lease_version, grant, by_handle };
                (fallback, Operation::Renew(vec![renewal]))
            }
            Kind::Release => {
                (Declaration::Stored, Operation::Release(vec![RequestKey { holder, request }.into()]))
            }
        };
        let (reply, now_us) = self.send(scope, client, declaration, operation);
        let outcome = match reply.answers.clone() {
            Answers::Acquire(mut answers) => Outcome::Acquired(answers.remove(0)),
            Answers::Renew(mut answers) => Outcome::Renewed(answers.remove(0)),
            Answers::Release(was) => Outcome::Released(was != [ReleaseOutcome::Unknown]),
            other => panic!("{other:?}"),
        };
        (outcome, reply, now_us)
    }

    /// Sends a command to the store, and checks its effect.
    pub(crate) fn send(
        &mut self,
        scope: &Scope,
        client: usize,
        declaration: Declaration,
        operation: Operation,
    ) -> (StoreReply, u64) {
        self.commands += 1;
        let now_us = self.now_us();
        let run_id = format!("run{}", self.run);
        let uptime_ms = u64::from(self.now - self.up_since) * TICK_MS;
        let server = ServerClock { now_us, run_id: &run_id, uptime_ms };
        let command = Command {
            semaphore: Name::new("exports").expect("it is valid"),
            session: SessionId::new(&format!("s{client}")).expect("it is plain"),
            lease_ms: u64::from(scope.lease_of(client)) * TICK_MS,
            recovery: scope.recovery,
            declaration,
            operation,
        };
        let before = self.state.as_ref().clone();
        let mut after = before.clone();
        let (reply, events) = (scope.store)(&mut after, &server, &command);
        let keepable = keepable_limit(before.as_ref(), now_us);
        if scope.keep && recalls(keepable, after.as_ref(), &reply, now_us) {
            self.recall(after.as_ref(), now_us);
        }
        let before = before.filter(|state| !state.is_expired(now_us / 1000));
        let step = Step { now_us, before, command, reply, events, after };
        properties::judge_step(self, scope, &step);
        self.post(&step.events);
        self.state = Arc::new(step.after);
        (step.reply, now_us)
    }

    /// Sends recalls to the sessions that may keep grants.
    fn recall(&mut self, state: Option<&State>, at_us: u64) {
        for keeper in state.iter().flat_map(|state| state.keepers()) {
            let client = keeper.as_str()[1..].parse().expect("a number");
            self.recalls.push(Recall { client, at_us });
        }
    }

    /// Sends events to the sessions that still exist. A second message about a request replaces the first,
    /// which bounds their number.
    fn post(&mut self, events: &[Event]) {
        for event in events {
            let (client, request) = owner(&event.holder);
            if let EventKind::Granted(grant) = event.kind
                && request > self.clients[client].crashed
            {
                self.messages.retain(|message| (message.client, message.request) != (client, request));
                self.unannounced.retain(|unannounced| *unannounced != (client, request));
                self.messages.push(Message { client, request, grant, run: self.run });
            }
        }
    }
}

pub(crate) fn holder(client: usize, request: u8) -> Holder {
    Holder::new(&format!("{client}.{request}")).expect("it is valid")
}

fn request(client: usize, request: u8) -> RequestId {
    RequestId::new(&format!("{client}.{request}")).expect("it is plain")
}

/// The client and the request of a holder.
pub(crate) fn owner(holder: &Holder) -> (usize, u8) {
    let holder = holder.original();
    let (client, request) = holder.as_str().split_once('.').expect("it has two parts");
    (client.parse().expect("a number"), request.parse().expect("a number"))
}

impl Hash for World {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.key.hash(hasher);
    }
}

impl PartialEq for World {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { now, state, clients, messages, late, .. } = self;
        write!(f, "tick {now}: {state:#?}\n{clients:#?}\n{messages:?}\n{late:?}\n{:?}", self.broken)
    }
}
