//! Lanes that take turns: a line behind a few units, which are handed on one by one.

use std::collections::{BTreeMap, VecDeque};

use permits_core::model::{self, Side, State};
use permits_core::protocol::{
    AcquireOutcome, AcquireRequest, Answers, Command, Event, EventKind, Holder, LaneName, LimitChange,
    Operation, PermitTerms, Recovery, Refusal, RenewRequest, Reply, RequestKey, Setting,
};
use permits_testkit::history::order::side;
use permits_testkit::history::step::Step;
use permits_testkit::mutants::model as mutants;
use permits_testkit::random;

use crate::command;
use crate::lanes::{ROUNDING, Shares};
use crate::simulation::Simulation;

/// A line behind a few units, which are handed on one by one.
struct Line {
    store: mutants::Store,
    simulation: Simulation,
    state: Option<State>,
    recovery: Recovery,
    made: u64,
    /// The holders, the earliest first.
    holders: VecDeque<RequestKey>,
    waits: BTreeMap<Holder, (String, u32)>,
}

impl Line {
    fn of(store: mutants::Store, limit: u32) -> Self {
        let (simulation, holders) = (Simulation::new(0), VecDeque::new());
        let mut line = Self {
            store,
            simulation,
            state: None,
            recovery: Recovery::Off,
            made: 0,
            holders,
            waits: BTreeMap::new(),
        };
        line.send(Operation::Set {
            origin: Simulation::session_id(9).request(0).into(),
            setting: Setting::Limit { change: LimitChange::Set(limit), expected_version: None },
        });
        line
    }

    fn new(limit: u32) -> Self {
        Self::of(model::apply, limit)
    }

    fn send(&mut self, operation: Operation) -> (Reply, Vec<Event>) {
        let command =
            Command { lease_ms: LEASE_MS, recovery: self.recovery, ..command(&self.simulation, operation) };
        self.simulation.now_us += 1;
        (self.store)(&mut self.state, &self.simulation.server(), &command)
    }

    fn acquire(&mut self, lane: &str, weight: u32, share: u32) -> AcquireOutcome {
        self.ask(lane, PermitTerms { share, ..PermitTerms::new(weight, LEASE_MS) })
    }

    /// A request of one unit in a lane with this limit.
    fn acquire_within(&mut self, lane: &str, lane_limit: u32) -> AcquireOutcome {
        self.ask(lane, PermitTerms { lane_limit, ..PermitTerms::new(1, LEASE_MS) })
    }

    /// A request of one unit in a lane with this floor.
    fn acquire_above(&mut self, lane: &str, lane_floor: u32) -> AcquireOutcome {
        self.ask(lane, PermitTerms { lane_floor, ..PermitTerms::new(1, LEASE_MS) })
    }

    fn ask(&mut self, lane: &str, terms: PermitTerms) -> AcquireOutcome {
        self.made += 1;
        let request = Simulation::session_id(1).request(self.made);
        let holder = Holder::new(&self.made.to_string()).expect("it is valid");
        let name = LaneName::new(lane).expect("it is valid");
        let (terms, weight) = (PermitTerms { lane: name, ..terms.clone() }, terms.weight);
        let asked = AcquireRequest::new(holder.clone(), request.clone(), terms);
        let (reply, events) = self.send(Operation::Acquire { queue_max: u32::MAX, requests: vec![asked] });
        for Event { holder, request, .. } in events {
            self.waits.remove(&holder);
            self.holders.push_back(RequestKey { holder, request });
        }
        let Answers::Acquire(mut answers) = reply.answers else { unreachable!() };
        match answers[0] {
            AcquireOutcome::Granted(_) => self.holders.push_back(RequestKey { holder, request }),
            _ => drop(self.waits.insert(holder, (lane.to_owned(), weight))),
        }
        answers.remove(0)
    }

    /// The release of the earliest holder.
    fn release(&self) -> Command {
        let first = self.holders.front().expect("one holds").clone();
        let operation = Operation::Release(vec![first.into()]);
        Command { lease_ms: LEASE_MS, ..command(&self.simulation, operation) }
    }

    /// The earliest holder releases.
    fn serve(&mut self) -> (Reply, Vec<Event>) {
        let operation = self.release().operation;
        self.holders.pop_front();
        let (reply, events) = self.send(operation);
        for Event { holder, request, .. } in &events {
            self.holders.push_back(RequestKey { holder: holder.clone(), request: request.clone() });
        }
        (reply, events)
    }

    /// The earliest holder releases. Returns the lanes and weights that are granted.
    fn granted(&mut self) -> Vec<(String, u32)> {
        let (_, events) = self.serve();
        events.iter().map(|event| self.waits.remove(&event.holder).expect("it waited")).collect()
    }
}

/// Longer than any of these histories.
const LEASE_MS: u64 = 86_400_000;

#[test]
fn the_check_sees_a_lane_that_is_served_alone() {
    let check = |store: mutants::Store| {
        let (mut line, mut shares) = (Line::of(store, 1), Shares::default());
        line.acquire("", 1, 1);
        for _ in 0..9 {
            line.acquire("a", 1, 1);
            line.acquire("b", 1, 1);
        }
        (0..9).try_for_each(|_| {
            let (before, command, (reply, events)) = (line.state.clone(), line.release(), line.serve());
            let after = line.state.clone();
            shares.note(&Step { now_us: line.simulation.now_us, before, command, reply, events, after })
        })
    };
    assert_eq!(check(model::apply), Ok(()));
    assert!(check(mutants::charges_no_lane).is_err());
}

/// A newcomer in a lane of its own waits for one grant to each other lane, even to one with ten thousand
/// waiters.
#[test]
fn a_single_request_waits_for_one_grant_of_each_lane() {
    const LANES: usize = 10;
    let mut line = Line::new(1);
    line.acquire("", 1, 1);
    (0..10_000).for_each(|_| drop(line.acquire("many", 1, 1)));
    (1..LANES).for_each(|lane| (0..20).for_each(|_| drop(line.acquire(&lane.to_string(), 1, 1))));
    // The others are at some point of their turns.
    (0..37).for_each(|_| drop(line.granted()));
    let position = line.acquire("single", 1, 1);
    let before = (0..).take_while(|_| line.granted()[0].0 != "single").count();
    println!("{before} of {LANES} lanes were granted before, and it was told {position:?}");
    assert!(before <= LANES, "{before}");
}

/// A lane that leaves with each grant, and returns, is not served as if it had a larger share.
#[test]
fn a_lane_that_comes_back_gains_nothing() {
    let mut line = Line::new(1);
    line.acquire("", 1, 1);
    line.acquire("back", 1, 1);
    (0..60).for_each(|_| drop(line.acquire("stays", 1, 5)));
    let back = (0..60).filter(|_| {
        let is_back = line.granted()[0].0 == "back";
        if is_back {
            line.acquire("back", 1, 1);
        }
        is_back
    });
    let back = back.count();
    assert!((9..=11).contains(&back), "one of six is its share, and it was granted {back} of 60");
}

/// Units that are free go to other lanes, also to newcomers, and the lane has its turn when one of its own is
/// free again.
#[test]
fn a_lane_at_its_limit_stops_nobody_else() {
    let mut line = Line::new(4);
    let granted = |outcome| matches!(outcome, AcquireOutcome::Granted(_));
    assert!(granted(line.acquire_within("a", 2)) && granted(line.acquire_within("a", 2)));
    assert!(!granted(line.acquire_within("a", 2)), "two are the limit");
    assert!(!granted(line.acquire("a", 1, 1)), "one that names no limit waits, too");
    assert!(granted(line.acquire("b", 1, 1)) && granted(line.acquire("", 1, 1)), "two units were free");
    assert!(!granted(line.acquire("b", 1, 1)));
    // Releases both holders of lane a, then the others.
    let order: Vec<String> = (0..4).flat_map(|_| line.granted()).map(|(lane, _)| lane).collect();
    assert_eq!(order, ["b", "a", "a"]);
}

/// A lane that was at its limit while others were served has no more than its share afterwards.
#[test]
fn a_lane_saves_nothing_up_at_its_limit() {
    let mut line = Line::new(2);
    line.acquire_within("full", 1);
    line.acquire("other", 1, 1);
    (0..40).for_each(|_| drop(line.acquire_within("full", 1)));
    (0..200).for_each(|_| drop(line.acquire("other", 1, 1)));
    // The holder in the lane stays; the others are served.
    let first = line.holders.pop_front().expect("it holds");
    (0..100).for_each(|_| assert_eq!(line.granted()[0].0, "other"));
    line.holders.push_back(first);
    (0..40).for_each(|_| drop(line.acquire_within("late", 9)));
    // If the lane had no limit, it would get a unit at each turn.
    line.acquire_within("full", 2);
    let next: Vec<String> = (0..30).flat_map(|_| line.granted()).map(|(lane, _)| lane).collect();
    let of = |name: &str| next.iter().filter(|lane| *lane == name).count();
    assert!(of("late") >= 9 && of("other") >= 9, "{next:?}");
}

/// It is served after one grant of the other, and not after its share. The lane that waits first has the
/// lower number.
#[test]
fn a_lane_that_returns_from_its_limit_is_served_by_turns() {
    let mut line = Line::new(2);
    let within = |line: &mut Line| {
        drop(line.ask("full", PermitTerms { share: 100, lane_limit: 1, ..PermitTerms::new(1, LEASE_MS) }));
    };
    within(&mut line);
    line.acquire("other", 1, 100);
    (0..10).for_each(|_| within(&mut line));
    (0..300).for_each(|_| drop(line.acquire("other", 1, 100)));
    let full = (0..20).flat_map(|_| line.granted()).filter(|(lane, _)| lane == "full").count();
    assert!((6..=10).contains(&full), "{full} of 20");
}

/// A refusal takes up no unit, so the number of free units does not bound the refusals.
#[test]
fn heads_that_have_become_too_heavy_hold_up_nobody() {
    let mut line = Line::new(3);
    line.acquire("", 3, 1);
    (0..100).for_each(|_| drop(line.acquire("", 3, 1)));
    line.acquire("", 1, 1);
    line.send(Operation::Set {
        origin: Simulation::session_id(9).request(1).into(),
        setting: Setting::Limit { change: LimitChange::Set(2), expected_version: None },
    });
    let (_, events) = line.serve();
    let granted = events.iter().filter(|event| matches!(event.kind, EventKind::Granted(_))).count();
    assert_eq!((events.len(), granted), (101, 1));
}

/// The latest limit that a request names counts, for what waits already, too.
#[test]
fn the_latest_limit_of_a_lane_counts() {
    let mut line = Line::new(4);
    line.acquire_within("a", 1);
    line.acquire_within("a", 1);
    line.acquire_within("a", 1);
    let raised = line.acquire_within("a", 3);
    assert_eq!(raised, AcquireOutcome::Waiting { position: 0 }, "those before it were granted");
    let refused = line.ask("a", PermitTerms { lane_limit: 3, ..PermitTerms::new(4, LEASE_MS) });
    assert_eq!(refused, AcquireOutcome::Refused(Refusal::ExceedsLaneLimit(3)));
    // Three are held, and one may be.
    line.acquire_within("a", 1);
    let bounded = |line: &Line| line.state.as_ref().expect("it is in use").lanes.bounded().clone();
    let a = LaneName::new("a").expect("it is valid");
    assert_eq!((bounded(&line)[&a].limit, bounded(&line)[&a].held), (1, 3));
    let granted: Vec<usize> = (0..3).map(|_| line.granted().len()).collect();
    assert_eq!(granted, [0, 0, 1]);
}

/// A grant that names no limit counts for the limit of its lane.
#[test]
fn a_grant_that_names_no_limit_counts_for_its_lane() {
    let mut line = Line::new(4);
    line.acquire_within("a", 2);
    assert!(matches!(line.acquire("a", 1, 1), AcquireOutcome::Granted(_)));
    assert_eq!(line.acquire_within("a", 2), AcquireOutcome::Waiting { position: 0 }, "two are held");
}

/// If all lanes are at their limits, the next lane in line begins with the furthest progress of all. Units
/// that other lanes got while no limit kept them out are no debt.
#[test]
fn where_all_lanes_are_full_none_owes() {
    let mut line = Line::new(2);
    line.acquire_within("full", 1);
    line.holders.clear();
    line.acquire_within("ahead", 1);
    (0..20).for_each(|_| drop(line.acquire_within("full", 1)));
    (0..20).for_each(|_| drop(line.acquire_within("ahead", 1)));
    (0..5).for_each(|_| assert_eq!(line.granted()[0].0, "ahead"));
    // Both are full, and one has had five units more.
    (0..20).for_each(|_| drop(line.acquire("new", 1, 1)));
    let order: Vec<String> = (0..4).map(|_| line.granted().remove(0).0).collect();
    assert_eq!(order, ["new", "ahead", "new", "ahead"]);
}

/// Nothing is granted in a lane with a limit while the store recovers, because a forgotten holder may be of
/// that lane.
#[test]
fn a_lane_with_a_limit_waits_for_the_end_of_a_recovery() {
    for (lane_limit, lane_floor, granted) in [(0, 0, 1), (2, 0, 0), (0, 1, 1), (2, 1, 0)] {
        let mut line = Line::new(1);
        line.recovery = Recovery::Strict;
        line.acquire("", 1, 1);
        line.simulation.restart(0);
        line.simulation.now_us += 2_000_000;
        let RequestKey { holder, request } = line.holders[0].clone();
        let terms = PermitTerms::new(1, LEASE_MS);
        let renewal = RenewRequest::new(holder, request, terms, None);
        line.send(Operation::Renew(vec![renewal]));
        line.ask("a", PermitTerms { lane_limit, lane_floor, ..PermitTerms::new(1, LEASE_MS) });
        let bounds = format!("in a lane with a limit of {lane_limit} and a floor of {lane_floor}");
        assert_eq!(line.granted().len(), granted, "{bounds}");
    }
}

/// A lane gets the next units until it holds as much as its floor, and is among the others then.
#[test]
fn a_floor_is_met_by_the_next_units() {
    let mut line = Line::new(6);
    (0..6).for_each(|_| drop(line.acquire("other", 1, 1)));
    (0..20).for_each(|_| drop(line.acquire("other", 1, 1)));
    (0..20).for_each(|_| drop(line.acquire_above("floor", 3)));
    let order: Vec<String> = (0..6).flat_map(|_| line.granted()).map(|(lane, _)| lane).collect();
    assert_eq!(order[..3], ["floor", "floor", "floor"], "three are missing, and the next three are its");
    let next = order[3..].iter().filter(|lane| *lane == "floor").count();
    assert!((1..=2).contains(&next), "both have one share: {order:?}");
}

/// Units that a lane gets below its floor are not charged to its share. The lane has its part of the rest,
/// even after an hour in which it got only its floor.
#[test]
fn a_floor_is_no_ceiling() {
    let mut line = Line::new(4);
    (0..4).for_each(|_| drop(line.acquire("long", 1, 1)));
    (0..300).for_each(|_| drop(line.acquire("long", 1, 1)));
    (0..300).for_each(|_| drop(line.acquire_above("short", 1)));
    assert_eq!(line.granted()[0].0, "short");
    // Each of its permits is released at once, and the others are held on.
    for _ in 0..100 {
        let last = line.holders.pop_back().expect("it holds");
        line.holders.push_front(last);
        assert_eq!(line.granted()[0].0, "short", "it holds nothing, and its floor is one");
    }
    let next: Vec<String> = (0..40).flat_map(|_| line.granted()).map(|(lane, _)| lane).collect();
    let of_long = next.iter().filter(|lane| *lane == "long").count();
    assert!((15..=25).contains(&of_long), "both have the same share: {next:?}");
}

/// Lanes whose floors are together above the limit have it by their shares, and others get nothing while they
/// wait. With a floor of one for each and one unit, each has its turn.
#[test]
fn floors_above_the_limit_are_met_by_turns() {
    let mut line = Line::new(4);
    (0..4).for_each(|_| drop(line.acquire("", 1, 1)));
    (0..20).for_each(|_| drop(line.acquire("batch", 1, 1)));
    for (lane, share) in [("a", 1), ("b", 1), ("c", 2)] {
        (0..20).for_each(|_| {
            drop(line.ask(lane, PermitTerms { lane_floor: 4, share, ..PermitTerms::new(1, LEASE_MS) }))
        });
    }
    let granted: Vec<String> = (0..24).flat_map(|_| line.granted()).map(|(lane, _)| lane).collect();
    let of = |name: &str| granted.iter().filter(|lane| *lane == name).count();
    assert_eq!([of("a"), of("b"), of("c"), of("batch")], [6, 6, 12, 0], "{granted:?}");

    let mut line = Line::new(1);
    line.acquire("", 1, 1);
    for lane in ["a", "b", "c"] {
        (0..9).for_each(|_| drop(line.acquire_above(lane, 1)));
    }
    let granted: Vec<String> = (0..9).flat_map(|_| line.granted()).map(|(lane, _)| lane).collect();
    assert_eq!(granted.concat(), "abcabcabc");
}

/// A newcomer whose lane holds less than its floor passes a head that does not fit, and no other newcomer
/// does.
#[test]
fn a_newcomer_below_its_floor_passes_a_head_that_does_not_fit() {
    let mut line = Line::new(4);
    line.acquire("", 2, 1);
    assert!(matches!(line.acquire("heavy", 3, 1), AcquireOutcome::Waiting { .. }));
    assert!(matches!(line.acquire("other", 1, 1), AcquireOutcome::Waiting { .. }));
    assert!(matches!(line.acquire_above("floor", 1), AcquireOutcome::Granted(_)));
    assert!(matches!(line.acquire_above("floor", 1), AcquireOutcome::Waiting { .. }), "it holds its floor");
    // The limit of a lane wins over its floor.
    let both = PermitTerms { lane_limit: 1, lane_floor: 4, ..PermitTerms::new(1, LEASE_MS) };
    assert!(matches!(line.ask("both", both.clone()), AcquireOutcome::Granted(_)));
    assert!(matches!(line.ask("both", both), AcquireOutcome::Waiting { .. }));
    let both = side(line.state.as_ref().expect("it is in use"), &LaneName::new("both").expect("it is valid"));
    assert_eq!(both, Side::Full);
}

/// The line beside an ideal one, which serves all lanes with work at once, each at a rate in proportion to
/// its share.
struct Ideal {
    /// The units that wait in each lane, and its share.
    lanes: BTreeMap<String, (f64, f64)>,
    served: BTreeMap<String, f64>,
}

impl Ideal {
    fn serve(&mut self, units: f64) {
        let mut left = units;
        while left > ROUNDING {
            let shares: f64 = self.lanes.values().map(|(_, share)| share).sum();
            // The rounds end when the first lane has no more work.
            let least = self.lanes.values().map(|(work, share)| work / share).fold(f64::INFINITY, f64::min);
            let rounds = least.min(left / shares);
            if !rounds.is_finite() {
                return;
            }
            for (name, (work, share)) in &mut self.lanes {
                *work -= rounds * *share;
                *self.served.entry(name.clone()).or_default() += rounds * *share;
            }
            left -= rounds * shares;
            self.lanes.retain(|_, (work, _)| *work > ROUNDING);
        }
    }
}

/// Serves lanes whose requests come in batches of very different sizes. Returns by how many units a lane had
/// more, and less, than of an ideal line.
fn apart_from_ideal(
    store: mutants::Store,
    (count, grants): (u64, usize),
    heaviest: u32,
    random: &mut fastrand::Rng,
) -> (f64, f64) {
    let mut line = Line::of(store, heaviest);
    let mut ideal = Ideal { lanes: BTreeMap::new(), served: BTreeMap::new() };
    line.acquire("", heaviest, 1);
    let mut served: BTreeMap<String, f64> = BTreeMap::new();
    let (mut more, mut less) = (0_f64, 0_f64);
    let mut done = 0;
    while done < grants {
        while line.waits.len() < 20 + usize::try_from(count).expect("it is small") || random.f64() < 0.02 {
            let lane = random.u64(0..count);
            let share = if lane.is_multiple_of(3) { 3 } else { 1 };
            // Pareto: most batches have one request, and some very many.
            let batch = random.f64().max(1e-3).powf(-1.0).min(500.0);
            for _ in 0..batch as u32 {
                let weight = random.u32(1..=heaviest);
                line.acquire(&lane.to_string(), weight, share);
                let waits = ideal.lanes.entry(lane.to_string()).or_insert((0.0, share.into()));
                waits.0 += f64::from(weight);
            }
        }
        for (lane, weight) in line.granted() {
            done += 1;
            ideal.serve(weight.into());
            *served.entry(lane).or_default() += f64::from(weight);
            for (lane, units) in &ideal.served {
                let apart = served.get(lane).copied().unwrap_or_default() - units;
                (more, less) = (more.max(apart), less.max(-apart));
            }
        }
    }
    (more, less)
}

#[test]
fn lanes_are_close_to_their_shares_of_an_ideal_line() {
    let mut random_numbers = random::rng();
    for size in [(2, 2_000), (10, 2_000), (1_000, 3_000)] {
        for heaviest in [1, 5] {
            let (more, less) = apart_from_ideal(model::apply, size, heaviest, &mut random_numbers);
            println!("{} lanes, up to {heaviest} units: {more:.2} units more, {less:.2} less", size.0);
            assert!(more.max(less) < 10.0 * f64::from(heaviest), "{more} more, {less} less");
        }
    }
    let (more, less) = apart_from_ideal(mutants::charges_no_lane, (10, 2_000), 1, &mut random_numbers);
    assert!(more.max(less) > 20.0, "one lane is served as long as it waits: {more} more, {less} less");
}
