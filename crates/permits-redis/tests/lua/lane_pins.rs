//! The bounds of lanes that an operator pins. The limit of all is 3.

use permits_core::model::{LaneBounds, Part};
use permits_core::protocol::{
    AcquireOutcome, AcquireRequest, Answers, ChangeEffect, LANE_PINS_MAX, LaneName, LanePin, LimitChange,
    Operation, Refusal, SetOutcome,
};

use crate::fixture::{Both, acquire, change_limit, in_lane, pin, release, renew, request};

/// A request of one unit in `lane` that names this limit and this floor.
fn naming(name: &str, lane_limit: u32, lane_floor: u32) -> AcquireRequest {
    let mut asked = in_lane(name, "lane", 1);
    (asked.terms.lane_limit, asked.terms.lane_floor) = (lane_limit, lane_floor);
    asked
}

/// Returns the reason why a change is refused, as an error.
fn made(answers: &Answers) -> Result<(), SetOutcome> {
    match answers {
        Answers::Set(SetOutcome::Done { .. }) => Ok(()),
        Answers::Set(refused) => Err(*refused),
        answers => panic!("no answer to a change: {answers:?}"),
    }
}

impl Both {
    fn pin(&mut self, request: &str, limit: u32, floor: u32) -> Result<(), SetOutcome> {
        made(&self.same(&pin(request, "lane", Some((limit, floor)))))
    }

    fn unpin(&mut self, request: &str) {
        assert_eq!(made(&self.same(&pin(request, "lane", None))), Ok(()));
    }

    fn bounds(&self) -> Option<LaneBounds> {
        let lane = LaneName::new("lane").expect("it is valid");
        self.state.as_ref()?.lanes.bounded().get(&lane).copied()
    }
}

fn bounds(limit: u32, floor: u32, held: u64, pinned: bool) -> Option<LaneBounds> {
    Some(LaneBounds { limit, floor, held, pinned })
}

fn is_granted(outcome: &AcquireOutcome) -> bool {
    matches!(outcome, AcquireOutcome::Granted(_))
}

#[test]
fn requests_do_not_change_a_pinned_lane_until_it_is_unpinned() {
    let mut both = Both::start();
    assert_eq!(both.pin("p1", 2, 1), Ok(()));
    for (name, limit, floor) in [("a", 3, 3), ("b", 1, 0)] {
        assert!(is_granted(&both.one(naming(name, limit, floor))), "{name}");
    }
    assert_eq!(both.bounds(), bounds(2, 1, 2, true));
    let full = AcquireOutcome::Refused(Refusal::LaneFull { remaining_ms: None });
    assert_eq!(both.one(AcquireRequest { wait: false, ..naming("c", 3, 0) }), full);
    let mut heavy = naming("d", 3, 0);
    heavy.terms.weight = 3;
    assert_eq!(both.one(heavy), AcquireOutcome::Refused(Refusal::ExceedsLaneLimit(2)));
    both.unpin("p2");
    assert_eq!(both.bounds(), bounds(2, 1, 2, false), "they stay until a request names others");
    assert!(is_granted(&both.one(naming("e", 3, 0))));
    assert_eq!(both.bounds(), bounds(3, 1, 3, false));
    both.same(&crate::fixture::release_all(&["a", "b", "e"]));
    assert_eq!(both.bounds(), None);
}

/// The state does not expire, and neither does the record of a lane that nobody uses.
#[test]
fn a_pinned_lane_stays_although_nobody_uses_it() {
    let mut both = Both::start();
    assert_eq!(both.pin("p1", 2, 0), Ok(()));
    both.one(naming("a", 0, 0));
    both.same(&release("a"));
    both.set_time(both.now_us + 3_600_000_000);
    both.same(&renew("unknown", None));
    assert_eq!(both.bounds(), bounds(2, 0, 0, true));
    let lanes = both.seen(10).lanes;
    assert!(matches!(&lanes[..], [lane] if lane.pinned && lane.limit == 2), "{lanes:?}");
    both.unpin("p2");
    assert_eq!(both.seen(10).lanes, []);
    both.set_time(both.now_us + 3_600_000_000);
    both.same(&Operation::Inspect { max: 1 });
    both.same(&renew("unknown", None));
    assert_eq!(both.state.as_ref().map(|state| state.sequence), Some(1), "it had expired, and begins anew");
}

/// Cooling units count, too, and a later release is counted once.
#[test]
fn all_that_a_lane_holds_counts_from_its_pin_on() {
    let mut both = Both::start();
    let mut cools = naming("a", 0, 0);
    cools.terms.at_least_ms = 60_000;
    both.acquired(vec![cools, naming("b", 0, 0), request("other")]);
    both.same(&release("a"));
    assert_eq!(both.bounds(), None);
    assert_eq!(both.pin("p1", 1, 0), Ok(()));
    assert_eq!(both.bounds(), bounds(1, 0, 2, true));
    assert_eq!(both.pin("p2", 2, 0), Ok(()));
    assert_eq!(both.bounds(), bounds(2, 0, 2, true), "once");
    both.same(&release("b"));
    both.same(&release("other"));
    assert!(is_granted(&both.one(naming("c", 0, 0))));
    assert!(!is_granted(&both.one(naming("d", 0, 0))), "one cools");
    assert!(is_granted(&both.one(request("others"))));
}

/// More than one read finds.
#[test]
fn a_pin_counts_more_than_a_thousand_permits() {
    let mut both = Both::start();
    both.same(&change_limit("l", LimitChange::Set(1_200)));
    for batch in 0..3 {
        both.acquired((0..400).map(|number| naming(&format!("h{batch}-{number}"), 0, 0)).collect());
    }
    assert_eq!(both.pin("p", 1_200, 0), Ok(()));
    assert_eq!(both.bounds(), bounds(1_200, 0, 1_200, true));
}

#[test]
fn a_raised_limit_and_a_floor_grant_at_once() {
    let mut both = Both::start();
    assert_eq!(both.pin("p1", 1, 0), Ok(()));
    both.acquired(vec![naming("a", 0, 0), naming("b", 0, 0), naming("c", 0, 0)]);
    assert_eq!(both.pin("p2", 2, 0), Ok(()));
    assert_eq!(both.bounds(), bounds(2, 0, 2, true), "b was granted");
    both.unpin("p3");
    assert_eq!(both.pin("p4", 3, 0), Ok(()));
    assert_eq!(both.bounds(), bounds(3, 0, 3, true));
    // A floor puts its lane before a head that does not fit.
    let mut heavy = in_lane("heavy", "other", 1);
    heavy.terms.weight = 3;
    both.acquired(vec![heavy, naming("d", 0, 0)]);
    both.same(&release("a"));
    assert_eq!(both.bounds(), bounds(3, 0, 2, true), "heavy is the head");
    assert_eq!(both.pin("p5", 0, 3), Ok(()));
    assert_eq!(both.bounds(), bounds(0, 3, 3, true), "d was granted");
}

#[test]
fn a_pin_is_made_once_and_remembered() {
    let mut both = Both::start();
    both.same(&acquire(&["x"]));
    for _ in 0..2 {
        assert_eq!(both.pin("p1", 2, 1), Ok(()));
    }
    // The lane is pinned like this already, so the store records no change.
    assert_eq!(both.pin("p2", 2, 1), Ok(()));
    both.unpin("p3");
    both.unpin("p4");
    assert_eq!(both.pin("p1", 2, 1), Ok(()));
    assert_eq!(both.bounds(), None, "it was made before");
    let lane = LaneName::new("lane").expect("it is valid");
    let effects: Vec<ChangeEffect> = both.seen(10).changes.into_iter().map(|change| change.effect).collect();
    let pinned = Some(LanePin { limit: 2, floor: 1 });
    let of = |pin| ChangeEffect::Lane { lane: lane.clone(), pin };
    assert_eq!(effects, [of(None), of(pinned)]);
}

#[test]
fn a_floor_above_the_limit_of_the_semaphore_is_refused() {
    let mut both = Both::start();
    assert_eq!(both.pin("p1", 0, 9), Ok(()), "it has no limit yet");
    both.same(&change_limit("l1", LimitChange::Set(3)));
    assert_eq!(both.pin("p2", 0, 4), Err(SetOutcome::FloorAboveLimit));
    assert_eq!(both.pin("p3", 9, 3), Ok(()));
    assert_eq!(both.bounds(), bounds(9, 3, 0, true));
}

/// A server that loses another key than the state forgets no pin, and holders that come back count.
#[test]
fn a_pin_stays_when_another_key_vanishes() {
    for part in [Part::State, Part::Queue, Part::Leases, Part::Lanes] {
        let mut both = Both::start();
        both.acquired(vec![naming("a", 0, 0), naming("b", 3, 0)]);
        assert_eq!(both.pin("p1", 1, 0), Ok(()));
        both.same(&pin("p2", "idle", Some((0, 2))));
        both.one(naming("c", 0, 0));
        let key = both.keys[part as usize].clone();
        both.call(&["DEL", &key]);
        both.state = both.state.take().and_then(|state| state.lose(&[part]));
        // An inspection, the first command, which notices the loss, and the second, which reads what it left.
        both.same(&Operation::Inspect { max: 10 });
        for name in ["d", "e"] {
            both.one(naming(name, 3, 0));
            let (seen, is_left) = (both.seen(10), part != Part::State);
            let pinned: Vec<&str> =
                seen.lanes.iter().filter(|lane| lane.pinned).map(|lane| lane.lane.as_str()).collect();
            assert_eq!(pinned, if is_left { &["lane", "idle"][..] } else { &[] }, "{part:?}");
            assert_eq!(both.bounds().map(|bounds| bounds.limit), Some(if is_left { 1 } else { 3 }));
        }
    }
}

#[test]
fn a_semaphore_has_so_many_pinned_lanes_at_most() {
    let mut both = Both::start();
    let lane = |number: u32| format!("tenant-{number}");
    for number in 0..LANE_PINS_MAX {
        let operation = pin(&format!("p{number}"), &lane(number), Some((1, 0)));
        let reply = both.execute(&operation).expect("the server runs");
        assert_eq!(made(&reply.answers), Ok(()));
        let command = both.command(&operation);
        let clock = both.clock();
        permits_core::model::apply(&mut both.state, &clock, &command);
    }
    both.unchanged();
    let one_more = pin("more", "more", Some((1, 0)));
    assert_eq!(made(&both.same(&one_more)), Err(SetOutcome::TooManyPins));
    assert_eq!(both.seen(10).lanes.len(), LANE_PINS_MAX as usize, "all of them are listed");
    assert_eq!(made(&both.same(&pin("other", &lane(7), Some((0, 1))))), Ok(()));
    assert_eq!(made(&both.same(&pin("unpin", &lane(7), None))), Ok(()));
    assert_eq!(made(&both.same(&one_more)), Ok(()));
}
