//! The limits and floors of lanes: what counts for them, what a request is told, and what an inspection
//! shows. The limit of all is 3, unless a test sets another.

use permits_core::protocol::{
    AcquireOutcome, AcquireRequest, Answers, InspectedLane, LimitChange, Operation, Refusal, RenewOutcome,
    RequestKey, SupersedeKey,
};

use crate::fixture::{Both, change_limit, holder, id, in_lane, release, renew, request};

/// A request of one unit in a lane with this limit.
fn within(name: &str, lane: &str, lane_limit: u32) -> AcquireRequest {
    let mut asked = in_lane(name, lane, 1);
    asked.terms.lane_limit = lane_limit;
    asked
}

/// A request of one unit in a lane with this floor.
fn above(name: &str, lane: &str, lane_floor: u32) -> AcquireRequest {
    let mut asked = in_lane(name, lane, 1);
    asked.terms.lane_floor = lane_floor;
    asked
}

fn of_weight(mut asked: AcquireRequest, weight: u32) -> AcquireRequest {
    asked.terms.weight = weight;
    asked
}

fn tries(asked: AcquireRequest) -> AcquireRequest {
    AcquireRequest { wait: false, ..asked }
}

/// A request of one unit in a lane, which is one of at most so many waiters.
fn beside(name: &str, lane: &str, lane_waiters: u32) -> AcquireRequest {
    AcquireRequest { lane_waiters, ..in_lane(name, lane, 1) }
}

impl Both {
    pub(crate) fn one(&mut self, asked: AcquireRequest) -> AcquireOutcome {
        self.acquired(vec![asked]).remove(0)
    }

    /// The lanes that an inspection lists: name, waiters, units, limit and floor.
    fn listed(&mut self, max: u32) -> Vec<(String, u64, u64, u32, u32)> {
        let lanes = self.seen(max).lanes.into_iter();
        let fields = |InspectedLane { lane, waiting, held, limit, floor, pinned: _ }| {
            (lane.as_str().to_owned(), waiting, held, limit, floor)
        };
        lanes.map(fields).collect()
    }

    fn has_limits(&self) -> bool {
        !self.state.as_ref().expect("there is one").lanes.bounded().is_empty()
    }
}

fn is_granted(outcome: &AcquireOutcome) -> bool {
    matches!(outcome, AcquireOutcome::Granted(_))
}

/// The lane has room for the newcomer, and the semaphore has, too.
#[test]
fn a_light_newcomer_does_not_pass_the_heavy_head_of_its_lane() {
    let mut both = Both::start();
    assert!(is_granted(&both.one(within("a", "lane", 2))));
    assert!(!is_granted(&both.one(of_weight(within("heavy", "lane", 2), 2))));
    assert!(!is_granted(&both.one(within("light", "lane", 2))));
}

#[test]
fn a_lane_that_holds_and_waits_no_more_has_no_limit_left() {
    let mut both = Both::start();
    assert!(is_granted(&both.one(within("a", "lane", 1))));
    assert!(!is_granted(&both.one(within("b", "lane", 1))));
    assert!(is_granted(&both.one(request("other"))), "the lane is not in line");
    both.same(&release("a"));
    assert!(both.has_limits(), "the waiter was granted");
    both.same(&release("b"));
    assert!(!both.has_limits());
}

#[test]
fn what_cools_counts_for_its_lane_and_a_try_is_told_until_when() {
    let mut both = Both::start();
    let mut counted = within("a", "lane", 1);
    counted.terms.at_least_ms = 2_000;
    assert!(is_granted(&both.one(counted)));
    both.same(&release("a"));
    let full = |remaining_ms| AcquireOutcome::Refused(Refusal::LaneFull { remaining_ms });
    assert_eq!(both.one(tries(within("b", "lane", 1))), full(Some(2_000)));
    assert_eq!(both.one(tries(in_lane("c", "lane", 1))), full(Some(2_000)), "it names no limit");
    assert!(is_granted(&both.one(tries(within("d", "lane", 2)))), "the latest limit counts");
    assert_eq!(both.one(tries(within("e", "lane", 2))), full(Some(2_000)));
    both.set_time(both.now_us + 2_000_000);
    assert!(is_granted(&both.one(tries(within("f", "lane", 2)))));
    assert_eq!(both.one(tries(within("g", "lane", 2))), full(None), "others have to leave");
}

#[test]
fn what_cools_in_another_lane_is_no_end_of_a_full_one() {
    let mut both = Both::start();
    let mut counted = within("a", "other", 1);
    counted.terms.at_least_ms = 2_000;
    assert!(is_granted(&both.one(counted)));
    both.same(&release("a"));
    assert!(is_granted(&both.one(within("b", "lane", 1))));
    let full = AcquireOutcome::Refused(Refusal::LaneFull { remaining_ms: None });
    assert_eq!(both.one(tries(within("c", "lane", 1))), full);
}

#[test]
fn a_lane_has_as_many_waiters_as_a_request_allows() {
    let mut both = Both::start();
    let refused = AcquireOutcome::Refused(Refusal::LaneQueueFull);
    assert!(is_granted(&both.one(of_weight(request("all"), 3))));
    // The bound holds within a batch and in the next one, for a request before the first waiter of the lane
    // and for one behind it.
    let batch = both.acquired(vec![beside("a", "lane", 1), beside("b", "lane", 1), beside("c", "other", 1)]);
    assert!(matches!(batch[0], AcquireOutcome::Waiting { .. }), "{batch:?}");
    assert_eq!(batch[1], refused);
    assert!(matches!(batch[2], AcquireOutcome::Waiting { .. }), "{batch:?}");
    assert_eq!(both.one(beside("b", "lane", 1)), refused);
    assert!(matches!(both.one(beside("b", "lane", 2)), AcquireOutcome::Waiting { .. }));
    // Known requests stay, whatever they allow.
    assert!(matches!(both.one(beside("a", "lane", 1)), AcquireOutcome::Waiting { .. }));
    both.same(&release("a"));
    both.same(&release("b"));
    assert!(matches!(both.one(beside("d", "lane", 1)), AcquireOutcome::Waiting { .. }));
}

#[test]
fn a_waiter_that_leaves_for_its_newer_one_makes_room_in_its_own_lane() {
    let mut both = Both::start();
    let keyed = |asked: AcquireRequest| {
        let mut keyed = AcquireRequest { supersedes: true, ..asked };
        keyed.terms.supersede = SupersedeKey::new("key").expect("it is valid");
        keyed
    };
    assert!(is_granted(&both.one(of_weight(request("all"), 3))));
    both.one(keyed(beside("a", "lane", 1)));
    assert!(matches!(both.one(keyed(beside("b", "lane", 1))), AcquireOutcome::Waiting { .. }));
    both.one(beside("c", "other", 1));
    let refused = AcquireOutcome::Refused(Refusal::LaneQueueFull);
    assert_eq!(both.one(keyed(beside("d", "other", 1))), refused, "who leaves is in another lane");
}

#[test]
fn units_that_are_counted_or_given_back_count_for_the_lane() {
    let mut both = Both::start();
    let mut counted = within("a", "lane", 2);
    counted.terms.at_least_ms = 2_000;
    both.one(counted);
    let mut corrected =
        permits_core::protocol::ReleaseRequest::from(RequestKey { holder: holder("a"), request: id("a") });
    corrected.counted = Some(2);
    both.same(&Operation::Release(vec![corrected]));
    assert!(!is_granted(&both.one(within("b", "lane", 2))), "two units cool");
    assert!(is_granted(&both.one(request("other"))));
}

#[test]
fn a_waiter_that_is_heavier_than_a_lowered_limit_is_refused() {
    let mut both = Both::start();
    let mut heavy = within("heavy", "lane", 3);
    heavy.terms.weight = 2;
    let mut first = within("first", "lane", 3);
    first.terms.weight = 2;
    assert!(is_granted(&both.one(first)));
    assert!(!is_granted(&both.one(heavy)));
    let low = both.one(within("low", "lane", 1));
    assert!(!is_granted(&low), "{low:?}");
    let refused = both.one(of_weight(within("again", "lane", 1), 2));
    assert_eq!(refused, AcquireOutcome::Refused(Refusal::ExceedsLaneLimit(1)));
    let Answers::Renew(answers) = both.same(&renew("heavy", None)) else { unreachable!() };
    assert_eq!(answers, [RenewOutcome::RetryLater], "its next acquire tells it the reason");
    both.same(&release("first"));
    let Answers::Renew(answers) = both.same(&renew("low", None)) else { unreachable!() };
    assert!(matches!(answers[0], RenewOutcome::Granted(_)), "{answers:?}");
}

/// It must not stand before the others for ever.
#[test]
fn a_waiter_in_a_lane_with_a_limit_is_refused_if_the_semaphore_has_become_too_small() {
    let mut both = Both::start();
    assert!(is_granted(&both.one(of_weight(request("all"), 3))));
    assert!(!is_granted(&both.one(of_weight(within("heavy", "lane", 3), 3))));
    assert!(!is_granted(&both.one(request("behind"))));
    both.same(&change_limit("l1", LimitChange::Set(2)));
    both.same(&release("all"));
    let state = both.state.as_ref().expect("it is in use");
    assert!(!state.entries.contains_key(&holder("heavy")), "{:?}", state.entries);
    let Answers::Renew(answers) = both.same(&renew("behind", None)) else { unreachable!() };
    assert!(matches!(answers[0], RenewOutcome::Granted(_)), "{answers:?}");
}

/// Of the limits that the requests of a batch name the latest counts, for all of them.
#[test]
fn a_request_of_a_batch_is_measured_by_the_limit_that_a_later_one_names() {
    for waits in [true, false] {
        let mut both = Both::start();
        let heavy = AcquireRequest { wait: waits, ..of_weight(within("heavy", "lane", 3), 3) };
        let batch = both.acquired(vec![heavy, within("light", "lane", 2)]);
        assert_eq!(batch[0], AcquireOutcome::Refused(Refusal::ExceedsLaneLimit(2)));
        assert!(is_granted(&batch[1]), "{batch:?}");
    }
}

#[test]
fn a_release_does_not_grant_to_a_waiter_that_is_heavier_than_the_limit_of_its_lane() {
    let mut both = Both::start();
    both.one(of_weight(in_lane("held", "other", 1), 2));
    both.one(within("first", "lane", 3));
    both.one(of_weight(within("heavy", "lane", 3), 2));
    both.one(within("low", "lane", 1));
    both.same(&release("held"));
    let state = both.state.as_ref().expect("it is in use");
    assert!(!state.entries.contains_key(&holder("heavy")), "{:?}", state.entries);
}

/// If all lanes that wait are full, no lane owes anything.
#[test]
fn a_lane_that_was_served_beside_full_ones_owes_nothing() {
    let mut both = Both::start();
    for name in ["a", "b", "c"] {
        both.one(within(name, "full", 1));
    }
    for turn in 0..4 {
        let [first, second, third] = ["x", "y", "z"].map(|name| format!("{name}{turn}"));
        both.acquired(vec![
            in_lane(&first, "served", 1),
            in_lane(&second, "served", 1),
            in_lane(&third, "served", 1),
        ]);
        for name in [&first, &second, &third] {
            both.same(&release(name));
        }
    }
    both.one(in_lane("h", "served", 2));
    both.one(in_lane("w", "served", 1));
    both.same(&release("a"));
    both.same(&release("h"));
    both.same(&release("w"));
}

/// A lane that crosses its floor while it is full, and while others do, keeps both of its progresses.
#[test]
fn a_lane_has_one_progress_on_each_side_of_its_floor() {
    let mut both = Both::start();
    let mut bounded = above("a0", "a", 2);
    bounded.terms.lane_limit = 2;
    both.acquired(vec![bounded, in_lane("b0", "b", 1), in_lane("c0", "c", 1)]);
    for turn in 1..5 {
        let [a, b, c] = ["a", "b", "c"].map(|lane| format!("{lane}{turn}"));
        both.acquired(vec![in_lane(&a, "a", 3), above(&b, "b", 1), in_lane(&c, "c", 2)]);
    }
    for turn in 0..5 {
        for lane in ["c", "a", "b"] {
            both.same(&release(&format!("{lane}{turn}")));
        }
    }
    assert!(!both.has_limits(), "nothing is held");
}

/// A request that only the promotion lets in brings a floor. A waiter of its lane is then before the head,
/// and is granted by the same command.
#[test]
fn a_late_floor_counts_at_once() {
    let mut both = Both::start();
    let mut ends = of_weight(request("ends"), 2);
    ends.terms.lease_ms = 1_000;
    both.acquired(vec![ends, request("stays")]);
    both.acquired(vec![
        in_lane("first", "p", 1),
        of_weight(in_lane("heavy", "q", 1), 3),
        in_lane("light", "l", 1),
    ]);
    both.set_time(both.now_us + 1_100_000);
    let late = Operation::Acquire { queue_max: 3, requests: vec![above("late", "l", 1)] };
    let Answers::Acquire(answers) = both.same(&late) else { unreachable!() };
    assert!(matches!(answers[0], AcquireOutcome::Waiting { .. }), "{answers:?}");
    let light = &both.state.as_ref().expect("it is in use").entries[&holder("light")];
    assert!(light.place.taken().is_some(), "{light:?}");
}

/// A lane without a limit is not full: a try there is told what it is told without lanes.
#[test]
fn a_floor_is_no_reason_of_a_refusal() {
    let mut both = Both::start();
    let mut counted = of_weight(above("a", "lane", 1), 3);
    counted.terms.at_least_ms = 2_000;
    assert!(is_granted(&both.one(counted)));
    let refused = |refusal| AcquireOutcome::Refused(refusal);
    assert_eq!(both.one(tries(above("b", "lane", 1))), refused(Refusal::NoPermits));
    both.same(&release("a"));
    assert_eq!(both.one(tries(above("c", "lane", 1))), refused(Refusal::Cooling { remaining_ms: 2_000 }));
    both.one(above("d", "lane", 1));
    assert_eq!(both.one(tries(above("e", "lane", 1))), refused(Refusal::NoPermits));
    // The head of a lane that is not short does not stand in the way of a short lane.
    assert_eq!(both.one(tries(above("f", "other", 1))), refused(Refusal::Cooling { remaining_ms: 2_000 }));
}

fn listed(lanes: &[(&str, u64, u64, u32, u32)]) -> Vec<(String, u64, u64, u32, u32)> {
    lanes
        .iter()
        .map(|&(lane, waiting, held, limit, floor)| (lane.into(), waiting, held, limit, floor))
        .collect()
}

/// A lease that has ended does not count any more, although no command has written that.
#[test]
fn an_inspection_has_the_bounds_of_lanes_as_they_are_now() {
    let mut both = Both::start();
    both.acquired(vec![within("a", "full", 1), within("b", "full", 1), above("c", "short", 2)]);
    both.one(in_lane("d", "plain", 1));
    let before = [("full", 1, 1, 1, 0), ("plain", 0, 1, 0, 0), ("short", 0, 1, 0, 2)];
    assert_eq!(both.listed(9), listed(&before));
    assert_eq!(both.listed(1), listed(&before[..1]), "of one holder");
    assert_eq!(both.listed(0), []);
    both.set_time(both.now_us + 1_500_000);
    for alive in ["b", "d"] {
        both.same(&renew(alive, None));
    }
    both.set_time(both.now_us + 1_500_000);
    assert_eq!(both.listed(9), listed(&[("full", 1, 0, 1, 0), ("plain", 0, 1, 0, 0)]));
    both.set_time(both.now_us + 1_500_000);
    assert_eq!(both.listed(9), []);
}

/// A grant from before the lane had a limit is listed, and does not count for it. Nothing else is left of the
/// lane.
#[test]
fn a_lane_that_holds_nothing_which_counts_is_listed_without_bounds() {
    let mut both = Both::start();
    both.one(in_lane("before", "lane", 1));
    both.one(within("a", "lane", 2));
    assert_eq!(both.listed(9), listed(&[("lane", 0, 1, 2, 0)]));
    both.set_time(both.now_us + 1_500_000);
    both.same(&renew("before", None));
    both.set_time(both.now_us + 1_500_000);
    assert_eq!(both.listed(9), listed(&[("lane", 0, 1, 0, 0)]));
}

#[test]
fn what_cools_is_among_the_units_of_a_lane_that_is_listed() {
    let mut both = Both::start();
    let mut counted = within("a", "lane", 2);
    counted.terms.at_least_ms = 60_000;
    both.acquired(vec![counted, request("unnamed")]);
    both.set_time(both.now_us + 3_000_000);
    assert_eq!(both.listed(9), listed(&[("lane", 0, 1, 2, 0)]));
    both.set_time(both.now_us + 60_000_000);
    assert_eq!(both.listed(9), []);
}

/// The lane without a name is listed, too, while no waiter has named a lane.
#[test]
fn the_lanes_with_the_most_waiters_and_then_units_are_listed() {
    let mut both = Both::start();
    both.same(&change_limit("l1", LimitChange::Set(200)));
    let lanes: Vec<(String, u32)> =
        (0..40).map(|number| (format!("lane{number:02}"), 1 + number % 3)).collect();
    let requests = lanes.iter().map(|(lane, weight)| of_weight(within(lane, lane, 9), *weight));
    both.acquired(requests.collect());
    both.acquired(vec![of_weight(request("most"), 120), of_weight(request("waits"), 120)]);
    let all = both.listed(1_000);
    assert_eq!((&all[0], all.len()), (&("".into(), 1, 120, 0, 0), 32));
    let mut heaviest: Vec<_> =
        lanes.into_iter().map(|(lane, weight)| (lane, 0, weight.into(), 9, 0)).collect();
    heaviest.sort_by_key(|(_, _, weight, ..)| std::cmp::Reverse(*weight));
    assert_eq!(all[1..], heaviest[..31]);
    both.acquired(vec![in_lane("w1", "lane00", 1), in_lane("w2", "lane00", 1)]);
    assert_eq!(both.listed(1)[0], ("lane00".into(), 2, 1, 9, 0));
}

/// A lane that owes and then waits again still has the member with its debt, until the debt is forgiven. When
/// the lane becomes short, this old debt must not put newcomers behind.
#[test]
fn what_a_lane_owed_before_it_was_short_does_not_put_others_behind() {
    let mut both = Both::start();
    both.one(in_lane("held", "", 3));
    let waiting = [in_lane("owes", "owes", 2), in_lane("waits", "waits", 1), in_lane("waits-2", "waits", 1)];
    both.acquired(waiting.into());
    both.same(&release("held"));
    both.one(above("owes-2", "owes", 3));
    both.same(&release("waits-2"));
    both.one(in_lane("new", "new", 1));
}
