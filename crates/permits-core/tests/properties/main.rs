//! The properties that every store promises, shown on the model by random histories.
//!
//! The differential test shows that the Redis store equals the model, so the properties hold there too. After
//! every command `permits_testkit::history::checks` check it from outside, by the names in the guarantees.
//! The properties that span several commands are checked here: tokens over the whole history (P4), a repeated
//! command and what the holders of handles are told (P5), a withdrawn waiter (P9), the state at rest (P10),
//! and the shares of lanes (P23, in `lanes`).
//! `mutants` shows that each check can fail.
//!
//! Connected clients over a restart that forgets everything (P2) are the subject of the simulation of whole
//! sessions and of the exhaustive check, which run the library's own clients.
//!
//! `PERMITS_CASES` multiplies the number of histories.

#[path = "../support/coverage.rs"]
mod coverage;
#[path = "../support/ideas.rs"]
mod ideas;
mod lane_turns;
mod lanes;
mod mutants;
mod needed;
#[path = "../support/run.rs"]
mod run;
#[path = "../support/simulation.rs"]
mod simulation;
#[path = "../support/steps.rs"]
mod steps;

use std::cell::RefCell;

use permits_core::model::{self, Damage, KEPT_TOKENS, ServerClock, State};
use permits_core::protocol::{
    AcquireOutcome, AcquireRequest, Answers, Command, Counts, Declaration, Event, EventKind, Holder,
    Operation, PermitTerms, Recovery, Refusal, ReleaseOutcome, RenewOutcome, RenewRequest, RequestKey,
};
use permits_testkit::history::checks::{CHECKS, check};
use permits_testkit::history::handles::Handles;
use permits_testkit::history::step::Step;
use permits_testkit::mutants::model::Store;

use coverage::{CROWDED, Coverage, SMALL};
use ideas::Pairs;
use lanes::Shares;
use run::cases_until;
use simulation::Simulation;
use steps::{Action, Elapse, History, crowded_histories, eventful_histories, histories};

const FEW: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/properties-few.regressions");
const EVENTFUL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/properties-eventful.regressions");
const CROWDS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/properties-crowds.regressions");

/// A history on the model.
struct Run<'a> {
    store: Store,
    /// The only check that counts, if not all do.
    only: Option<&'static str>,
    simulation: Simulation,
    state: Option<State>,
    /// The highest token granted in all the history.
    last_token: u64,
    shares: Shares,
    handles: Handles,
    coverage: &'a mut Coverage,
    /// The pairs of ideas that decisions have needed, if they are counted.
    needed: Option<&'a mut Pairs>,
}

impl<'a> Run<'a> {
    fn history(coverage: &'a mut Coverage, history: &History) -> Result<(), String> {
        Self::on(model::apply, None, coverage, history)
    }

    /// Runs a history on a store, and judges it by one check, if not by all.
    fn on(
        store: Store,
        only: Option<&'static str>,
        coverage: &'a mut Coverage,
        history: &History,
    ) -> Result<(), String> {
        Self::of(store, only, coverage, history).whole(history)
    }

    fn of(store: Store, only: Option<&'static str>, coverage: &'a mut Coverage, history: &History) -> Self {
        let (simulation, shares) = (Simulation::new(history.name), Shares::default());
        let (state, last_token, handles, needed) = (None, 0, Handles::default(), None);
        Run { store, only, simulation, state, last_token, shares, handles, coverage, needed }
    }

    fn whole(mut self, history: &History) -> Result<(), String> {
        for (number, step) in history.steps.iter().enumerate() {
            self.step(step).map_err(|reason| format!("at step {number}, {step:?}:\n{reason}"))?;
        }
        self.withdrawn_waiter()?;
        self.rest()
    }

    fn step(&mut self, step: &steps::Step) -> Result<(), String> {
        self.simulation.pass(step, &mut self.state);
        let command = of_one_place(self.simulation.command(step, self.state.as_ref()));
        let done = self.execute(command)?;
        let (reply, events) = (&done.reply, &done.events[..]);
        self.simulation.learn(step, &done.command, reply, events);
        Ok(())
    }

    /// Executes a command and checks it.
    fn execute(&mut self, command: Command) -> Result<Step, String> {
        let found = self.state.clone();
        let is_damaged = found.as_ref().is_some_and(|state| state.damage.is_some());
        let (reply, events) = (self.store)(&mut self.state, &self.simulation.server(), &command);
        let (now_us, after) = (self.simulation.now_us, self.state.clone());
        // An inspection leaves a state that is expired or damaged as it is.
        let usable = |state: Option<State>| {
            state.filter(|state| !state.is_expired(now_us / 1000)).and_then(State::found)
        };
        if !command.only_looks() {
            let known = found.as_ref().filter(|state| !state.is_expired(now_us / 1000));
            self.judge("P4, kept", passes_what_was_kept(known, after.as_ref()))?;
        }
        self.coverage.note(now_us, found.as_ref(), &command, (&reply, &events), after.as_ref());
        if let Some(pairs) = &mut self.needed {
            let decided = (&reply, &events[..]);
            let needed = needed::of_command(
                &self.simulation.server(),
                found.as_ref(),
                &command,
                decided,
                after.as_ref(),
            );
            pairs.note(&needed);
        }
        let (before, after) = (usable(found), usable(after));
        let step = Step { now_us, before, command, reply, events, after };
        if self.only.is_none() {
            check(&step).map_err(|violation| violation.to_string())?;
        }
        // An inspection is judged as a whole: it is no command that counts.
        let only = self.only.filter(|_| !step.command.only_looks());
        if let Some((_, check)) = CHECKS.iter().find(|(name, _)| only == Some(name)) {
            check(&step)?;
        }
        let (tokens, shares) = (self.tokens(&step), self.shares.note(&step));
        let repeated = repeated(&step, &self.simulation.server(), self.store);
        // An inspection leaves a damaged state as it is.
        let handles = if step.command.only_looks() {
            Ok(())
        } else {
            self.handles.note(&step, &self.simulation.server(), is_damaged)
        };
        for (name, verdict) in [
            ("P4", tokens),
            ("P23, shares", shares),
            ("P5, repeated", repeated),
            ("P5, handles", handles),
            ("counts", counted(&step)),
        ] {
            self.judge(name, verdict)?;
        }
        Ok(step)
    }

    /// The verdict of a check, if it counts.
    fn judge(&self, name: &str, verdict: Result<(), String>) -> Result<(), String> {
        let counts = self.only.is_none_or(|only| only == name);
        verdict.or_else(|reason| if counts { Err(format!("{name}: {reason}")) } else { Ok(()) })
    }

    /// P4: each grant's token is higher than every earlier one, also when the store has forgotten those, if
    /// the server's clock has passed the highest one. The clock has, after as many microseconds as there were
    /// grants, unless it was set back.
    fn tokens(&mut self, step: &Step) -> Result<(), String> {
        let known = step.before.as_ref().map_or(0, |state| state.last_token);
        if known < self.last_token && step.now_us <= self.last_token {
            self.last_token = known;
        }
        // A request that raises the limit of its lane may call waiters after an earlier request of the batch
        // was granted.
        let mut all = step.fresh();
        all.sort_by_key(|fresh| fresh.grant.token);
        for fresh in all {
            if fresh.grant.token <= self.last_token {
                return Err(format!("{} got {} after {}", fresh.holder, fresh.grant.token, self.last_token));
            }
            self.last_token = fresh.grant.token;
        }
        Ok(())
    }

    fn send(&mut self, operation: Operation) -> Result<Step, String> {
        self.execute(command(&self.simulation, operation))
    }

    /// Lets time take effect until no command stops at a bound.
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
        let request = Simulation::session_id(77).request(0);
        // The lease is no longer than any before, since the state remembers the longest.
        let asked = AcquireRequest::new(holder.clone(), request.clone(), PermitTerms::new(1, 100));
        let came = self.send(Operation::Acquire { queue_max: u32::MAX, requests: vec![asked] })?;
        let was = match came.reply.answers {
            Answers::Acquire(answers) => answers[0].clone(),
            other => return Err(format!("{other:?}")),
        };
        let went = self.send(Operation::Release(vec![RequestKey { holder, request }.into()]))?;
        let AcquireOutcome::Waiting { .. } = was else { return Ok(()) };
        self.coverage.count("waiter withdrawn");
        if went.reply.answers != Answers::Release(vec![ReleaseOutcome::Waiting]) {
            return self.judge("P9", Err(format!("a waiter was released as {:?}", went.reply.answers)));
        }
        let plain = |state: Option<State>| {
            let lanes = state.as_ref().map(lanes::that_count).unwrap_or_default();
            let plain =
                |state| State { sequence: 0, last_ticket: 0, expires_ms: 0, lease_max_ms: 0, ..state };
            state.map(|state| State { lanes, ..plain(state) })
        };
        let (settled, left) = (plain(settled), plain(went.after));
        // If there was no state before, an empty state is left until it expires.
        if settled.is_some() && settled != left {
            return self.judge("P9", Err(format!("a waiter left a trace:\n{settled:?}\n{left:?}")));
        }
        Ok(())
    }

    /// P10: after the longest lease without a request, nothing is held or waits, and no slot is remembered.
    /// The state expires, unless an operator's change keeps it (P12).
    fn rest(&mut self) -> Result<(), String> {
        let past =
            steps::Step { elapse: Elapse::PastLeases, ..steps::Step::plain(Action::Renew(Vec::new())) };
        self.simulation.pass(&past, &mut self.state);
        if self.settle()?.after.is_some_and(|state| !state.entries.is_empty()) {
            // Leases have ended of grants that count for longer.
            self.simulation.pass(&past, &mut self.state);
        }
        if let Some(state) = self.settle()?.after {
            let is_empty = state.entries.is_empty() && state.queue.is_empty() && state.leases.is_empty();
            if state.held != 0 || !is_empty || state.slots_made != 0 || !state.free.is_empty() {
                return self.judge("P10, at rest", Err(format!("there is {state:?}")));
            }
            if state.never_expires() == state.is_expired(state.expires_ms) {
                let reason = format!("an idle state is kept, or an operator's change lost: {state:?}");
                return self.judge("P12", Err(reason));
            }
        }
        Ok(())
    }
}

/// The command, in which a request supersedes a waiter only if it comes alone. Of a batch, others may be
/// granted with it, and be answered that they wait: the differential test has those.
fn of_one_place(mut command: Command) -> Command {
    if let Operation::Acquire { requests, .. } = &mut command.operation
        && requests.len() > 1
    {
        requests.iter_mut().for_each(|request| request.supersedes = false);
    }
    command
}

fn command(simulation: &Simulation, operation: Operation) -> Command {
    Command {
        semaphore: simulation.name.clone(),
        session: Simulation::session_id(0),
        lease_ms: 100,
        recovery: Recovery::Off,
        declaration: Declaration::Stored,
        operation,
    }
}

/// P4: where keys have vanished and the state is left, the next token is above all that sessions may have
/// used of the grants that are forgotten.
fn passes_what_was_kept(found: Option<&State>, after: Option<&State>) -> Result<(), String> {
    let (Some(found), Some(after)) = (found, after) else { return Ok(()) };
    if found.damage != Some(Damage::OtherLost) {
        return Ok(());
    }
    let kept = found.entries.values().filter(|entry| entry.terms.keep);
    let used = kept.filter_map(|entry| Some(entry.place.taken()?.token + KEPT_TOKENS - 1)).max();
    match used.filter(|used| *used > after.last_token) {
        Some(used) => Err(format!("{used} may have been used, and the last is {}", after.last_token)),
        None => Ok(()),
    }
}

/// P5: the same command, repeated at once, has the same answers and no effect.
///
/// The property has exceptions. A command that stopped at a bound continues. A released entry is unknown the
/// second time. A renewal that was lost, or must be retried, may have another answer. So may a request whose
/// place another request of the batch has taken, or whose lane got another limit from another request. A try
/// that was refused may wait for a recall, once another request of the batch has a permit that may be
/// recalled, or is the head of the queue, for which the recall has just begun.
fn repeated(step: &Step, server: &ServerClock<'_>, store: Store) -> Result<(), String> {
    let Some(after) = step.after.clone() else { return Ok(()) };
    let mut state = Some(after.clone());
    let (reply, events) = store(&mut state, server, &step.command);
    if step.reply.recheck_ms == Some(0) || reply.recheck_ms == Some(0) {
        return Ok(());
    }
    if let Operation::Acquire { requests, .. } = &step.command.operation
        && requests.iter().any(|one| {
            let bounds = |asked: &AcquireRequest| (asked.terms.lane_limit, asked.terms.lane_floor);
            let is_other = |other: &AcquireRequest| bounds(one) != bounds(other);
            requests.iter().any(|other| one.terms.lane == other.terms.lane && is_other(other))
        })
    {
        return Ok(());
    }
    if let Operation::Acquire { requests, .. } = &step.command.operation
        && step.events.iter().any(|event| {
            // A waiter that a limit removes may be the last one of its lane, whose limit ends with it.
            let is_removed = matches!(event.kind, EventKind::Superseded | EventKind::Refused);
            is_removed && requests.iter().any(|asked| asked.request == event.request)
        })
    {
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
            let is_refused = |outcome: &_| {
                use Refusal::{Cooling, LaneFull, NoPermits};
                matches!(outcome, AcquireOutcome::Refused(Cooling { .. } | LaneFull { .. } | NoPermits))
            };
            let waits = |outcome: &_| matches!(outcome, AcquireOutcome::Waiting { .. });
            let may_recall = server.now_us < 1000 * after.kept_until_ms;
            if may_recall
                && first.iter().zip(second).any(|(first, second)| is_refused(first) && waits(second))
            {
                return Ok(());
            }
            // A refused holder may be let in by a later request of the same batch; and a lane that comes
            // later in the batch may be served in turn with the lanes before it.
            let has_lanes = after.lanes.last > 0;
            let same = |(first, second): (&AcquireOutcome, &AcquireOutcome)| match (first, second) {
                (AcquireOutcome::Refused(_), _) => true,
                (AcquireOutcome::Waiting { .. }, AcquireOutcome::Waiting { .. }) if has_lanes => true,
                (first, second) => first == second,
            };
            if !first.iter().zip(second).all(same) {
                return Err(format!("{first:?}, and the second time {second:?}"));
            }
        }
        // The grant is invented: its request waits. The command may make this very grant to it, or send it
        // away, and then the grant looks like one that was forgotten.
        (Answers::Adopt(false), Answers::Adopt(true))
            if matches!(&step.command.operation, Operation::Adopt(adopt)
                if step.events.iter().any(|event| event.request == adopt.request)) =>
        {
            return Ok(());
        }
        (first, second) if first != second => {
            return Err(format!("{first:?}, and the second time {second:?}"));
        }
        _ => {}
    }
    // A request that is refused again counts again.
    let counts = |counts: Counts| Counts { refused: after.counts.refused, ..counts };
    let second = state.map(|state| State { sequence: after.sequence, counts: counts(state.counts), ..state });
    if !events.is_empty() || second.as_ref() != Some(&after) {
        let (first, again) = (&step.reply.answers, &reply.answers);
        return Err(format!(
            "{first:?}, and the second time {again:?} and {events:?}, which did something:\n{after:?}\n{second:?}"
        ));
    }
    Ok(())
}

/// The counts of the state: each grant, refusal and revocation of the command counts once.
fn counted(step: &Step) -> Result<(), String> {
    let Some(after) = &step.after else { return Ok(()) };
    let before = step.before.as_ref().map_or_else(Counts::default, |state| state.counts);
    let refused = match (&step.command.operation, &step.reply.answers) {
        (_, Answers::Acquire(answers)) => {
            answers.iter().filter(|answer| matches!(answer, AcquireOutcome::Refused(_))).count()
        }
        // A waiter that a renewal finds too heavy has no event.
        (Operation::Renew(requests), Answers::Renew(answers)) => {
            let told = |holder: &Holder| step.events.iter().any(|event| event.holder == *holder);
            let silent = |(request, answer): &(&RenewRequest, &RenewOutcome)| {
                **answer == RenewOutcome::ExceedsLimit && !told(&request.holder)
            };
            requests.iter().zip(answers).filter(silent).count()
        }
        _ => 0,
    };
    let told = |event: &&Event| {
        matches!(event.kind, EventKind::Refused | EventKind::Superseded | EventKind::LineClosed(_))
    };
    let refused = (refused + step.events.iter().filter(told).count()) as u64;
    let revoked = matches!(step.reply.answers, Answers::Revoke(was) if was != ReleaseOutcome::Unknown);
    let grants = step.fresh().len() as u64;
    let counted = |now: u64, before: u64, most: u64| now >= before && now - before <= most;
    let is_exact = matches!(step.command.operation, Operation::Acquire { .. });
    if after.counts.grants != before.grants + grants
        || !counted(after.counts.refused, before.refused, refused)
        || (is_exact && after.counts.refused != before.refused + refused)
        || !counted(after.counts.revoked, before.revoked, revoked.into())
    {
        let wanted = format!("{grants} granted, {refused} refused, revoked: {revoked}");
        return Err(format!("{before:?}, then {:?}, for {wanted}", after.counts));
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

/// Decisions that need two ideas at once are rare in histories in which everything happens, and most defects
/// that reviews have found were in such decisions. In these histories nothing is lost, and something changes
/// all the time.
#[test]
fn each_two_ideas_are_needed_by_a_decision() {
    let (coverage, pairs) = (RefCell::new(Coverage::default()), RefCell::new(needed::pairs()));
    let check = |history: &History| {
        let (coverage, pairs) = (&mut *coverage.borrow_mut(), &mut *pairs.borrow_mut());
        let mut run = Run { needed: Some(pairs), ..Run::of(model::apply, None, coverage, history) };
        run.simulation.knows_ends = true;
        run.whole(history)
    };
    let met = || pairs.borrow().missing().is_empty();
    cases_until(600, EVENTFUL, &eventful_histories(150), check, met);
    println!("{}", pairs.borrow());
    pairs.borrow().assert_met();
}

#[test]
fn every_command_keeps_the_properties_in_a_crowd() {
    let coverage = RefCell::new(Coverage::default());
    let check = |history: &History| Run::history(&mut coverage.borrow_mut(), history);
    cases_until(30, CROWDS, &crowded_histories(60), check, || coverage.borrow().missing(CROWDED).is_empty());
    coverage.borrow().assert_met(CROWDED);
}
