//! The ideas of requests and operators, and the pairs of them that have met.

use std::collections::BTreeMap;
use std::fmt;

use permits_core::model::{Entry, State};
use permits_core::protocol::{
    Answers, Command, Declaration, Event, EventKind, Operation, ReleaseRequest, Reply,
};

pub(crate) type Idea = &'static str;

/// The ideas that a store sees.
pub(crate) const OF_A_STORE: [Idea; 9] = [
    "weights",
    "lanes",
    "keep",
    "at least",
    "count",
    "supersede",
    "pause with an end",
    "hand-over",
    "exactly",
];

/// Ideas that are commands of their own, so that no two of them are in one command.
#[allow(dead_code, reason = "the simulation has more of them")]
pub(crate) const COMMANDS: [Idea; 3] = ["count", "supersede", "hand-over"];

/// The ideas in a command, or in a state that the command finds or leaves.
pub(crate) fn of_command(
    now_ms: u64,
    states: [Option<&State>; 2],
    command: &Command,
    (reply, events): (&Reply, &[Event]),
) -> Vec<Idea> {
    let is_counted = |release: &ReleaseRequest| release.counted.is_some();
    let any = |has: fn(&Entry) -> bool| states.iter().flatten().any(|state| state.entries.values().any(has));
    let pauses = |state: &&State| state.pause_ends_ms().is_some_and(|ends_ms| ends_ms > now_ms);
    let found = [
        ("weights", any(|entry| entry.terms.weight > 1)),
        ("lanes", any(|entry| entry.terms.lane.as_str() != "")),
        ("keep", any(|entry| entry.terms.keep)),
        ("at least", any(|entry| entry.terms.at_least_ms > 0)),
        ("count", matches!(&command.operation, Operation::Release(all) if all.iter().any(is_counted))),
        ("supersede", events.iter().any(|event| matches!(event.kind, EventKind::Superseded))),
        ("pause with an end", states.iter().flatten().any(pauses)),
        ("hand-over", matches!(reply.answers, Answers::Adopt(true))),
        ("exactly", matches!(command.declaration, Declaration::Require(limit) if limit == reply.limit)),
    ];
    found.into_iter().filter(|(_, is_here)| *is_here).map(|(idea, _)| idea).collect()
}

/// The pairs of ideas that have met, each with the number of times.
#[derive(Debug)]
pub(crate) struct Pairs {
    /// Each pair that can meet.
    met: BTreeMap<(Idea, Idea), u64>,
}

impl Pairs {
    /// The pairs of these ideas. No two ideas of one list in `apart` can meet.
    pub(crate) fn new(ideas: &[Idea], apart: &[&[Idea]]) -> Self {
        let pairs = ideas
            .iter()
            .enumerate()
            .flat_map(|(at, first)| ideas[at + 1..].iter().map(move |second| (*first, *second)));
        let can_meet = |(first, second): &(Idea, Idea)| {
            !apart.iter().any(|apart| apart.contains(first) && apart.contains(second))
        };
        Self { met: pairs.filter(can_meet).map(|pair| (pair, 0)).collect() }
    }

    /// Counts the pairs of ideas that are here together, in the order of all.
    pub(crate) fn note(&mut self, here: &[Idea]) {
        for (at, first) in here.iter().enumerate() {
            for second in &here[at + 1..] {
                if let Some(count) = self.met.get_mut(&(*first, *second)) {
                    *count += 1;
                }
            }
        }
    }

    /// The pairs that have not met yet.
    pub(crate) fn missing(&self) -> Vec<(Idea, Idea)> {
        self.met.iter().filter(|(_, count)| **count == 0).map(|(pair, _)| *pair).collect()
    }

    /// # Panics
    /// If two ideas never met.
    pub(crate) fn assert_met(&self) {
        let missing = self.missing();
        assert!(missing.is_empty(), "P16: never met: {missing:?}");
        let rarest = self.met.iter().min_by_key(|(_, count)| **count);
        println!("{} pairs of ideas met; the rarest: {rarest:?}", self.met.len());
    }
}

/// The rarest first.
impl fmt::Display for Pairs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut met: Vec<_> = self.met.iter().map(|(pair, count)| (count, pair)).collect();
        met.sort();
        met.iter().try_for_each(|(count, (first, second))| writeln!(f, "{count:6} {first} × {second}"))
    }
}
