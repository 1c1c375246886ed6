//! A worker whose client is a [driver](crate::driver). The loops run here, in the process of the test: they
//! write lines to the driver, and make of its events the records that a worker in Rust reports.
//!
//! Two things differ from a worker in Rust:
//!
//! - A driver need not say until when a permit is held. So a holder renews its permit now and then. If the
//!   answer is that the permit is held, it counts as held for a lease from the moment at which the renewal
//!   was written. So M, the time for which the checks take a permit as held, is never too long, however slow
//!   the machine is.
//! - When a driver is killed, its permits may end at once. The client for Go, for example, runs
//!   `permits hold`, which releases them when its input ends. So the records say of each permit that its
//!   release has begun.
//!
//! An event that a driver must not write becomes a complaint of the pool. The checks of the history find the
//! other violations.

use std::collections::{BTreeSet, HashMap};
use std::io::Write as _;
use std::process::ChildStdin;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};

use permits_core::timing::margin;
use serde_json::{Value, json};

use super::pool::{Seen, micros};
use super::process::holder;
use super::{Counts, SEMAPHORE, Wait, Work, WorkerCommand, WorkerSettings, draw_time};
use crate::driver::fields_of;
use crate::history::{ClientEvent, now};

/// The time between two renewals by a holder.
const STEP: Duration = Duration::from_millis(300);

/// A holder renews only if at least this much of its time is left.
const SHORT: Duration = Duration::from_millis(40);

/// The lines and options that every row needs. Rows with lanes or sets need more.
pub(crate) const USED: [&str; 8] =
    ["acquire", "limit", "weight", "holder", "lease_ms", "timeout_ms", "renew", "release"];

/// The test's side of a driver.
pub(super) struct Driven {
    settings: WorkerSettings,
    seen: Arc<Seen>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The standard input of the driver; `None` once the worker closes.
    input: Option<ChildStdin>,
    /// The lines and options that the driver named in its `hello`; `None` until then.
    has: Option<BTreeSet<String>>,
    /// The driver was killed or has ended. From then on nothing is recorded of it.
    is_over: bool,
    is_stopping: bool,
    /// The number of requests so far, which is the id of the last one.
    asked: u64,
    open: HashMap<u64, Request>,
    loops: Vec<JoinHandle<()>>,
}

/// A request, from the line that asks for it to its last event.
struct Request {
    /// The tag and the semaphore of each acquisition. A set has several.
    parts: Vec<(String, String)>,
    asked: u64,
    may_give_up: bool,
    stage: Stage,
    /// The time at which a renewal was written, until its answer comes.
    renewing: Option<u64>,
    /// Sends the loop the name of each event that it waits for.
    events: Sender<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Waiting,
    /// The loop has asked to leave the line. If a grant crosses that, nobody holds the permit.
    Leaving,
    Held,
    Releasing,
}

impl Driven {
    pub(super) fn new(settings: WorkerSettings, seen: Arc<Seen>, input: ChildStdin) -> Arc<Self> {
        let state = Mutex::new(State { input: Some(input), ..State::default() });
        Arc::new(Self { settings, seen, state, changed: Condvar::new() })
    }

    /// Carries out a command of the test.
    pub(super) fn command(self: &Arc<Self>, command: &WorkerCommand) {
        match command {
            WorkerCommand::Work(work) => {
                let loops = (0..work.loops).map(|number| {
                    let (driven, work) = (self.clone(), work.clone());
                    thread::spawn(move || driven.run_loop(&work, number))
                });
                self.lock().loops.extend(loops);
            }
            WorkerCommand::Stop => {
                let driven = self.clone();
                thread::spawn(move || {
                    let loops = {
                        let mut state = driven.lock();
                        state.is_stopping = true;
                        std::mem::take(&mut state.loops)
                    };
                    driven.changed.notify_all();
                    loops.into_iter().for_each(|it| it.join().expect("a loop does not panic"));
                    driven.note(&driven.lock(), "-", ClientEvent::Stopped(Counts::default()));
                });
            }
            WorkerCommand::Close => self.lock().input = None,
            WorkerCommand::Acquire { .. } | WorkerCommand::Release { .. } | WorkerCommand::Fork => {
                panic!("drivers have loops alone, and do not {command:?}")
            }
        }
    }

    /// Ends the records of a driver that is about to be killed. The release of each held permit counts as
    /// begun.
    pub(super) fn give_up(&self) {
        let mut state = self.lock();
        for request in state.open.values().filter(|request| request.stage == Stage::Held) {
            request.note(self, &state, now(), |_| ClientEvent::Releasing);
        }
        state.is_over = true;
        state.open.clear();
        self.changed.notify_all();
    }

    /// Ends the records of a driver that has closed its output. Complains unless the test closed the worker
    /// and every request has had its last event.
    pub(super) fn ended(&self) {
        let mut state = self.lock();
        if !state.is_over {
            if state.input.is_some() {
                self.complain("it has ended");
            } else if let Some(id) = state.open.keys().next() {
                self.complain(&format!("it has ended without an event of {id}"));
            }
            self.note(&state, "-", ClientEvent::Closed(Ok(())));
        }
        state.is_over = true;
        state.open.clear();
        self.changed.notify_all();
    }

    /// Records an event that the driver has written.
    pub(super) fn read(&self, line: &str) {
        let mut state = self.lock();
        let Ok(event) = serde_json::from_str::<Value>(line) else {
            return self.complain(&format!("it has written what is not JSON: {line}"));
        };
        let name = event["event"].as_str().unwrap_or_default();
        if name == "hello" {
            state.has = Some(fields_of(&event));
            self.note(&state, "-", ClientEvent::Connected);
            return self.changed.notify_all();
        }
        // A line to the driver may cross the last event of its request, so answers to ended requests are
        // ignored.
        let Some(id) = event["id"].as_u64().filter(|id| state.open.contains_key(id)) else { return };
        let mut request = state.open.remove(&id).expect("it was there");
        if let Err(complaint) = request.take(self, &state, name, &event) {
            self.complain(&format!("{complaint}: {line}"));
        }
        let is_last = ["released", "lost", "failed"].contains(&name);
        if name != "waiting" && (event["answers"].is_string() || !["held", "unsure"].contains(&name)) {
            // The send fails if the loop has ended, and then nobody needs the event.
            let _ = request.events.send(name.to_owned());
        }
        if !is_last {
            state.open.insert(id, request);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records an event that happens now.
    fn note(&self, state: &State, tag: &str, event: ClientEvent) {
        self.note_at(now(), state, tag, event);
    }

    /// Records an event, unless the driver is over. Callers have the lock of the state, so no record follows
    /// a kill.
    fn note_at(&self, at: u64, state: &State, tag: &str, event: ClientEvent) {
        if !state.is_over {
            self.seen.note_at(at, self.settings.number, tag, event);
        }
    }

    fn complain(&self, what: &str) {
        self.seen.complain(format!("driver {}: {what}", self.settings.number));
    }

    fn lease_from(&self, at: u64) -> u64 {
        at + micros(self.settings.lease - margin(self.settings.lease))
    }

    /// Takes turns until the worker stops.
    fn run_loop(&self, work: &Work, number: usize) {
        let seed = self.settings.seed.wrapping_add((self.settings.number * 10_000 + number) as u64);
        let mut random = fastrand::Rng::with_seed(seed);
        let mut state = self.lock();
        while state.has.is_none() && !state.is_over && !state.is_stopping {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        drop(state);
        let mut turn = 0;
        // `take_turn` returns `None` when the driver has ended.
        while !self.lock().is_stopping {
            turn += 1;
            if self.take_turn(work, &format!("loop{number}.{turn}"), &mut random).is_none() {
                return;
            }
            let rest = work.rest.draw(&mut random);
            sleep(draw_time(&mut random, rest));
        }
    }

    fn take_turn(&self, work: &Work, tag: &str, random: &mut fastrand::Rng) -> Option<()> {
        let all = &self.settings.semaphores;
        let parts: Vec<(String, String)> = if work.sets && random.bool() {
            all.iter().enumerate().map(|(number, name)| (format!("{tag}.{number}"), name.clone())).collect()
        } else {
            vec![(tag.to_owned(), all[random.usize(..all.len())].clone())]
        };
        let weight = *work.weight.draw(random);
        let lane = (work.lanes > 0).then(|| random.u32(1..=work.lanes));
        let wait = work.wait.draw(random).clone();
        let held_times = work.hold.draw(random);
        let hold = draw_time(random, held_times);
        let (timeout, leaves_after) = match &wait {
            Wait::Granted => (None, Duration::MAX),
            Wait::Timeout(times) => (Some(draw_time(random, times)), Duration::MAX),
            Wait::Cancel(times) => (None, draw_time(random, times)),
        };
        let mut lines: Vec<Value> =
            parts.iter().map(|(tag, name)| self.line(work, tag, name, weight, lane)).collect();
        let mut line = lines.remove(0);
        if let Some(timeout) = timeout {
            line["timeout_ms"] = json!(timeout.as_millis());
        }
        if !lines.is_empty() {
            line["also"] = json!(lines);
        }
        let in_lane = lane.filter(|_| work.lane_limit > 0);
        let in_lane = in_lane.map(|lane| (format!("lane-{lane}"), work.lane_limit));
        let (id, events) = self.ask(line, parts, weight, in_lane, wait != Wait::Granted)?;
        match events.recv_timeout(leaves_after) {
            Err(RecvTimeoutError::Timeout) => self.say(id, "release")?,
            Ok(first) if first == "granted" => {
                self.hold(id, &events, hold)?;
                self.say(id, "release")?;
            }
            _ => {}
        }
        // Wait for the last event: then the request drops its sender.
        while events.recv().is_ok() {}
        (!self.lock().is_over).then_some(())
    }

    /// The fields of a request for one permit.
    fn line(&self, work: &Work, tag: &str, semaphore: &str, weight: u32, lane: Option<u32>) -> Value {
        let mut line = json!({
            "acquire": semaphore,
            "limit": self.settings.limit,
            "weight": weight,
            "holder": holder(&self.settings, tag),
            "lease_ms": self.settings.lease.as_millis(),
        });
        if let Some(lane) = lane {
            line["lane"] = json!(format!("lane-{lane}"));
            line["share"] = json!(lane);
            if work.lane_limit > 0 {
                line["lane_limit"] = json!(work.lane_limit);
            }
            if lane.is_multiple_of(2) && work.lane_floor > 0 {
                line["lane_floor"] = json!(work.lane_floor);
            }
        }
        line
    }

    /// Writes a request. Returns its id and the names of its events, or `None` if the driver has ended.
    fn ask(
        &self,
        mut line: Value,
        parts: Vec<(String, String)>,
        weight: u32,
        in_lane: Option<(String, u32)>,
        may_give_up: bool,
    ) -> Option<(u64, Receiver<String>)> {
        let mut state = self.lock();
        for (tag, semaphore) in &parts {
            self.note(&state, tag, ClientEvent::Asked { weight });
            if semaphore != SEMAPHORE {
                self.note(&state, tag, ClientEvent::InLine(semaphore.clone()));
            }
            if let Some((lane, limit)) = in_lane.clone() {
                self.note(&state, tag, ClientEvent::InLane { lane, limit });
            }
        }
        state.asked += 1;
        let (id, (events, receiver)) = (state.asked, channel());
        line["id"] = json!(id);
        let stage = Stage::Waiting;
        state.open.insert(id, Request { parts, asked: now(), may_give_up, stage, renewing: None, events });
        state.write(&line)?;
        Some((id, receiver))
    }

    /// Writes a line about a request, unless the request has ended. Returns `None` if the driver has ended.
    fn say(&self, id: u64, what: &str) -> Option<()> {
        let mut state = self.lock();
        let Some(request) = state.open.get_mut(&id) else { return (!state.is_over).then_some(()) };
        match (what, request.stage) {
            ("renew", _) => request.renewing = Some(now()),
            (_, Stage::Waiting) => request.stage = Stage::Leaving,
            _ => {
                request.stage = Stage::Releasing;
                state.open[&id].note(self, &state, now(), |_| ClientEvent::Releasing);
            }
        }
        let mut line = json!({"id": id});
        line[what] = json!(true);
        state.write(&line)
    }

    /// Holds a permit until it is lost or `hold` is over, and renews it now and then. Returns `None` if the
    /// driver has ended.
    fn hold(&self, id: u64, events: &Receiver<String>, hold: Duration) -> Option<()> {
        let end = Instant::now() + hold;
        let left = || end.saturating_duration_since(Instant::now());
        loop {
            if left() > SHORT {
                self.say(id, "renew")?;
                if events.recv().is_err() {
                    return Some(());
                }
            }
            match events.recv_timeout(left().min(STEP)) {
                Err(RecvTimeoutError::Timeout) if left() > Duration::ZERO => {}
                _ => return Some(()),
            }
        }
    }
}

impl State {
    /// Writes a line. Returns `None` if the driver has ended.
    fn write(&mut self, line: &Value) -> Option<()> {
        // A failed write is not a complaint: the thread that reads the output notices that the driver has
        // ended.
        let written = writeln!(self.input.as_mut()?, "{line}");
        (!self.is_over && written.is_ok()).then_some(())
    }
}

impl Request {
    /// Records an event for each acquisition of the request. `event` gets the number of the acquisition.
    fn note(&self, driven: &Driven, state: &State, at: u64, event: impl Fn(usize) -> ClientEvent) {
        for (number, (tag, _)) in self.parts.iter().enumerate() {
            driven.note_at(at, state, tag, event(number));
        }
    }

    /// Records an event of this request.
    ///
    /// # Errors
    ///
    /// The driver must not write this event now. The text is the complaint.
    fn take(&mut self, driven: &Driven, state: &State, name: &str, event: &Value) -> Result<(), String> {
        let reason = || event["reason"].as_str().unwrap_or("no reason").to_owned();
        let at = now();
        match (name, self.stage) {
            ("granted", Stage::Waiting) => {
                let grants = self.grants(event)?;
                // The client extends the lease while the request waits, unseen from here. This deadline
                // counts from the request, so it is never too late. The first renewal by the holder brings a
                // later one.
                let until = driven.lease_from(self.asked).max(at);
                self.note(driven, state, at, |number| {
                    let (token, slot) = grants[number];
                    ClientEvent::Acquired { token, slot, until, again: false }
                });
                self.stage = Stage::Held;
            }
            ("held" | "unsure", Stage::Held) => {
                let renewed = event["answers"].is_string().then(|| self.renewing.take()).flatten();
                let until = renewed.map_or(0, |written| driven.lease_from(written));
                // An answer that took longer than a lease does not show that the permit is held now.
                if name == "held" && until > at {
                    self.note(driven, state, at, |_| ClientEvent::Held { until });
                }
            }
            ("lost", Stage::Held) => self.note(driven, state, at, |_| ClientEvent::Lost(reason())),
            ("released", Stage::Releasing) => self.note(driven, state, at, |_| ClientEvent::Released(Ok(()))),
            ("lost" | "failed", Stage::Releasing) | ("failed", Stage::Held) => {
                self.note(driven, state, at, |_| ClientEvent::Released(Err(reason())));
            }
            ("released" | "lost" | "failed", Stage::Leaving) => {
                self.note(driven, state, at, |_| ClientEvent::GaveUp("it was cancelled".to_owned()));
            }
            ("failed", Stage::Waiting) => {
                let is_never = event["exit_code"] == 64;
                self.note(driven, state, at, |_| match self.may_give_up && !is_never {
                    true => ClientEvent::GaveUp(reason()),
                    false => ClientEvent::Failed(reason()),
                });
            }
            ("waiting", _) | ("held" | "unsure", _) | ("granted", Stage::Leaving) => {}
            _ => return Err("it has written what cannot be".to_owned()),
        }
        Ok(())
    }

    /// The token and the slot of each acquisition.
    fn grants(&self, event: &Value) -> Result<Vec<(u64, u32)>, String> {
        let also = event["also"].as_array().into_iter().flatten();
        let all: Vec<&Value> = [event].into_iter().chain(also).collect();
        let grant = |name: &str| {
            let found = match self.parts.len() {
                1 => event,
                _ => all.iter().find(|grant| grant["name"] == name)?,
            };
            Some((found["token"].as_u64()?, u32::try_from(found["slot"].as_u64()?).ok()?))
        };
        let grants = self.parts.iter().map(|(_, name)| grant(name).ok_or(format!("no grant of {name}")));
        grants.collect()
    }
}
