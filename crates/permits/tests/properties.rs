//! The properties that every store promises, shown on the model by random histories.
//!
//! The differential test shows that the Redis store equals the model; so what holds here holds there. After
//! every command `permits_testkit::history::checks` judge it from outside, by the names that the guarantees have.
//! What needs more than one command is here: tokens over the whole history (P4), a repeated command
//! (P5), a withdrawn waiter (P9), the state at rest (P10), and connected clients over a restart that forgets
//! everything (P1, P2). Then it is shown that the checks can fail.
//!
//! `PERMITS_CASES` multiplies the number of histories.

mod support {
    pub(crate) mod clients;
    pub(crate) mod coverage;
    pub(crate) mod run;
    pub(crate) mod steps;
    pub(crate) mod world;
}

use std::cell::RefCell;

use permits::model::{self, ServerClock, State};
use permits::protocol::{
    AcquireOutcome, AcquireRequest, Answers, Command, Declaration, EventKind, Grant, Holder, Label,
    LimitChange, Operation, Recovery, ReleaseOutcome, ReleaseRequest, RenewOutcome, RenewRequest, Reply,
};
use permits_testkit::history::checks::{CHECKS, check, conserved};
use permits_testkit::history::step::Step;

use support::clients::{self, Clients};
use support::coverage::{CROWDED, Coverage, SMALL};
use support::run::cases_until;
use support::steps::{self, Action, Elapse, History, crowded_histories, histories};
use support::world::World;

const FEW: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/properties-few.regressions");
const CROWDS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/properties-crowds.regressions");
const CLIENTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/properties-clients.regressions");

/// One history on the model.
struct Run<'a> {
    world: World,
    state: Option<State>,
    /// The highest token granted in all the history.
    last_token: u64,
    coverage: &'a mut Coverage,
}

impl Run<'_> {
    fn history(coverage: &mut Coverage, history: &History) -> Result<(), String> {
        let mut run = Run { world: World::new(history.name), state: None, last_token: 0, coverage };
        for (number, step) in history.steps.iter().enumerate() {
            run.step(step).map_err(|reason| format!("at step {number}, {step:?}:\n{reason}"))?;
        }
        run.withdrawn_waiter()?;
        run.rest()
    }

    fn step(&mut self, step: &steps::Step) -> Result<(), String> {
        self.world.pass(step, &mut self.state);
        let command = self.world.command(step, self.state.as_ref());
        let done = self.execute(command)?;
        let (reply, events) = (&done.reply, &done.events[..]);
        self.world.learn(step, &done.command, reply, events);
        Ok(())
    }

    /// Executes a command and judges it.
    fn execute(&mut self, command: Command) -> Result<Step, String> {
        let found = self.state.clone();
        let (reply, events) = model::apply(&mut self.state, &self.world.server(), &command);
        let (now_us, after) = (self.world.now_us, self.state.clone());
        self.coverage.note(now_us, found.as_ref(), &command, (&reply, &events), after.as_ref());
        let before = found.filter(|state| !state.is_expired(now_us / 1000)).and_then(State::found);
        let step = Step { now_us, before, command, reply, events, after };
        check(&step).map_err(|violation| violation.to_string())?;
        self.tokens(&step).map_err(|reason| format!("P4: {reason}"))?;
        repeated(&step, &self.world.server()).map_err(|reason| format!("P5: {reason}"))?;
        Ok(step)
    }

    /// P4: each grant's token is higher than every one before it, also when the store has forgotten them, as
    /// long as the server's clock has passed the highest one. It has, after as many microseconds as there
    /// were grants, unless it was set back.
    fn tokens(&mut self, step: &Step) -> Result<(), String> {
        let known = step.before.as_ref().map_or(0, |state| state.last_token);
        if known < self.last_token && step.now_us <= self.last_token {
            self.last_token = known;
        }
        for fresh in step.fresh() {
            if fresh.grant.token <= self.last_token {
                return Err(format!("{} got {} after {}", fresh.holder, fresh.grant.token, self.last_token));
            }
            self.last_token = fresh.grant.token;
        }
        Ok(())
    }

    fn send(&mut self, operation: Operation) -> Result<Step, String> {
        self.execute(command(&self.world, operation))
    }

    /// Lets time take effect until no work is left.
    fn settle(&mut self) -> Result<Step, String> {
        loop {
            let done = self.send(Operation::Renew(Vec::new()))?;
            if done.reply.recheck_ms != Some(0) {
                return Ok(done);
            }
        }
    }

    /// P9: a waiter that comes and goes leaves no trace.
    fn withdrawn_waiter(&mut self) -> Result<(), String> {
        let settled = self.settle()?.after;
        let holder = Holder::new("passer-by").expect("it is valid");
        let request = World::session_id(77).request(0);
        // No longer lease than any before: the longest one is remembered on purpose.
        let asked = AcquireRequest {
            holder: holder.clone(),
            request: request.clone(),
            weight: 1,
            lease_ms: 100,
            wait: true,
            label: Label::default(),
        };
        let came = self.send(Operation::Acquire { queue_max: u32::MAX, requests: vec![asked] })?;
        let was = match came.reply.answers {
            Answers::Acquire(answers) => answers[0].clone(),
            other => return Err(format!("{other:?}")),
        };
        let went = self.send(Operation::Release(vec![ReleaseRequest { holder, request }]))?;
        let AcquireOutcome::Waiting { .. } = was else { return Ok(()) };
        self.coverage.count("waiter withdrawn");
        if went.reply.answers != Answers::Release(vec![ReleaseOutcome::Waiting]) {
            return Err(format!("P9: a waiter was released as {:?}", went.reply.answers));
        }
        let plain = |state: Option<State>| {
            state.map(|state| State { sequence: 0, last_ticket: 0, expires_ms: 0, lease_max_ms: 0, ..state })
        };
        let (settled, left) = (plain(settled), plain(went.after));
        // Where nobody was before, a state without anything is left until it expires.
        if settled.is_some() && settled != left {
            return Err(format!("P9: a waiter left a trace:\n{settled:?}\n{left:?}"));
        }
        Ok(())
    }

    /// P10: after the longest lease, with nobody asking, nothing is held or waits, and no slot is remembered;
    /// and after a while longer there is no state, unless an operator's word keeps it.
    fn rest(&mut self) -> Result<(), String> {
        let past =
            steps::Step { elapse: Elapse::PastLeases, ..steps::Step::plain(Action::Renew(Vec::new())) };
        self.world.pass(&past, &mut self.state);
        if let Some(state) = self.settle()?.after {
            let is_empty = state.entries.is_empty() && state.queue.is_empty() && state.leases.is_empty();
            if state.held != 0 || !is_empty || state.slots_made != 0 || !state.free.is_empty() {
                return Err(format!("P10: at rest there is {state:?}"));
            }
            let kept = state.pinned || state.paused;
            if kept == state.is_expired(state.expires_ms) {
                return Err(format!(
                    "P12: when idle it stays, or an operator's word is forgotten: {state:?}"
                ));
            }
        }
        Ok(())
    }
}

fn command(world: &World, operation: Operation) -> Command {
    Command {
        semaphore: world.name.clone(),
        session: World::session_id(0),
        lease_ms: 100,
        recovery: Recovery::Off,
        declaration: Declaration::Stored,
        operation,
    }
}

/// P5: the same command again, at once, has the same answers and no effect.
///
/// Except where its answer says otherwise: a command that left work continues it; what is released is unknown
/// the second time; and what a renewal found lost, or has to ask for again, is not promised to stay so.
fn repeated(step: &Step, server: &ServerClock<'_>) -> Result<(), String> {
    let Some(after) = step.after.clone() else { return Ok(()) };
    let mut state = Some(after.clone());
    let (reply, events) = model::apply(&mut state, server, &step.command);
    if step.reply.recheck_ms == Some(0) || reply.recheck_ms == Some(0) {
        return Ok(());
    }
    match (&step.reply.answers, &reply.answers) {
        (Answers::Renew(first), Answers::Renew(second)) => {
            let firm = |answer: &RenewOutcome| {
                matches!(answer, RenewOutcome::Held | RenewOutcome::Granted(_) | RenewOutcome::Waiting { .. })
            };
            if !first.iter().all(firm) {
                return Ok(());
            }
            if first != second {
                return Err(format!("{first:?}, and the second time {second:?}"));
            }
        }
        (Answers::Release(_), Answers::Release(second)) => {
            let unknown = second.iter().all(|was| *was == ReleaseOutcome::Unknown);
            unknown.then_some(()).ok_or_else(|| format!("released twice: {second:?}"))?;
        }
        (Answers::Acquire(first), Answers::Acquire(second)) => {
            // Who was refused may have come in behind, by a request that stands in this batch twice.
            let same = |(first, second)| matches!(first, &AcquireOutcome::Refused(_)) || first == second;
            if !first.iter().zip(second).all(same) {
                return Err(format!("{first:?}, and the second time {second:?}"));
            }
        }
        (first, second) if first != second => {
            return Err(format!("{first:?}, and the second time {second:?}"));
        }
        _ => {}
    }
    let second = state.map(|state| State { sequence: after.sequence, ..state });
    if !events.is_empty() || second.as_ref() != Some(&after) {
        return Err(format!("the second time did something: {events:?}\n{after:?}\n{second:?}"));
    }
    Ok(())
}

#[test]
fn every_command_keeps_the_properties() {
    let coverage = RefCell::new(Coverage::default());
    let check = |history: &History| Run::history(&mut coverage.borrow_mut(), history);
    cases_until(400, FEW, &histories(150), check, || coverage.borrow().missing(SMALL).is_empty());
    coverage.borrow().assert_met(SMALL);
    coverage.borrow().assert_met(&["waiter withdrawn"]);
}

#[test]
fn every_command_keeps_the_properties_in_a_crowd() {
    let coverage = RefCell::new(Coverage::default());
    let check = |history: &History| Run::history(&mut coverage.borrow_mut(), history);
    cases_until(30, CROWDS, &crowded_histories(60), check, || coverage.borrow().missing(CROWDED).is_empty());
    coverage.borrow().assert_met(CROWDED);
}

#[test]
fn a_restart_that_forgets_everything_admits_nobody_extra() {
    let seen = RefCell::new(clients::Seen::default());
    let check = |script: &_| Clients::run(script, Recovery::Interval, &mut seen.borrow_mut());
    let enough = |seen: &clients::Seen| seen.reclaimed > 100 && seen.granted_after_restart > 100;
    cases_until(300, CLIENTS, &clients::scripts(), check, || enough(&seen.borrow()));
    let seen = seen.into_inner();
    assert!(enough(&seen), "{seen:?}");
}

/// The same clients without a window are too many now and then: so the test above can fail.
#[test]
fn without_a_recovery_window_a_restart_admits_somebody_extra() {
    let extra = std::cell::Cell::new(0);
    let check = |script: &_| {
        let outcome = Clients::run(script, Recovery::Off, &mut clients::Seen::default());
        extra.set(extra.get() + u32::from(outcome.is_err()));
        Ok(())
    };
    cases_until(100, CLIENTS, &clients::scripts(), check, || extra.get() > 0);
    assert!(extra.get() > 0);
}

/// Commands on one semaphore with a limit of 2, for the tests below.
struct Story {
    state: Option<State>,
    world: World,
}

impl Story {
    fn new() -> Self {
        let mut story = Self { state: None, world: World::new(0) };
        story.send(Operation::SetLimit {
            request: World::session_id(9).request(0),
            change: LimitChange::Set(2),
            expected_version: None,
        });
        story
    }

    fn send(&mut self, operation: Operation) -> Step {
        let before = self.state.clone();
        let (recovery, declaration) = (Recovery::Interval, Declaration::Fallback(2));
        let command = Command { lease_ms: 3_000, recovery, declaration, ..command(&self.world, operation) };
        self.world.now_us += 1_000;
        let (reply, events) = model::apply(&mut self.state, &self.world.server(), &command);
        Step { now_us: self.world.now_us, before, command, reply, events, after: self.state.clone() }
    }

    fn acquire(&mut self, holders: &[&str]) -> Step {
        let requests = holders.iter().map(|name| AcquireRequest {
            holder: holder(name),
            request: World::session_id(1).request(0),
            weight: 1,
            lease_ms: 3_000,
            wait: true,
            label: Label::default(),
        });
        self.send(Operation::Acquire { queue_max: 9, requests: requests.collect() })
    }

    fn release(&mut self, name: &str) -> Step {
        self.send(Operation::Release(vec![ReleaseRequest {
            holder: holder(name),
            request: World::session_id(1).request(0),
        }]))
    }

    /// A and B hold, C and D wait.
    fn full() -> Self {
        let mut story = Self::new();
        story.acquire(&["a", "b", "c", "d"]);
        story
    }
}

fn holder(name: &str) -> Holder {
    Holder::new(name).expect("it is valid")
}

fn after(step: &mut Step) -> &mut State {
    step.after.as_mut().expect("there is a state")
}

/// Whether the check of `property` sees what `spoil` does to a sound command.
fn sees(property: &str, sound: &Step, spoil: impl FnOnce(&mut Step)) -> bool {
    assert_eq!(check(sound), Ok(()), "it is sound before it is spoilt");
    let mut step = sound.clone();
    spoil(&mut step);
    let (_, check) = CHECKS.iter().find(|(name, _)| *name == property).expect("there is such a check");
    check(&step).is_err()
}

#[test]
fn the_checks_see_a_grant_above_the_limit() {
    let step = Story::full().release("a");
    assert!(sees("P1", &step, |step| after(step).limit = 1));
    assert!(sees("P1", &step, |step| after(step).paused = true));
    let newcomer = Story::new().acquire(&["a"]);
    let in_window = |step: &mut Step| after(step).recovering_until_ms = u64::MAX;
    assert!(sees("P1", &newcomer, in_window));
}

#[test]
fn the_checks_see_what_nobody_asked_for() {
    let mut story = Story::new();
    story.acquire(&["a", "b"]);
    let step = story.release("a");
    let resurrect = |step: &mut Step| {
        let before = step.before.clone();
        step.after = before;
        after(step).sequence += 1;
    };
    assert!(sees("P9", &step, resurrect));
    let idle = Story::new().send(Operation::Renew(Vec::new()));
    let other = story.state.clone();
    assert!(sees("P5", &idle, |step| step.after = other));
}

#[test]
fn the_checks_see_an_overtaker() {
    // D is granted, and C, who came before, stands in line.
    let mut story = Story::full();
    let step = story.release("a");
    let swap = |step: &mut Step| {
        let state = step.before.as_mut().expect("there is a state");
        let tickets: Vec<u64> = state.queue.keys().copied().collect();
        for (ticket, name) in tickets.iter().zip(["d", "c"]) {
            state.queue.insert(*ticket, holder(name));
            let entry = state.entries.get_mut(&holder(name)).expect("it waits");
            entry.place = model::EntryState::Waiting(*ticket);
        }
        let state = after(step);
        let (_, waiter) = state.queue.pop_first().expect("one waits");
        state.queue.insert(tickets[0], waiter);
    };
    assert!(sees("P6", &step, swap));
    // A newcomer is granted behind a waiter of the same batch.
    let step = Story::new().acquire(&["a", "b"]);
    let overtake = |step: &mut Step| {
        let Answers::Acquire(answers) = &mut step.reply.answers else { unreachable!() };
        answers[0] = AcquireOutcome::Waiting { position: 0 };
    };
    assert!(sees("P6", &step, overtake));
}

#[test]
fn the_checks_see_a_head_left_waiting() {
    let mut story = Story::full();
    let step = story.send(Operation::Renew(Vec::new()));
    assert!(sees("P7", &step, |step| after(step).limit = 3));
}

#[test]
fn the_checks_see_what_does_not_add_up() {
    let step = Story::full().send(Operation::Inspect { max: 9 });
    let spoilers: [fn(&mut State); 8] = [
        |state| state.held += 1,
        |state| state.slots_made += 1,
        |state| assert_eq!(state.free.insert(1, 1), None),
        |state| drop(state.queue.pop_first()),
        |state| drop(state.leases.pop_first()),
        |state| state.last_token = 1,
        |state| state.sequence += 1,
        // Whoever only looks keeps nothing alive.
        |state| state.expires_ms += 1,
    ];
    for (number, spoil) in spoilers.into_iter().enumerate() {
        assert!(sees("P10", &step, |step| spoil(after(step))), "spoiler {number}");
    }
    let mut state = step.after.expect("there is a state");
    let slot = |state: &mut State, name: &str, slot| {
        let entry = state.entries.get_mut(&holder(name)).expect("it holds");
        let model::EntryState::Holding(grant) = entry.place else { unreachable!() };
        entry.place = model::EntryState::Holding(Grant { slot, ..grant });
    };
    slot(&mut state, "b", 0);
    assert!(conserved(&state).is_err_and(|reason| reason.contains("out of place")));
}

#[test]
fn the_checks_see_a_declaration_that_changes_a_pinned_limit() {
    let mut story = Story::new();
    let step = story.send(Operation::Renew(Vec::new()));
    assert!(sees("P11", &step, |step| after(step).limit = 5));
}

#[test]
fn the_checks_see_another_ones_permit_changed() {
    let mut story = Story::full();
    let step = story.send(Operation::Renew(Vec::new()));
    let shorten = |step: &mut Step| {
        let state = after(step);
        let entry = state.entries.get_mut(&holder("b")).expect("it holds");
        state.leases.remove(&(entry.deadline, holder("b")));
        entry.deadline -= 1;
        state.leases.insert((entry.deadline, holder("b")));
    };
    assert!(sees("P13", &step, shorten));
}

#[test]
fn the_checks_see_a_herd() {
    let step = Story::full().release("a");
    assert!(sees("P15", &step, |step| step.events.push(step.events[0].clone())));
    assert!(sees("P15", &step, |step| step.events[0].session = World::session_id(2)));
    // Nobody left, and yet somebody is called.
    let nobody_left = |step: &mut Step| {
        let Some(state) = &mut step.after else { unreachable!() };
        let before = step.before.as_ref().expect("there is a state");
        state.entries.insert(holder("a"), before.entries[&holder("a")].clone());
    };
    assert!(sees("P15", &step, nobody_left));
}

#[test]
fn the_checks_see_a_token_that_does_not_rise() {
    let mut coverage = Coverage::default();
    let mut run = Run { world: World::new(0), state: None, last_token: 0, coverage: &mut coverage };
    let step = Story::new().acquire(&["a"]);
    assert_eq!(run.tokens(&step), Ok(()));
    let mut later = step;
    later.before = later.after.clone();
    assert!(run.tokens(&later).is_ok(), "the earlier answer again is no grant");
    let mut later = Story::new().acquire(&["b"]);
    later.before.as_mut().expect("there is a state").last_token = run.last_token;
    assert!(run.tokens(&later).is_err());
}

#[test]
fn the_checks_see_a_command_that_does_more_the_second_time() {
    let mut story = Story::full();
    let mut step = story.release("a");
    step.after = step.before.clone();
    assert!(repeated(&step, &story.world.server()).is_err(), "as if the first release had done nothing");
}

#[test]
fn a_reply_to_a_waiter_that_was_called_says_so() {
    // The message is lost: the renewal brings the grant, and the same one each time.
    let mut story = Story::full();
    let step = story.release("a");
    let EventKind::Granted(grant) = step.events[0].kind else { panic!("{:?}", step.events) };
    let renew = RenewRequest {
        holder: holder("c"),
        request: World::session_id(1).request(0),
        weight: 1,
        lease_ms: 3_000,
        grant: None,
        label: Label::default(),
    };
    for _ in 0..2 {
        let Reply { answers, .. } = story.send(Operation::Renew(vec![renew.clone()])).reply;
        assert_eq!(answers, Answers::Renew(vec![RenewOutcome::Granted(grant)]));
    }
}

#[test]
fn a_slot_handed_on_while_recovering_is_not_that_of_a_forgotten_holder() {
    // A restart forgets A and B. B is put back first and releases, and what it frees goes to C. Were C given
    // the lowest free slot, A's, then A could not be put back, and when the window ends its unit would go to
    // another.
    let mut story = Story::new();
    let Answers::Acquire(granted) = story.acquire(&["a", "b"]).reply.answers else { unreachable!() };
    let grants = granted.iter().map(|answer| match answer {
        AcquireOutcome::Granted(grant) => *grant,
        other => panic!("{other:?}"),
    });
    let grants: Vec<Grant> = grants.collect();
    story.state = None;
    story.world.restart(0);
    let renew = |story: &mut Story, name: &str, grant: Grant| {
        let (holder, request) = (holder(name), World::session_id(1).request(0));
        let renewal = RenewRequest {
            holder,
            request,
            weight: 1,
            lease_ms: 3_000,
            grant: Some(grant),
            label: Label::default(),
        };
        story.send(Operation::Renew(vec![renewal])).reply.answers
    };
    let held = Answers::Renew(vec![RenewOutcome::Held]);
    assert_eq!(renew(&mut story, "b", grants[1]), held);
    assert!(story.acquire(&["c"]).events.is_empty(), "nothing is granted out of free capacity");
    let released = story.release("b");
    let EventKind::Granted(grant) = released.events[0].kind else { panic!("{:?}", released.events) };
    assert_eq!(grant.slot, grants[1].slot);
    assert_eq!(renew(&mut story, "a", grants[0]), held);
}
