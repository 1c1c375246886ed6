//! The Lua of the Redis store equals the model, step by step.
//!
//! Random histories run on the model and on a real server at once, one command at a time, with the same fixed
//! clock and server identity. After every command the whole reply, the events of every session and the
//! contents of all keys must be equal, and the keys must expire when the model forgets the state. So the
//! properties that the test `properties` shows for the model hold for the server.
//!
//! `PERMITS_CASES` multiplies the number of histories; a history that failed is kept in
//! `differential.regressions` and tried first the next time.

mod support {
    #[path = "../../../permits-core/tests/support/coverage.rs"]
    pub(crate) mod coverage;
    pub(crate) mod dump;
    #[path = "../../../permits-core/tests/support/ideas.rs"]
    pub(crate) mod ideas;
    pub(crate) mod packed;
    #[path = "../../../permits-core/tests/support/run.rs"]
    pub(crate) mod run;
    #[path = "../../../permits-core/tests/support/simulation.rs"]
    pub(crate) mod simulation;
    #[path = "../../../permits-core/tests/support/steps.rs"]
    pub(crate) mod steps;
}

use std::cell::RefCell;

use permits_core::model::{self, State};
use permits_core::protocol::{Command, Event, LimitChange, Name, Reply};
use permits_redis::testing::{FixedClockStore, SERVER_KEY, keys_of};
use permits_store::Report;
use permits_testkit::{Connection, HANGS, Server};
use tokio::runtime::Runtime;
use tokio::time::timeout;

use support::coverage::{CROWDED, Coverage, SMALL};
use support::dump;
use support::run::cases_until;
use support::simulation::Simulation;
use support::steps::{
    Action, Ask, Asked, Claiming, Elapse, Fault, HOLDERS, History, Naming, SESSIONS, Step, Version,
    crowded_histories, histories, parts,
};

const PREFIX: &str = "permits-test";

/// A real server, and a store for each session.
struct Redis {
    connection: Connection,
    /// Subscribed to what recalls kept permits.
    recalls: Connection,
    stores: Vec<FixedClockStore>,
    // Dropped after the stores, which have tasks on it.
    runtime: Runtime,
    probes: u64,
    coverage: Coverage,
    steps: u64,
    _server: Server,
}

impl Redis {
    fn start() -> Self {
        let server = Server::start();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let connect = |session| {
            let url = server.url();
            let connecting = FixedClockStore::connect(&url, PREFIX, Simulation::session_id(session));
            runtime.block_on(connecting).expect("the server runs")
        };
        let stores = (0..SESSIONS).map(connect).collect();
        let connection = server.connect().expect("the server runs");
        let mut recalls = server.connect().expect("the server runs");
        recalls.call(&["PSUBSCRIBE", &format!("{PREFIX}:wake:recall:*")]).expect("it subscribes");
        Self {
            connection,
            recalls,
            stores,
            runtime,
            probes: 0,
            coverage: Coverage::default(),
            steps: 0,
            _server: server,
        }
    }

    fn call(&mut self, command: &[&str]) -> Result<(), String> {
        match self.connection.call(command) {
            Ok(permits_testkit::Resp::Error(error)) => Err(format!("{command:?}: {error}")),
            Ok(_) => Ok(()),
            Err(error) => Err(format!("{command:?}: {error}")),
        }
    }

    /// Runs one history from an empty server, comparing after each step.
    fn run(&mut self, history: &History) -> Result<(), String> {
        self.call(&["FLUSHALL"])?;
        for session in 0..SESSIONS {
            self.events_until_probe(session)?;
        }
        let mut simulation = Simulation::new(history.name);
        // A history that failed may have left a message unread.
        self.is_recalled(&simulation.name)?;
        let mut state = None;
        for (number, step) in history.steps.iter().enumerate() {
            self.step(&mut simulation, &mut state, step)
                .map_err(|reason| format!("at step {number}, {step:?}:\n{reason}"))?;
        }
        for session in 0..SESSIONS {
            let stray = self.events_until_probe(session)?;
            if !stray.is_empty() {
                return Err(format!("session {session} got events that the model did not send: {stray:?}"));
            }
        }
        Ok(())
    }

    fn step(
        &mut self,
        simulation: &mut Simulation,
        state: &mut Option<State>,
        step: &Step,
    ) -> Result<(), String> {
        // An inspection leaves a damaged state as it is, and the model does not know what is left of it.
        let is_damaged = state.as_ref().is_some_and(|state| state.damage.is_some());
        simulation.pass(step, state);
        match step.fault {
            Some(Fault::RestartEmpty { .. } | Fault::Flush) => self.call(&["FLUSHALL"])?,
            Some(Fault::LoseKeys(bits)) if !is_damaged => {
                let keys = keys_of(PREFIX, &simulation.name);
                for part in parts(bits) {
                    self.call(&["DEL", &keys[part as usize]])?;
                }
            }
            Some(Fault::ForgetScripts) => self.call(&["SCRIPT", "FLUSH"])?,
            Some(Fault::Restart | Fault::Uptime { .. } | Fault::LoseKeys(_)) | None => {}
        }
        let command = simulation.command(step, state.as_ref());
        let before = state.clone();
        let (reply, events) = model::apply(state, &simulation.server(), &command);
        let keepable = model::keepable_limit(before.as_ref(), simulation.now_us);
        let recalls = model::recalls(keepable, state.as_ref(), &reply, simulation.now_us);
        self.compare(simulation, step.session, &command, (&reply, &events), state.as_ref())
            .and_then(|()| same("recall", &self.is_recalled(&command.semaphore)?, &recalls))
            .map_err(|reason| format!("{command:?}\n{reason}"))?;
        self.coverage.note(simulation.now_us, before.as_ref(), &command, (&reply, &events), state.as_ref());
        self.steps += 1;
        simulation.learn(step, &command, &reply, &events);
        Ok(())
    }

    /// Executes `command` on the server and demands the model's reply, events and state.
    fn compare(
        &mut self,
        simulation: &Simulation,
        session: usize,
        command: &Command,
        (reply, events): (&Reply, &[Event]),
        state: Option<&State>,
    ) -> Result<(), String> {
        let (now, uptime) = (simulation.now_us.to_string(), simulation.uptime_ms().to_string());
        self.call(&["HSET", SERVER_KEY, "now_us", &now, "run_id", &simulation.run_id, "uptime_ms", &uptime])?;
        if command.only_looks() {
            self.call(&["CONFIG", "SET", "min-replicas-to-write", "1"])?;
        }
        let executing = self.stores[session].execute(command);
        let got = self.runtime.block_on(executing).map_err(|error| format!("the store failed: {error}"))?;
        if command.only_looks() {
            self.call(&["CONFIG", "SET", "min-replicas-to-write", "0"])?;
        }
        same("reply", &got, reply)?;
        for session in 0..SESSIONS {
            let wanted: Vec<&Event> =
                events.iter().filter(|event| event.session == Simulation::session_id(session)).collect();
            for wanted in wanted {
                let got = self.event(session).map_err(|error| format!("{error}, but {wanted:?}"))?;
                same("event", &got, wanted)?;
            }
        }
        // An inspection writes nothing, not even what it knows of vanished keys.
        if state.is_some_and(|state| state.damage.is_some()) {
            return Ok(());
        }
        let dump = dump::read(&mut self.connection, &keys_of(PREFIX, &simulation.name))?;
        if dump.state.as_ref() != state {
            return Err(different(dump.state.as_ref(), state));
        }
        dump.check_expiry()
    }

    /// Returns true if what sessions keep of a semaphore has been recalled since the last look.
    fn is_recalled(&mut self, semaphore: &Name) -> Result<bool, String> {
        let channel = format!("{PREFIX}:wake:recall:{semaphore}");
        self.call(&["PUBLISH", &channel, "probe"])?;
        let mut recalled = false;
        loop {
            let message = self.recalls.receive().map_err(|error| error.to_string())?;
            match message.array() {
                [_, _, _, payload] if payload.text() == "probe" => return Ok(recalled),
                [_, _, to, payload] if to.text() == channel && payload.text().ends_with("\nrecall") => {
                    recalled = true;
                }
                _ => return Err(format!("{message:?}")),
            }
        }
    }

    /// The next event of a session.
    fn event(&mut self, session: usize) -> Result<Event, String> {
        let store = &mut self.stores[session];
        let next = async {
            loop {
                match store.report().await {
                    Some(Report::Event(event)) => break Ok(event),
                    Some(Report::Up | Report::Recall(_)) => {}
                    other => break Err(format!("instead of an event: {other:?}")),
                }
            }
        };
        self.runtime
            .block_on(async { timeout(HANGS, next).await })
            .unwrap_or_else(|_| Err(format!("session {session} got no event")))
    }

    /// Sends a session a probe event, and returns the events that it received before.
    fn events_until_probe(&mut self, session: usize) -> Result<Vec<Event>, String> {
        self.probes += 1;
        let probe = format!("probe-{}", self.probes);
        let channel = format!("{PREFIX}:wake:s{session}");
        self.call(&["PUBLISH", &channel, &format!("0 none\nrefused {probe} probe")])?;
        let mut before = Vec::new();
        loop {
            let event = self.event(session)?;
            if event.request.as_str() == probe {
                return Ok(before);
            }
            before.push(event);
        }
    }
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, got: &T, wanted: &T) -> Result<(), String> {
    if got == wanted {
        Ok(())
    } else {
        Err(format!("{what} of Redis: {got:?}\n{what} of the model: {wanted:?}"))
    }
}

/// The lines in which two states differ, since whole states are too long to read.
fn different(got: Option<&State>, wanted: Option<&State>) -> String {
    let (got, wanted) = (format!("{got:#?}"), format!("{wanted:#?}"));
    let only = |one: &str, other: &str| {
        let other: std::collections::HashSet<&str> = other.lines().collect();
        one.lines().filter(|line| !other.contains(line)).take(40).collect::<Vec<_>>().join("\n")
    };
    format!("only in Redis:\n{}\nonly in the model:\n{}", only(&got, &wanted), only(&wanted, &got))
}

const FEW: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/differential-few.regressions");
const CROWDS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/differential-crowds.regressions");

#[test]
fn lua_equals_the_model_for_a_few_holders() {
    let redis = RefCell::new(Redis::start());
    let met = || {
        let coverage = &redis.borrow().coverage;
        coverage.missing(SMALL).is_empty() && coverage.pairs.missing().is_empty()
    };
    cases_until(200, FEW, &histories(150), |history| redis.borrow_mut().run(history), met);
    let redis = redis.into_inner();
    println!("{} steps", redis.steps);
    redis.coverage.assert_met(SMALL);
    redis.coverage.pairs.assert_met();
}

#[test]
fn lua_equals_the_model_for_crowds() {
    let redis = RefCell::new(Redis::start());
    let met = || redis.borrow().coverage.missing(CROWDED).is_empty();
    cases_until(40, CROWDS, &crowded_histories(60), |history| redis.borrow_mut().run(history), met);
    let redis = redis.into_inner();
    println!("{} steps", redis.steps);
    redis.coverage.assert_met(CROWDED);
}

/// Runs a history written by hand, in which all of `met` must happen.
fn written(steps: Vec<Step>, met: &[&'static str]) {
    let mut redis = Redis::start();
    redis.run(&History { name: 0, steps }).unwrap_or_else(|reason| panic!("{reason}"));
    redis.coverage.assert_met(met);
}

fn limit(limit: u32) -> Step {
    Step::plain(Asked::Limit(LimitChange::Set(limit), Version::Any).once())
}

fn crowd(count: usize) -> Step {
    Step::plain(Action::Crowd { count, weight: 1, wait: true })
}

/// A crowd of a session.
fn crowd_of(session: usize, count: usize) -> Step {
    Step { session, ..crowd(count) }
}

fn tick() -> Step {
    Step::plain(Action::Renew(Vec::new()))
}

/// A renewal with an invented grant of a moment ago.
fn forgotten(pick: usize, slot: u32) -> Step {
    Step::plain(Action::Renew(vec![(Naming::Unknown(pick), Claiming::Invented { age_us: 1_000, slot })]))
}

#[test]
fn waiters_that_expire_together_are_reaped_in_parts() {
    let late = Step { elapse: Elapse::PastLeases, ..crowd(1) };
    written(vec![limit(1), crowd(301), late, tick(), tick(), tick()], &["reap cut", "expiry with a queue"]);
}

#[test]
fn a_limit_that_rises_by_a_thousand_grants_in_parts() {
    let met = ["promotion cut", "hundreds granted at once", "event: turns of several sessions"];
    let crowds = [crowd(500), crowd_of(1, 100), crowd_of(2, 100), crowd_of(1, 1)];
    written([vec![limit(1)], crowds.into(), vec![limit(1000), tick(), tick()]].concat(), &met);
}

#[test]
fn the_waiters_of_a_closed_line_are_refused_in_parts() {
    let close = Step::plain(Asked::Line(Some("moved")).once());
    let open = Step::plain(Asked::Line(None).once());
    let met = ["refusal cut", "renew: LineClosed", "event: LineClosed", "acquire: LineClosed"];
    let renew =
        Step::plain(Action::Renew((500..520).map(|pick| (Naming::Known(pick), Claiming::AsKnown)).collect()));
    let steps =
        vec![limit(1), crowd(500), crowd(500), crowd(301), close, renew, crowd(1), tick(), open, crowd(2)];
    written(steps, &met);
}

#[test]
fn slots_far_above_those_made_are_reclaimed() {
    let flushed = Step { fault: Some(Fault::Flush), ..limit(1000) };
    let acquire = Step::plain(Action::Crowd { count: 3, weight: 1, wait: false });
    let release = Step::plain(Action::ReleaseMany { every: 2, max: 2 });
    let steps = vec![
        flushed,
        forgotten(0, 500),
        forgotten(1, 700),
        forgotten(2, 100),
        forgotten(3, 101),
        acquire.clone(),
        release,
        forgotten(4, 102),
        acquire,
        forgotten(5, 499),
        crowd(200),
    ];
    let met =
        ["renew: reclaimed far above the slots made", "range of slots split", "slot taken from a range"];
    written(steps, &met);
}

/// Histories in which no request keeps its permit, so that they stay in the ordinary course. Every third
/// request of a history would keep, and a change by an operator counts as a request.
fn without_keeping(units: u32, requests: usize) -> Vec<Step> {
    let pairs = (0..requests / 2).flat_map(|_| [limit(units), crowd(2)]);
    [limit(units), crowd(1)].into_iter().chain(pairs).collect()
}

/// Two of four tokens in succession are even. The release of a permit with an even token corrects its units,
/// and leaves the ordinary course.
#[test]
fn slots_released_in_any_order_are_handed_over_from_the_lowest() {
    for picks in [[3, 1], [2, 0]] {
        let release = Step::plain(Action::Release(picks.map(Naming::Known).into()));
        let steps = [without_keeping(4, 7), vec![release]].concat();
        written(steps, &["release: Held", "event: Granted"]);
    }
}

#[test]
fn a_light_request_waits_behind_a_heavy_one_of_its_batch() {
    let ask = |weight: usize| Ask::New {
        holder: HOLDERS.len(),
        weight: weight - 1,
        lease_ms: 3_000,
        at_least_ms: 0,
        wait: true,
        supersedes: false,
    };
    let batch = Step::plain(Action::Acquire { queue_max: 10, requests: vec![ask(3), ask(1)] });
    written([without_keeping(3, 1), vec![limit(3), batch]].concat(), &["acquire: Waiting"]);
}

#[test]
fn a_hand_over_remembers_the_lease_that_ends_first_of_those_it_begins() {
    let waiter = |lease_ms| Step { lease_ms, ..crowd(1) };
    // A release that corrects units, or waiters in lanes, would leave the ordinary course.
    let heavy = Step::plain(Action::Crowd { count: 1, weight: 2, wait: true });
    let release = Step::plain(Action::Release(vec![Naming::Known(1)]));
    let steps = vec![limit(3), crowd(1), heavy, waiter(1_000), waiter(60_000), release];
    written(steps, &["release: Held", "event: Granted"]);
}

/// The head was queued before, and is renewed a third of its own lease later.
#[test]
fn a_head_asks_for_the_end_of_a_lease_that_is_shorter_than_its_own() {
    let waiter = |lease_ms| Step { lease_ms, ..crowd(1) };
    let release = |known| Step::plain(Action::Release(vec![Naming::Known(known)]));
    for (leases, asks) in [([1_000, 60_000], true), ([60_000, 1_000], false), ([1_000, 1_000], false)] {
        // The general course has to do it, and the ordinary one.
        for known in [0, 1] {
            let holders = Step { lease_ms: 100_000, ..crowd(2) };
            let steps = vec![limit(2), holders, waiter(leases[0]), waiter(leases[1]), release(known)];
            let mut redis = Redis::start();
            redis.run(&History { name: 0, steps }).unwrap_or_else(|reason| panic!("{reason}"));
            assert_eq!(redis.coverage.missing(&["event: Turn"]).is_empty(), asks, "{leases:?}");
        }
    }
}

/// The slots above a lower limit are recalled, although no request needs units: they are not to be granted
/// any more. So are the slots of requests that require another limit.
#[test]
fn another_limit_recalls_what_is_kept() {
    for limits in [[9, 5, 7, 6], [4, 5, 7, 9]] {
        let [first, then @ ..] = limits.map(limit);
        let steps = [first, crowd(3)].into_iter().chain(then);
        written(steps.collect(), &["acquire: Granted", "limit: set"]);
    }
}
