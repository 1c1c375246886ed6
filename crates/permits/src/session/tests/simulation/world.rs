//! The world of a simulation: clients with their drivers, one server that runs the model, and everything on
//! its way between them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use super::checks::{Seen, rises};
use super::client::{Client, Sent};
use super::ideas::Ideas;
use crate::clock::{Clock, Moment, SetClock};
use crate::model::State;
use crate::protocol::{Answers, Command, Name, Operation, Recovery, RenewOutcome, Reply, RequestId};
use crate::session::Config;
use crate::session::driver::Driver;
use crate::session::gathering::Sending;
use crate::session::tests::{Silent, config};
use crate::timing::SILENT_AFTER;
use permits_store::{Executed, Report, StoreError};

/// The semaphore that all requests are for, except that sets also have another one.
pub(super) const SIMULATED: &str = "simulated";

pub(super) const LIMIT: u32 = 3;
/// Longer than three windows after a restart.
pub(super) const LEASE: Duration = Duration::from_secs(18);
pub(super) const CLIENTS: usize = 4;

/// The shortest time of a request: the store counts leases by whole milliseconds.
pub(super) const FASTEST: Duration = Duration::from_millis(1);

/// A recall arrives within this time if there is no trouble: its own delay, and the delay of a reply before
/// it.
pub(super) const RECALL_ARRIVES_US: u64 = 5_000;

/// An event at a time of the simulation.
pub(super) enum Coming {
    Arrives(usize, Sent),
    /// A call that its caller has given up on still arrives, on a connection that has been replaced.
    ArrivesLate(Command),
    Returns(usize, Sent, Box<Result<Reply, StoreError>>),
    Reports(usize, Report),
    /// The tasks of a program run again, behind others.
    Continues(usize),
    Thaws(usize),
}

/// The nanoseconds that a client's clock counts in each million. In a sluggish world, some clocks are 1 %
/// slow.
pub(super) const RATES: [u128; 4] = [990_000, 1_000_000, 990_000, 1_000_000];
pub(super) const EXACT: u128 = 1_000_000;

pub(super) struct World {
    /// The seed of everything that is random in the world.
    pub(super) seed: u64,
    pub(super) random: fastrand::Rng,
    pub(super) now: Moment,
    /// The server's clock at the beginning, in microseconds, and the simulation's.
    pub(super) epoch_us: u64,
    pub(super) began: Moment,
    pub(super) states: BTreeMap<Name, Option<State>>,
    pub(super) run_id: u32,
    pub(super) server_began: Moment,
    pub(super) coming: BTreeMap<(Moment, u64), Coming>,
    pub(super) made: u64,
    pub(super) clients: Vec<Client>,
    pub(super) seen: Seen,
    /// The likelihood of each fault, in percent; 0 in the end.
    pub(super) trouble: u32,
    pub(super) recovery: Recovery,
    /// Some clocks are slow, and replies take up to the timeout of their calls.
    pub(super) sluggish: bool,
    /// The number of replicas that have to confirm each grant; and the requests that enough replicas have
    /// confirmed.
    pub(super) replicas: u32,
    pub(super) confirmed: BTreeSet<RequestId>,
    /// Each session hears of a semaphore in the order in which it happened, as from a `local:` store: what a
    /// command has caused comes before its reply, and so does what others did before it.
    pub(super) in_order: bool,
    /// The server does not execute what arrives before this time.
    pub(super) silent_until: Moment,
    /// The last token of each slot of [`SIMULATED`], by any client.
    pub(super) last_of_slots: BTreeMap<u32, u64>,
    /// Set if the programs and operators do all that they can.
    pub(super) ideas: Option<Ideas>,
    /// The runtime of all sessions. It runs nothing: the world is their time and their network.
    runtime: Runtime,
}

impl World {
    pub(super) fn new(seed: u64, trouble: u32, recovery: Recovery) -> Self {
        Self::with_clients(CLIENTS, seed, trouble, recovery)
    }

    pub(super) fn with_clients(clients: usize, seed: u64, trouble: u32, recovery: Recovery) -> Self {
        fastrand::seed(seed);
        let now = Moment::from_micros(1_000_000_000_000);
        let mut world = Self {
            seed,
            random: fastrand::Rng::with_seed(seed),
            now,
            epoch_us: 1_800_000_000_000_000,
            began: now,
            states: BTreeMap::new(),
            run_id: 0,
            server_began: now,
            coming: BTreeMap::new(),
            made: 0,
            clients: Vec::new(),
            seen: Seen::default(),
            trouble,
            recovery,
            sluggish: false,
            replicas: 0,
            confirmed: BTreeSet::new(),
            in_order: false,
            silent_until: now,
            last_of_slots: BTreeMap::new(),
            ideas: None,
            runtime: Builder::new_current_thread().build().expect("there is memory"),
        };
        world.add_clients(clients);
        // Make the server so old that it has nothing to recover. From now on clocks run apart.
        world.epoch_us += (2 * LEASE).as_micros() as u64;
        world.began = world.now + 2 * LEASE;
        world.pass_to(world.began);
        world
    }

    fn add_clients(&mut self, clients: usize) {
        for number in 0..clients {
            let client = self.new_client(number);
            self.clients.push(client);
            self.soon(1, Coming::Reports(number, Report::Up));
        }
    }

    /// A world in which a replica has to confirm each grant.
    pub(super) fn with_replicas(seed: u64, trouble: u32, recovery: Recovery) -> Self {
        let mut world = Self::with_clients(0, seed, trouble, recovery);
        world.replicas = 1;
        world.add_clients(CLIENTS);
        world
    }

    pub(super) fn new_client(&mut self, number: usize) -> Client {
        self.made += 1;
        let config = config(&format!("client{number}-{}", self.made), LEASE);
        let clock = SetClock::new(self.clock(number));
        let (recovery, replicas) = (self.recovery, self.replicas);
        let config = Config { recovery, replicas, clock: Clock::Set(clock), ..config };
        let (id, (session, driver)) = (config.session.clone(), Driver::new(config));
        let store = Arc::new(Silent { reports_all: self.chance(50), ..Silent::default() });
        let runtime = self.runtime.enter();
        driver.open(store.clone());
        drop(runtime);
        let shelf = session.shelf(&Name::new(SIMULATED).expect("valid"));
        Client {
            id,
            driver,
            session,
            clock,
            store,
            calls: BTreeMap::new(),
            woken: Arc::default(),
            pending: Vec::new(),
            held: Vec::new(),
            releasing: Vec::new(),
            acquiring: Vec::new(),
            sets: Vec::new(),
            adopting: Vec::new(),
            frozen: false,
            backlog: Vec::new(),
            connected: true,
            is_down: false,
            has_failed: false,
            heard_at: self.now,
            was_deaf: false,
            last_arrival: self.now,
            last_reply: self.now,
            last_recall: self.now,
            keep: Duration::ZERO,
            shelf,
        }
    }

    /// Lets half of the clients keep permits, for a time that is over before the next renewal.
    pub(super) fn let_some_keep(&mut self) {
        for number in 0..self.clients.len() {
            if self.chance(50) {
                self.clients[number].keep = Duration::from_millis(self.random.u64(1..2000));
            }
        }
    }

    /// The state of [`SIMULATED`].
    pub(super) fn state(&self) -> Option<&State> {
        self.states.get(&Name::new(SIMULATED).expect("valid"))?.as_ref()
    }

    pub(super) fn rate(&self, client: usize) -> u128 {
        if self.sluggish { RATES[client % RATES.len()] } else { EXACT }
    }

    /// The client's clock now.
    pub(super) fn clock(&self, client: usize) -> Moment {
        let elapsed = self.now.since(self.began).as_nanos() * self.rate(client) / EXACT;
        self.began + Duration::from_nanos(elapsed as u64)
    }

    /// The time of the world at which the client's clock shows `shown`.
    pub(super) fn when(&self, client: usize, shown: Moment) -> Moment {
        let elapsed = (shown.since(self.began).as_nanos() * EXACT).div_ceil(self.rate(client));
        self.began + Duration::from_nanos(elapsed as u64)
    }

    pub(super) fn pass_to(&mut self, at: Moment) {
        self.now = self.now.max(at);
        for number in 0..self.clients.len() {
            self.clients[number].clock.set(self.clock(number));
        }
    }

    pub(super) fn soon(&mut self, within_us: u64, coming: Coming) {
        self.made += 1;
        let delay = Duration::from_micros(self.random.u64(1..=within_us));
        self.coming.insert((self.now + delay, self.made), coming);
    }

    pub(super) fn chance(&mut self, percent: u32) -> bool {
        self.random.u32(0..100) < percent
    }

    pub(super) fn now_us(&self) -> u64 {
        self.epoch_us + self.now.since(self.began).as_micros() as u64
    }

    /// The network's delay: short, and under trouble now and then longer than a lease.
    pub(super) fn delay_us(&mut self) -> u64 {
        if self.trouble > 0 && self.chance(2) { 9_000_000 } else { 2_000 }
    }

    pub(super) fn feed(&mut self, number: usize, coming: Coming) {
        let now = self.clock(number);
        let client = &mut self.clients[number];
        if let Coming::Returns(_, call, _) = &coming
            && call.command.session != client.id
        {
            // The client has crashed, so nothing reaches it.
            return;
        }
        if client.frozen && !matches!(coming, Coming::Thaws(_)) {
            return client.backlog.push(coming);
        }
        self.note_silence(number);
        let client = &mut self.clients[number];
        match coming {
            Coming::Returns(_, call, result) => {
                // If the driver has given up on the call, it already knows the outcome.
                if client.calls.remove(&call.id).is_some() {
                    if is_watched(&call) {
                        client.heard_at = now;
                        client.has_failed |= result.is_err();
                    }
                    // The reply may have been on its way when the connection ended.
                    client.is_down &= result.is_err();
                    if call.command.semaphore.as_str() == SIMULATED && result.is_ok() {
                        // A request that does not wait is refused by a reply, too.
                        (client.has_failed, client.was_deaf) = (false, false);
                    }
                }
                // The replica is behind now and then.
                let is_behind = call.replicas > 0 && self.random.u32(0..10) == 0;
                let confirmed = if is_behind { 0 } else { call.replicas };
                if let (
                    true,
                    Ok(Reply { answers: Answers::Renew(outcomes), .. }),
                    Operation::Renew(renewals),
                ) = (confirmed > 0, &*result, &call.command.operation)
                {
                    let held = renewals.iter().zip(outcomes).filter(|(_, was)| **was == RenewOutcome::Held);
                    self.confirmed.extend(held.map(|(renewal, _)| renewal.request.clone()));
                }
                let result = result.map(|reply| Executed { reply, confirmed });
                client.report(Report::Outcome { id: call.id, result });
            }
            Coming::Reports(_, report) => {
                match &report {
                    Report::Up => (client.connected, client.is_down) = (true, false),
                    Report::Down(_) => (client.connected, client.is_down) = (false, true),
                    _ => {}
                }
                client.report(report);
            }
            Coming::Continues(_) => {}
            Coming::Thaws(_) => {
                client.frozen = false;
                for coming in std::mem::take(&mut client.backlog) {
                    self.feed(number, coming);
                }
                self.wake(number);
            }
            Coming::Arrives(..) | Coming::ArrivesLate(_) => unreachable!("they arrive at the server"),
        }
        self.run_tasks(number);
    }

    /// Lets the session's thread of a client do what is due by the client's clock.
    fn wake(&mut self, number: usize) {
        self.note_silence(number);
        self.clients[number].driver.step(Sending::AtOnce, |_, _| ());
    }

    /// Notes whether the client's engine would know of an outage if it checked the times of callers now.
    fn note_silence(&mut self, number: usize) {
        let (now, deaf) = (self.clock(number), self.is_deaf(number));
        let client = &mut self.clients[number];
        client.was_deaf = deaf;
        if !client.store.reports_all {
            let given_up: Vec<_> = client.calls.extract_if(.., |_, call| call.until <= now).collect();
            if given_up.iter().any(|(_, call)| is_watched(call)) {
                (client.heard_at, client.has_failed) = (now, true);
            }
        }
    }

    /// Returns true if the client knows of an outage, or has calls in flight and has had no reply for some
    /// time.
    fn is_deaf(&self, number: usize) -> bool {
        let client = &self.clients[number];
        let first = client.calls.values().filter(|call| is_watched(call)).map(|call| call.at).min();
        let silent = |first: Moment| self.clock(number).since(first.max(client.heard_at)) >= SILENT_AFTER;
        client.is_down || client.has_failed || !client.pending.is_empty() && first.is_some_and(silent)
    }

    /// Lets the tasks of a client's program run, and take their permits.
    pub(super) fn run_tasks(&mut self, number: usize) {
        let now = self.clock(number);
        let client = &mut self.clients[number];
        client.woken.take();
        let waker = Waker::from(client.woken.clone());
        let context = &mut Context::from_waker(&waker);
        let mut refusals = Vec::new();
        for mut pending in std::mem::take(&mut client.pending) {
            match pending.poll(context) {
                Poll::Ready(Ok(held)) => {
                    assert!(held.state.deadline(now).is_some(), "P3: reported as held after its deadline");
                    let confirmed = self.replicas == 0 || self.confirmed.contains(&held.state.request);
                    assert!(confirmed, "a grant that no replica has was delivered (seed {})", self.seed);
                    self.seen.granted += 1;
                    rises(&mut self.last_of_slots, &self.ideas, &held);
                    client.held.push(held);
                }
                Poll::Ready(Err(error)) => refusals.push(error),
                Poll::Pending => client.pending.push(pending),
            }
        }
        client.releasing.retain_mut(|release| release.as_mut().poll(context).is_pending());
        client.has_failed &= !client.pending.is_empty();
        for error in refusals {
            self.check_refusal(number, error);
        }
        self.take_more(number, context);
        if self.clients[number].woken.take() {
            self.seen.gathered += 1;
            self.soon(1_000, Coming::Continues(number));
        }
        self.take_calls(number);
    }

    /// Continues to the next thing that arrives, or to the next timer of an engine.
    pub(super) fn advance(&mut self) {
        let next_coming = self.coming.keys().next().map(|(at, _)| *at);
        let awake = (0..self.clients.len()).filter(|number| !self.clients[*number].frozen);
        let next_alarm =
            awake.filter_map(|n| Some((self.when(n, self.clients[n].driver.next_time()?), n))).min();
        match (next_coming, next_alarm) {
            (Some(at), alarm) if alarm.is_none_or(|(alarm, _)| at <= alarm) => {
                self.pass_to(at);
                let Some((_, coming)) = self.coming.pop_first() else { return };
                match coming {
                    Coming::Arrives(client, call) => self.arrives(client, call),
                    Coming::ArrivesLate(command) => drop(self.execute(&command)),
                    Coming::Returns(client, ..)
                    | Coming::Reports(client, _)
                    | Coming::Continues(client)
                    | Coming::Thaws(client) => self.feed(client, coming),
                }
            }
            (_, Some((at, client))) => {
                self.pass_to(at);
                self.wake(client);
                self.run_tasks(client);
            }
            _ => self.pass_to(self.now + Duration::from_millis(1)),
        }
    }
}

/// Returns true if it is a call about the requests for [`SIMULATED`].
fn is_watched(call: &Sent) -> bool {
    let is_of_requests = matches!(
        call.command.operation,
        Operation::Acquire { .. } | Operation::Release(_) | Operation::Renew(_)
    );
    call.command.semaphore.as_str() == SIMULATED && is_of_requests
}
