//! The key of a world: worlds that differ only in details without an effect have the same key.
//!
//! Times count from now, and all times more than a lease ago are one; requests are numbered by how many their
//! client has made since, tokens and tickets by their order; the progress of lanes counts from the first one;
//! clients of the same weight, lane and lease are interchangeable. Fields of the model that serve operators
//! or other commands (sequence, versions) are left out.
//!
//! So endless renewals and ticks return to a known key, and the exploration covers every reachable world.

use std::hash::{DefaultHasher, Hash, Hasher};

use permits_core::acquisition::Stage;
use permits_core::model::{EntryState, Lane, Lanes, PAUSED, Progress, State};
use permits_core::protocol::{AcquireOutcome, EventKind, Grant, RenewOutcome};

use super::client::{Call, Client, Entry, Kind, Outcome, OwnTerms, tick};
use super::holders::Handle;
use super::scope::{Budget, Change, Scope};
use super::server::owner;
use super::world::{Message, Revoked, TICK_MS, World};

/// Equal for equivalent worlds; different for others, except by a collision of 128 bits.
pub(crate) fn key(world: &World, scope: &Scope) -> u128 {
    let tokens = tokens(world, scope);
    let orders = orders(scope);
    let written = orders.iter().map(|order| {
        let mut writer = Writer { world, scope, tokens: &tokens, order, bytes: Vec::with_capacity(256) };
        writer.world();
        writer.bytes
    });
    let least = written.min().expect("there is an order");
    let part = |seed: u8| {
        let mut hasher = DefaultHasher::new();
        (seed, &least).hash(&mut hasher);
        u128::from(hasher.finish())
    };
    part(0) << 64 | part(1)
}

/// The permutations of clients that keep each weight, lane and lease in its place.
fn orders(scope: &Scope) -> Vec<Vec<usize>> {
    let terms = |client: usize| {
        let revoked = scope.changes.contains(&Change::Revoke(client));
        let own = (scope.weights[client], scope.lane(client), scope.lease_of(client));
        (own, scope.tries.contains(&client), revoked)
    };
    let clients = 0..scope.weights.len();
    let mut orders = vec![Vec::new()];
    for place in clients.clone() {
        let extended = |order: &Vec<usize>| {
            let order = order.clone();
            clients
                .clone()
                .filter(|client| !order.contains(client) && terms(*client) == terms(place))
                .map(|client| order.iter().copied().chain([client]).collect())
                .collect::<Vec<_>>()
        };
        orders = orders.iter().flat_map(extended).collect();
    }
    orders
}

/// All tokens, and the values that they are compared with, sorted.
fn tokens(world: &World, scope: &Scope) -> Vec<u64> {
    let mut tokens = Vec::new();
    let states = [Some(&world.state), world.saved.as_ref()];
    for state in states.into_iter().flatten().filter_map(|state| state.as_ref().as_ref()) {
        tokens.push(state.last_token);
        if era_counts(world, scope, state) {
            tokens.extend([state.era_known, state.era_began_us]);
        }
        let taken = state.entries.values().filter_map(|entry| entry.place.taken());
        tokens.extend(taken.map(|grant| grant.token));
    }
    for client in &world.clients {
        if let Some(grant) = client.entry.as_ref().and_then(|entry| entry.acquisition.grant()) {
            tokens.push(grant.token);
            tokens.extend(client.entry.as_ref().and_then(Entry::granted).map(|grant| grant.token));
        }
        tokens.extend(client.calls.iter().flatten().flat_map(tokens_of));
    }
    tokens.extend(world.late.iter().flat_map(|late| tokens_of(&late.call)));
    tokens.extend(world.messages.iter().filter_map(|message| Some(message.grant()?.token)));
    tokens.extend(world.handle.map(|handle| handle.grant.token));
    tokens.extend(world.revoked.iter().chain(&world.untold).map(|revoked| revoked.grant.token));
    tokens.sort_unstable();
    tokens.dedup();
    tokens
}

fn tokens_of(call: &Call) -> impl Iterator<Item = u64> {
    let told = match call.reply.as_ref().map(|reply| &reply.outcome) {
        Some(
            Outcome::Acquired(AcquireOutcome::Granted(grant))
            | Outcome::Renewed(RenewOutcome::Granted(grant)),
        ) => Some(grant.token),
        _ => None,
    };
    call.grant.map(|grant| grant.token).into_iter().chain(told)
}

/// Returns true if a holder from before the era can still be put back.
fn era_counts(world: &World, scope: &Scope, state: &State) -> bool {
    world.now_ms() < state.era_began_us / 1000 + u64::from(scope.longest()) * TICK_MS
}

struct Writer<'a> {
    world: &'a World,
    scope: &'a Scope,
    tokens: &'a [u64],
    order: &'a [usize],
    bytes: Vec<u8>,
}

impl Writer<'_> {
    fn put(&mut self, byte: impl TryInto<u8>) {
        self.bytes.push(byte.try_into().unwrap_or_else(|_| panic!("it is small")));
    }

    fn flag(&mut self, flag: bool) {
        self.bytes.push(flag.into());
    }

    /// A tick, from now; all ticks a lease ago or longer are one.
    fn tick(&mut self, tick: u32) {
        let oldest = self.world.now - self.scope.lease.max(self.scope.new_lease);
        self.put(tick.max(oldest) - oldest);
    }

    /// A server time, from now; all past times are one.
    fn until(&mut self, at_ms: u64) {
        self.put(at_ms.saturating_sub(self.world.now_ms()).div_ceil(TICK_MS));
    }

    fn token(&mut self, token: u64) {
        self.put(self.tokens.binary_search(&token).expect("it was collected"));
    }

    fn grant(&mut self, grant: Grant) {
        self.token(grant.token);
        self.put(grant.slot);
    }

    fn client(&mut self, client: usize) {
        self.put(self.order.iter().position(|other| *other == client).expect("it has a place"));
    }

    fn request(&mut self, client: usize, request: u8) {
        self.client(client);
        self.put(self.world.clients[client].made - request);
    }

    fn world(&mut self) {
        let world = self.world;
        self.bytes.extend(world.broken.bits().to_le_bytes());
        let Budget { acquisitions, losses, delays, cancels, crashes, .. } = world.left;
        self.bytes.extend([acquisitions, losses, delays, cancels, crashes]);
        let Budget { restarts, limits, operators, terms, shortages, hand_overs, .. } = world.left;
        self.bytes.extend([restarts, limits, operators, terms, shortages, hand_overs]);
        self.put(world.limit);
        // Older than any window it is old.
        self.put((world.now - world.up_since).min(self.scope.window()));
        self.flag(world.run == 0);
        self.tick(world.forgot.unwrap_or(0));
        self.state(world.state.as_ref().as_ref());
        self.flag(world.saved.is_some());
        if let Some(saved) = &world.saved {
            self.state(saved.as_ref().as_ref());
        }
        for &client in self.order {
            self.client_state(client, &world.clients[client]);
        }
        self.on_the_way();
    }

    /// Late calls and messages, which have no order.
    fn on_the_way(&mut self) {
        let before = std::mem::take(&mut self.bytes);
        let mut parts = Vec::new();
        for late in &self.world.late {
            self.client(late.client);
            self.put(late.kind as usize);
            self.call(late.client, &late.call);
            parts.push(std::mem::take(&mut self.bytes));
        }
        for message in &self.world.messages {
            self.put(KIND_OF_MESSAGE);
            self.request(message.client, message.request);
            self.message(message);
            self.flag(message.run == self.world.run);
            parts.push(std::mem::take(&mut self.bytes));
        }
        if let Some(Handle { owner: (client, request), terms, grant, until, is_held, .. }) = self.world.handle
        {
            self.put(KIND_OF_HANDLE);
            self.request(client, request);
            self.terms(terms);
            self.grant(grant);
            self.tick(until);
            self.flag(is_held);
            parts.push(std::mem::take(&mut self.bytes));
        }
        let coming = self.world.recalls.iter().map(|recall| (KIND_OF_RECALL, recall));
        let lost = self.world.lost_recalls.iter().map(|recall| (KIND_OF_RECALL + 1, recall));
        for (kind, recall) in coming.chain(lost) {
            self.put(kind);
            self.client(recall.client);
            // The replies that it is behind.
            for call in &self.world.clients[recall.client].calls {
                let reply = call.as_ref().and_then(|call| call.reply.as_ref());
                self.flag(reply.is_some_and(|reply| reply.now_us < recall.at_us));
            }
            parts.push(std::mem::take(&mut self.bytes));
        }
        parts.sort_unstable();
        self.bytes = before;
        self.put(parts.len());
        self.bytes.extend(parts.concat());
    }

    /// Puts what a message tells, and its place in the order of arrivals.
    fn message(&mut self, message: &Message) {
        let client = &self.world.clients[message.client];
        match message.kind {
            EventKind::Granted(grant) => {
                self.put(0);
                self.grant(grant);
                // Whether it is older than the last reply to the client.
                let entry = client.entry.as_ref().filter(|entry| entry.request == message.request);
                self.flag(entry.is_some_and(|entry| grant.token <= entry.acquisition.last_answer_us));
            }
            EventKind::Revoked(_) => self.put(1),
            EventKind::Superseded => self.put(2),
            EventKind::LineClosed(_) => self.put(3),
            EventKind::Refused => self.put(4),
            EventKind::Turn(_) => unreachable!("it is not sent"),
        }
        if message.grant().is_some() && !self.scope.in_order {
            return;
        }
        let of_client = self.world.messages.iter().filter(|other| other.client == message.client);
        self.put(of_client.filter(|other| other.at_us < message.at_us).count());
        for call in &client.calls {
            let reply = call.as_ref().and_then(|call| call.reply.as_ref());
            self.flag(reply.is_some_and(|reply| reply.now_us < message.at_us));
        }
    }

    /// The terms of a permit, where they change.
    fn terms(&mut self, OwnTerms { weight, lease_ms, version }: OwnTerms) {
        if self.scope.budget.terms > 0 || self.scope.by_program {
            self.put(weight);
            self.put(lease_ms.div_ceil(TICK_MS));
            self.put(version);
        }
    }

    fn state(&mut self, state: Option<&State>) {
        self.flag(state.is_some());
        let Some(state) = state else { return };
        self.put(state.limit);
        self.flag(state.pinned);
        self.flag(state.closed.is_some());
        self.flag(state.paused_until_ms == PAUSED);
        self.until(if state.paused_until_ms == PAUSED { 0 } else { state.paused_until_ms });
        self.put(state.lease_max_ms / TICK_MS);
        // The expiry of a semaphore in use is extended again and again, so only its end counts.
        let expires = state.expires_ms.min(self.world.now_ms() + 2 * state.lease_max_ms);
        self.until(if state.pinned || state.lanes.pins() > 0 { 0 } else { expires });
        self.flag(state.server == format!("run{}", self.world.run));
        self.until(state.recovering_until_ms);
        self.until(state.kept_until_ms);
        self.token(state.last_token);
        let counts = era_counts(self.world, self.scope, state);
        self.flag(counts);
        if counts {
            self.token(state.era_known);
            self.token(state.era_began_us);
            self.until(state.era_began_us / 1000 + state.lease_max_ms);
        }
        self.put(state.held);
        self.put(state.slots_made);
        self.put(state.free.len());
        for (first, last) in &state.free {
            self.put(*first);
            self.put(*last);
        }
        self.entries(state);
        if self.scope.changes.contains(&Change::PinLane) {
            self.bounds(&state.lanes);
        }
        self.lanes(&state.lanes);
    }

    /// The bounds of lanes, where not all requests of a lane name the same.
    fn bounds(&mut self, lanes: &Lanes) {
        self.put(lanes.bounded().len());
        for bounds in lanes.bounded().values() {
            self.put(bounds.limit);
            self.put(bounds.held);
            self.flag(bounds.pinned);
        }
    }

    /// The lanes that wait, and the lanes that owe more than the first lane's progress.
    fn lanes(&mut self, lanes: &Lanes) {
        let waits = |lane: &Lane| match lane {
            Lane::Waits { progress, .. } => Some(*progress),
            Lane::Owes { .. } => None,
        };
        let Some(Progress(first)) = lanes.known().values().filter_map(waits).min() else { return };
        // Each side of a floor has a first progress of its own, so with floors the least of all is not
        // subtracted.
        let has_floor = lanes.bounded().values().any(|bounds| bounds.floor > 0);
        let first = if has_floor { 0.0 } else { first };
        for (name, lane) in lanes.known() {
            let (owes, Progress(progress)) = match lane {
                Lane::Waits { progress, side, other: Progress(other), .. } => {
                    self.put(*side as u32);
                    self.bytes.extend(other.to_bits().to_le_bytes());
                    (false, *progress)
                }
                Lane::Owes { until } => (true, *until),
            };
            if !owes || progress > first {
                self.bytes.extend(name.as_str().bytes());
                self.flag(owes);
                self.bytes.extend((progress - first).to_bits().to_le_bytes());
            }
        }
    }

    fn entries(&mut self, state: &State) {
        for holder in state.queue.values() {
            let (client, request) = owner(&state.entries[holder].request);
            self.request(client, request);
        }
        let mut entries: Vec<_> =
            state.entries.values().map(|entry| (owner(&entry.request), entry)).collect();
        entries.sort_by_key(|((client, request), _)| {
            (self.order.iter().position(|other| other == client), *request)
        });
        self.put(entries.len());
        for ((client, request), entry) in entries {
            self.request(client, request);
            self.until(entry.deadline.unsigned_abs());
            let (weight, lease_ms) = (entry.terms.weight, entry.terms.lease_ms);
            self.terms(OwnTerms { weight, lease_ms, version: entry.lease_version });
            match entry.place {
                EntryState::Holding(grant) => {
                    self.grant(grant);
                    if self.world.forgot.is_some() {
                        self.flag(grant.token > self.world.forgot_us);
                    }
                    if self.scope.at_least > 0 {
                        self.until(entry.counts_until_ms(self.world.now_ms()));
                    }
                }
                EntryState::Waiting(_) => self.put(u8::MAX),
                EntryState::Cooling(grant) => {
                    self.put(u8::MAX - 1);
                    self.grant(grant);
                }
            }
            self.flag(self.world.unannounced.contains(&(client, request)));
        }
    }

    fn client_state(&mut self, number: usize, client: &Client) {
        self.put(client.made - client.crashed);
        let allowed =
            (0..self.scope.limit.max(self.scope.other_limit)).filter(|slot| client.keeping.allows(*slot));
        self.put(allowed.count());
        self.flag(client.entry.is_some());
        if let Some(entry) = &client.entry {
            self.put(client.made - entry.request);
            self.flag(entry.acquisition.may_be_stored);
            self.tick(tick(entry.acquisition.extended_at));
            self.flag(entry.renewed < self.world.now);
            self.flag(entry.replied == self.world.run);
            self.terms(entry.terms);
            self.flag(entry.is_claimed);
            self.flag(entry.confirmed);
            match entry.stage() {
                Stage::Unsent => self.put(0),
                Stage::InFlight => self.put(1),
                Stage::Withdrawn { stored } => self.put(2 + u8::from(stored)),
                Stage::Waiting => self.put(4),
                Stage::Held(grant) => {
                    self.put(5);
                    self.grant(grant);
                    self.tick(entry.until);
                    self.flag(entry.kept);
                    self.put(entry.granted_again);
                }
                Stage::Unconfirmed(grant) => {
                    self.put(6);
                    self.grant(grant);
                }
                Stage::Ended => unreachable!("its entry is removed"),
            }
        }
        for revoked in [&self.world.revoked, &self.world.untold] {
            let of_client = revoked.iter().filter(|revoked| revoked.client == number);
            self.put(of_client.clone().count());
            for Revoked { request, grant, .. } in of_client {
                self.put(client.made - request);
                self.token(grant.token);
            }
        }
        self.flag(client.handed_over.is_some());
        if let Some(request) = client.handed_over {
            self.put(client.made - request);
        }
        self.put(client.releases.len());
        for release in &client.releases {
            self.put(client.made - release.request);
            self.tick(release.until);
            self.flag(release.sent);
        }
        let mut replied: Vec<u64> =
            client.calls.iter().flatten().filter_map(|call| Some(call.reply.as_ref()?.now_us)).collect();
        replied.sort_unstable();
        for call in &client.calls {
            if let Some(reply) = call.as_ref().and_then(|call| call.reply.as_ref())
                && self.scope.keep
            {
                self.put(replied.iter().position(|at_us| *at_us == reply.now_us).expect("it is one of them"));
            }
            self.flag(call.is_some());
            if let Some(call) = call {
                self.call(number, call);
            }
        }
    }

    fn call(&mut self, client: usize, call: &Call) {
        self.request(client, call.request);
        self.tick(call.sent);
        self.terms(call.terms);
        self.flag(call.grant.is_some());
        if let Some(grant) = call.grant {
            self.grant(grant);
        }
        self.flag(call.reply.is_some());
        let Some(reply) = &call.reply else { return };
        self.flag(reply.run == self.world.run);
        if self.scope.keep {
            self.flag(reply.keepable);
            self.put(reply.limit);
        }
        match &reply.outcome {
            Outcome::Acquired(AcquireOutcome::Granted(grant))
            | Outcome::Renewed(RenewOutcome::Granted(grant)) => {
                self.put(0);
                self.grant(*grant);
            }
            Outcome::Acquired(AcquireOutcome::Waiting { .. })
            | Outcome::Renewed(RenewOutcome::Waiting { .. }) => self.put(1),
            Outcome::Acquired(AcquireOutcome::Refused(_)) => self.put(2),
            Outcome::Adopted(adopted) => self.put(9 + u8::from(*adopted)),
            Outcome::Renewed(RenewOutcome::Held) => self.put(3),
            Outcome::Renewed(RenewOutcome::Lost) => self.put(4),
            Outcome::Renewed(RenewOutcome::RetryLater) => self.put(5),
            Outcome::Renewed(RenewOutcome::ExceedsLimit | RenewOutcome::LineClosed(_)) => self.put(6),
            Outcome::Released(ended) => self.put(7 + u8::from(*ended)),
        }
    }
}

/// Distinguishes a message from the kinds of calls.
const KIND_OF_MESSAGE: usize = Kind::Adopt as usize + 1;
const KIND_OF_HANDLE: usize = KIND_OF_MESSAGE + 1;
const KIND_OF_RECALL: usize = KIND_OF_HANDLE + 1;
