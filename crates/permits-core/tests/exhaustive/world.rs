//! The store, the clients, and everything on its way between them; and the effect of each step.
//!
//! The store is `permits_core::model::apply` on the model's own state. A tick is a third of a lease or less;
//! the steps within one have an order and take no time. The clocks of clients are slow by 1 %, which is what
//! the margin of a lease covers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use permits_core::keeping::Notice;
use permits_core::model::State;
use permits_core::protocol::{
    AcquireOutcome, Declaration, EventKind, Grant, LimitChange, Operation, RenewOutcome, Setting,
};

use super::canonical;
use super::client::{Call, Circumstances, Client, Entry, KINDS, Kind, Outcome, Reply};
use super::holders::Handle;
use super::properties::{self, Broken};
use super::scope::{Budget, ENDLESS, Memory, Scope};
use super::server::{owner, request};
use super::steps::Action;

/// The shortest recovery window is one tick.
pub(crate) const TICK_MS: u64 = 1000;

/// The server's clock at tick 0.
const EPOCH_MS: u64 = 1_800_000_000_000;

/// The first tick: the server is old by then.
const BEGIN: u32 = 1000;

/// A push of an event to a client.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    pub(crate) client: usize,
    pub(crate) request: u8,
    pub(crate) kind: EventKind,
    /// The server's time when it was sent.
    pub(crate) at_us: u64,
    /// The run of the server that sent it.
    pub(crate) run: u32,
}

impl Message {
    /// The grant that it tells of.
    pub(crate) fn grant(&self) -> Option<Grant> {
        match self.kind {
            EventKind::Granted(grant) => Some(grant),
            _ => None,
        }
    }
}

/// A grant that an operator has revoked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Revoked {
    pub(crate) client: usize,
    pub(crate) request: u8,
    pub(crate) grant: Grant,
}

impl Revoked {
    pub(crate) fn owner(self) -> (usize, u8) {
        (self.client, self.request)
    }
}

/// A recall on its way to a client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Recall {
    pub(crate) client: usize,
    /// The server's time when it was sent.
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
    /// The commands executed in this tick. Each is a microsecond later than the previous one.
    pub(crate) commands: u32,
    pub(crate) state: Arc<Option<State>>,
    /// The state of a replica.
    pub(crate) saved: Option<Arc<Option<State>>>,
    pub(crate) run: u32,
    pub(crate) up_since: u32,
    /// The last loss of state.
    pub(crate) forgot: Option<u32>,
    /// The server's time when it forgot.
    pub(crate) forgot_us: u64,
    pub(crate) clients: Vec<Client>,
    pub(crate) late: Vec<Late>,
    pub(crate) messages: Vec<Message>,
    pub(crate) recalls: Vec<Recall>,
    /// Recalls that were lost, or that a flush has prevented. No later reply has reached their clients.
    pub(crate) lost_recalls: Vec<Recall>,
    /// Requests that the store holds without their session ever being notified: the push was lost, or a call
    /// that the client had given up was granted.
    pub(crate) unannounced: Vec<(usize, u8)>,
    /// Permits that operators have revoked, and whose holders do not know it yet: the message is on its way,
    /// or was lost.
    pub(crate) revoked: Vec<Revoked>,
    pub(crate) untold: Vec<Revoked>,
    /// A permit that was handed over.
    pub(crate) handle: Option<Handle>,
    pub(crate) left: Budget,
    /// The changes that operators have made.
    pub(crate) changes: u8,
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
            forgot_us: 0,
            clients: vec![Client::default(); scope.weights.len()],
            late: Vec::new(),
            messages: Vec::new(),
            recalls: Vec::new(),
            lost_recalls: Vec::new(),
            unannounced: Vec::new(),
            revoked: Vec::new(),
            untold: Vec::new(),
            handle: None,
            left: scope.budget,
            changes: 0,
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

    /// Returns true if an operator has revoked this grant, and its holder does not know it.
    pub(crate) fn is_revoked(&self, grant: Grant) -> bool {
        self.revoked.iter().chain(&self.untold).any(|revoked| revoked.grant == grant)
    }

    /// The circumstances of a client, by its number.
    fn known<'a>(&self, scope: &'a Scope) -> impl Fn(usize) -> Circumstances + use<'a> {
        let (now, &Scope { keep, behaviour, replicas, by_program, .. }) = (self.now, scope);
        move |client| Circumstances {
            now,
            client,
            weight: scope.weights[client],
            lease: scope.lease_of(client),
            replicas,
            by_program,
            keep,
            behaviour,
        }
    }

    /// Ends a step: checks the properties of the state, and computes its key.
    fn settle(&mut self, scope: &Scope) {
        let stored = self.state.iter().flat_map(|state| state.entries.values());
        let stored: BTreeSet<(usize, u8)> = stored.map(|entry| owner(&entry.request)).collect();
        self.unannounced.retain(|request| stored.contains(request));
        self.unannounced.sort_unstable();
        self.unannounced.dedup();
        for revoked in [&mut self.revoked, &mut self.untold] {
            revoked.retain(|revoked| {
                let Client { entry, calls, .. } = &self.clients[revoked.client];
                let is_handed_over = self.handle.is_some_and(|handle| handle.owner == revoked.owner());
                is_handed_over
                    || entry.as_ref().is_some_and(|entry| entry.request == revoked.request)
                    || calls.iter().flatten().any(|call| call.request == revoked.request)
            });
        }
        // The owner of a handle may still try it for a while after its lease has ended.
        self.handle = self
            .handle
            .filter(|handle| self.now < handle.until + scope.lease || stored.contains(&handle.owner));
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
                    Outcome::Adopted(true)
                        | Outcome::Acquired(AcquireOutcome::Granted(_))
                        | Outcome::Renewed(RenewOutcome::Held | RenewOutcome::Granted(_))
                );
                if granted {
                    self.unannounced.push((client, call.request));
                }
            }
            Action::Return(client, kind) | Action::Short(client, kind) => {
                let confirmed = u32::from(!matches!(action, Action::Short(..)));
                self.left.shortages -= 1 - u8::from(confirmed > 0);
                if kind == Kind::Adopt {
                    self.handle = None;
                }
                let returned = self.clients[client].call(kind).and_then(|call| call.reply.as_ref());
                let (returned_us, run) = returned.map_or((0, self.run), |reply| (reply.now_us, reply.run));
                self.lost_recalls.retain(|lost| lost.client != client || lost.at_us > returned_us);
                self.clients[client].on_return(kind, confirmed, known(client));
                if run < self.run {
                    // The end of its connection is behind it.
                    self.clients[client].note(Notice::Unsure, known(client));
                    self.clients[client].claim();
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
                let Message { client, request, kind, .. } = self.messages.remove(number);
                if matches!(kind, EventKind::Revoked(_)) {
                    self.revoked.retain(|revoked| revoked.owner() != (client, request));
                }
                self.clients[client].on_push(request, kind, known(client));
            }
            Action::LoseMessage(number) => {
                self.left.losses -= 1;
                let Message { client, request, kind, .. } = self.messages.remove(number);
                match kind {
                    EventKind::Granted(_) => self.unannounced.push((client, request)),
                    EventKind::Revoked(_) => {
                        let untold = |revoked: &mut Revoked| revoked.owner() == (client, request);
                        self.untold.extend(self.revoked.extract_if(.., untold));
                    }
                    _ => {}
                }
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
                let setting = Setting::Limit { change, expected_version: None };
                let limit = Operation::Set { origin: request.into(), setting };
                self.send(scope, 0, Declaration::Stored, limit);
            }
            Action::Confirm(client) => self.clients[client].confirm(known(client)),
            Action::ReleasePart(client) => {
                self.left.terms -= 1;
                self.clients[client].release_part();
            }
            Action::SetLease(client) => {
                self.left.terms -= 1;
                self.clients[client].set_lease(scope.new_lease, known(client));
            }
            Action::HandOver(client) => {
                self.left.hand_overs -= 1;
                let entry = self.clients[client].entry.as_ref();
                self.handle = entry.and_then(|entry| {
                    let (grant, until) = entry.held()?;
                    let (owner, origin, terms) = ((client, entry.request), entry.origin, entry.terms);
                    Some(Handle { owner, origin, terms, grant, until, is_held: true })
                });
                self.clients[client].hand_over(known(client));
            }
            Action::RenewHandle => self.renew_handle(scope),
            Action::Adopt(client) => {
                if let Some(handle) = &mut self.handle {
                    handle.is_held = false;
                    self.clients[client].adopt(handle, known(client));
                }
            }
            Action::Operate(change) => self.operate(scope, change),
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
            self.forgot_us = self.now_us();
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
            client.claim();
            for kind in KINDS {
                if client.call(kind).is_some_and(|call| call.reply.is_none()) {
                    client.on_failure(kind, known(number));
                }
            }
        }
    }
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
