//! Lanes: their shares of what is granted, and that a lane alone is a queue as ever.
//!
//! `history::checks` judge single commands: the order within a lane (P6) and the head, which stays (P23). The
//! shares of lanes span many commands and are judged here, by [`Shares`].

use std::collections::{BTreeMap, BTreeSet};

use permits_core::model::{self, Lane, Lanes, Progress, Side, State};
use permits_core::protocol::{
    Answers, Command, Event, EventKind, Inspected, LaneName, Operation, PermitTerms, Reply, Waits,
};
use permits_testkit::history::order::side;
use permits_testkit::history::step::Step;

use crate::run::cases;
use crate::simulation::{Simulation, lose};
use crate::steps::{Fault, History, histories};

const ALONE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/properties-lanes.regressions");

/// The time for which a try waits for what is recalled, in microseconds.
const RECALL_US: u64 = 50_000;

/// The error of some sums of weight ÷ share.
pub(crate) const ROUNDING: f64 = 1e-6;

/// P23: between two lanes that both have waiters all the time, and stand on the same side of their floors,
/// the units granted ÷ share differ by no more than the largest weight ÷ share that was granted in one, and
/// that in the other.
#[derive(Default)]
pub(crate) struct Shares {
    /// The difference between two lanes that have both had waiters since some command: now, at least and at
    /// most.
    pairs: BTreeMap<(LaneName, LaneName), (f64, f64, f64)>,
    /// The largest weight ÷ share granted in each lane.
    largest: BTreeMap<LaneName, f64>,
}

impl Shares {
    /// Judges one command.
    pub(crate) fn note(&mut self, step: &Step) -> Result<(), String> {
        let mut granted: BTreeMap<&LaneName, f64> = BTreeMap::new();
        let mut units: BTreeMap<&LaneName, u64> = BTreeMap::new();
        for Event { holder, kind, .. } in &step.events {
            let Some(entry) = step.before.as_ref().and_then(|before| before.entries.get(holder)) else {
                continue;
            };
            if let EventKind::Granted(_) = kind {
                let cost = f64::from(entry.terms.weight) / f64::from(entry.terms.share);
                *granted.entry(&entry.terms.lane).or_default() += cost;
                *units.entry(&entry.terms.lane).or_default() += u64::from(entry.terms.weight);
                let largest = self.largest.entry(entry.terms.lane.clone()).or_default();
                *largest = largest.max(cost);
            }
        }
        let mut stay: BTreeSet<&LaneName> = step.waiters_left().map(|(lane, _, _)| lane).collect();
        // A lane that is full at some point of the command is not in line there, and a lane that crosses its
        // floor is compared with other lanes.
        let place = |state: &Option<State>, lane: &LaneName| {
            let state = state.as_ref()?;
            Some((side(state, lane), *state.lanes.bounded().get(lane)?))
        };
        stay.retain(|lane| match [&step.before, &step.after].map(|state| place(state, lane)) {
            [None, None] => true,
            [Some((before, was)), Some((after, is))] => {
                let is_same = (before, was.limit, was.floor) == (after, is.limit, is.floor);
                // The least that it held was after the releases of the command and before its grants.
                let least = is.held.saturating_sub(units.get(*lane).copied().unwrap_or_default());
                let floor = u64::from(is.floor);
                is_same && after != Side::Full && (least >= floor || was.held.max(is.held) < floor)
            }
            _ => false,
        });
        let is_short =
            |lane: &LaneName| place(&step.after, lane).is_some_and(|(side, _)| side == Side::Short);
        self.pairs.retain(|(one, other), _| {
            stay.contains(one) && stay.contains(other) && is_short(one) == is_short(other)
        });
        for ((one, other), (now, least, most)) in &mut self.pairs {
            let of = |lane| granted.get(lane).copied().unwrap_or_default();
            *now += of(one) - of(other);
            (*least, *most) = (least.min(*now), most.max(*now));
            let largest = |lane| self.largest.get(lane).copied().unwrap_or_default();
            let bound = largest(one) + largest(other);
            if *most - *least > bound + ROUNDING {
                return Err(format!("{one:?} and {other:?} are {least} to {most} apart, and not {bound}"));
            }
        }
        let waiting: Vec<LaneName> = step.after.iter().flat_map(waiting).collect();
        for (at, one) in waiting.iter().enumerate() {
            for other in &waiting[at + 1..] {
                self.pairs.entry((one.clone(), other.clone())).or_default();
            }
        }
        Ok(())
    }
}

/// The lanes with waiters.
fn waiting(state: &State) -> BTreeSet<LaneName> {
    state.queue.values().map(|holder| state.entries[holder].terms.lane.clone()).collect()
}

/// The lanes of a state without what has no effect: which numbers were used, and lanes that owe nothing
/// beyond the progress of the first.
pub(crate) fn that_count(state: &State) -> Lanes {
    let in_line = state.lanes.known().values().filter_map(|lane| match lane {
        Lane::Waits { progress, side: Side::Fair, .. } => Some(*progress),
        Lane::Waits { .. } | Lane::Owes { .. } => None,
    });
    // If no lane is in line, no lane owes anything.
    let first = in_line.min().unwrap_or(Progress(f64::INFINITY));
    let counts = |lane: &Lane| !matches!(lane, Lane::Owes { until } if *until <= first);
    let known = state.lanes.known().iter().filter(|(_, lane)| counts(lane));
    let known = known.map(|(name, lane)| (name.clone(), *lane)).collect();
    Lanes::new(state.lanes.last.min(1), known, state.lanes.bounded().clone())
}

/// A semaphore whose requests all name one lane gives the same replies and events as without lanes.
#[test]
fn one_lane_alone_is_as_no_lane() {
    cases(300, ALONE, &histories(150), |history: &History| {
        let mut simulation = Simulation::new(history.name);
        let [mut without, mut with]: [Option<State>; 2] = [None, None];
        for (number, step) in history.steps.iter().enumerate() {
            // The lanes' part exists only in one of the two.
            let fault = match step.fault {
                Some(Fault::LoseKeys(bits)) if bits % 16 == 0 => None,
                Some(Fault::LoseKeys(bits)) => Some(Fault::LoseKeys(bits % 16)),
                ref fault => fault.clone(),
            };
            let step = crate::steps::Step { fault, ..step.clone() };
            simulation.pass(&step, &mut without);
            with = match step.fault {
                _ if without.is_none() => None,
                Some(Fault::LoseKeys(bits)) => with.and_then(|state| lose(state, bits)),
                _ => with,
            };
            // Tickets of a batch without lanes are some microseconds after the times in lanes. If the clock
            // was set back, they are far ahead of the times.
            let last = without.as_ref().and_then(|state| state.queue.last_key_value());
            if let Some((ticket, _)) = last.filter(|(ticket, _)| **ticket > simulation.now_us + 1_000) {
                simulation.now_us = ticket + 2 * RECALL_US;
            }
            let queued = |state: &State| state.queue.keys().copied().collect::<Vec<u64>>();
            let tickets = without.as_ref().map(queued).unwrap_or_default();
            while tickets.iter().any(|ticket| (ticket + RECALL_US).abs_diff(simulation.now_us) < 1_000) {
                simulation.now_us += 1_000;
            }
            let command = simulation.command(&step, without.as_ref());
            let plain = in_lane(command.clone(), "");
            let (reply, events) = model::apply(&mut without, &simulation.server(), &plain);
            let (other, others) = model::apply(&mut with, &simulation.server(), &in_lane(command, "one"));
            if (unnamed(reply.clone()), &events) != (unnamed(other.clone()), &others) {
                return Err(format!(
                    "at step {number}, {step:?}:\n{reply:?}, {events:?}\nand in one lane\n{other:?}, {others:?}"
                ));
            }
            simulation.learn(&step, &plain, &reply, &events);
        }
        Ok(())
    });
}

/// The command with all its requests in one lane.
fn in_lane(mut command: Command, name: &str) -> Command {
    let lane = LaneName::new(name).expect("it is valid");
    let set = |terms: &mut PermitTerms| {
        (terms.lane, terms.share) = (lane.clone(), 1);
        (terms.lane_limit, terms.lane_floor) = (0, 0);
    };
    match &mut command.operation {
        Operation::Acquire { requests, .. } => requests.iter_mut().for_each(|asked| {
            set(&mut asked.terms);
            asked.lane_waiters = 0;
        }),
        Operation::Renew(renewals) => renewals.iter_mut().for_each(|renewal| set(&mut renewal.terms)),
        Operation::Adopt(adopt) => set(&mut adopt.terms),
        _ => {}
    }
    command
}

/// The reply without the names of lanes and the times of waiters. Without lanes, the times of a batch differ
/// by a microsecond.
fn unnamed(reply: Reply) -> Reply {
    let Answers::Inspect(inspected) = reply.answers else { return reply };
    let mut inspected = Inspected { lanes: Vec::new(), ..*inspected };
    inspected.holders.iter_mut().for_each(|holder| holder.lane = LaneName::default());
    for waiter in &mut inspected.waiters {
        (waiter.lane, waiter.queued_us) = (LaneName::default(), 0);
    }
    // As many waits, which may differ by some microseconds, and so count as others.
    let waits = inspected.waits.numbers.iter().sum();
    inspected.waits = Waits::default();
    inspected.waits.numbers[0] = waits;
    Reply { answers: Answers::Inspect(Box::new(inspected)), ..reply }
}
