//! The order of lanes in states that random histories seldom reach. The limit is 3.

use permits_core::model::{LANES_MAX, Lane};
use permits_core::protocol::{AcquireOutcome, AcquireRequest, Declaration, LaneName, Refusal};

use crate::fixture::{Both, holder, in_lane, release, release_all};

impl Both {
    /// Lets this many lanes have begun.
    fn set_last_lane(&mut self, last: u64) {
        self.state.as_mut().expect("there is one").lanes.last = last;
        let script = "local packed = redis.call('HGET', KEYS[1], '\tstate')
            local set = { string.sub(packed, 1, 105), struct.pack('<d', ARGV[1]), string.sub(packed, 114) }
            redis.call('HSET', KEYS[1], '\tstate', table.concat(set))";
        let key = self.keys[0].clone();
        self.call(&["EVAL", script, "1", &key, &last.to_string()]);
        self.unchanged();
    }

    fn owes(&self, lane: &str) -> bool {
        let lanes = self.state.as_ref().expect("there is one").lanes.known();
        matches!(lanes.get(&LaneName::new(lane).expect("it is valid")), Some(Lane::Owes { .. }))
    }
}

/// The numbers of lanes are used again. A lane with a lower number than the first one has more progress.
#[test]
fn a_lane_that_begins_when_the_numbers_begin_again_is_behind_the_first() {
    let mut both = Both::start();
    both.acquired(vec![in_lane("held", "", 3), in_lane("early", "early", 1)]);
    both.set_last_lane(LANES_MAX - 1);
    both.acquired(vec![in_lane("last", "last", 1)]);
    both.same(&release("early"));
    let outcomes = both.acquired(vec![in_lane("next", "next", 1)]);
    assert_eq!(outcomes, [AcquireOutcome::Waiting { position: 1 }]);
}

/// The first two grants of the release give two lanes the same progress. Before the release, the lane that
/// began first stood behind the other.
#[test]
fn lanes_that_become_equal_within_a_release_are_served_in_the_order_in_which_they_began() {
    let mut both = Both::start();
    let held = ["held-1", "held-2", "held-3"];
    both.acquired(held.map(|name| in_lane(name, "", 1)).into());
    let of_first = ["first-1", "first-2", "first-3"].map(|name| in_lane(name, "first", 1));
    let of_second = ["second-1", "second-2"].map(|name| in_lane(name, "second", 1));
    both.acquired([&of_first[..], &of_second].concat());
    both.same(&release("held-1"));
    both.acquired(vec![in_lane("third-1", "third", 1)]);
    both.same(&release_all(&["held-2", "held-3", "first-1"]));
    let state = both.state.as_ref().expect("there is one");
    let waiting: Vec<_> = state.queue.values().map(|holder| holder.as_str()).collect();
    assert_eq!(waiting, ["first-3", "second-2"]);
}

/// Each lane with a number that 16 divides removes the lanes that owe nothing any more.
#[test]
fn a_lane_that_owes_more_than_the_first_is_not_forgiven_by_the_lanes_that_begin() {
    let mut both = Both::start();
    both.acquired(vec![in_lane("held", "", 3)]);
    both.acquired(vec![
        in_lane("first-1", "first", 1),
        in_lane("first-2", "first", 1),
        in_lane("light", "light", 1),
        in_lane("heavy", "heavy", 3),
    ]);
    both.same(&release("held"));
    both.same(&release_all(&["first-1", "light"]));
    assert!(both.owes("light") && both.owes("heavy"));
    let names: Vec<String> = (0..16).map(|number| format!("new-{number}")).collect();
    both.acquired(names.iter().map(|name| in_lane(name, name, 1)).collect());
    assert!(!both.owes("light") && both.owes("heavy"));
}

/// A try declares a higher limit. It may wait for a recall, because the head has just been queued. The
/// promotion under the new limit leaves a head that has waited for longer, after any recall. The try still
/// waits: if it were refused, it would have changed the limit all the same.
#[test]
fn a_try_whose_declaration_counts_stays_let_in() {
    let mut both = Both::start();
    let mut kept = in_lane("kept", "", 1);
    kept.terms.keep = true;
    let [held, last, early, later] = [("held", ""), ("last", ""), ("early", "long"), ("later", "long")]
        .map(|(name, lane)| in_lane(name, lane, 1));
    both.acquired(vec![kept, held, last, early, later]);
    both.set_time(both.now_us + 60_000);
    both.acquired(vec![in_lane("recent", "short", 1)]);
    both.same(&release("held"));
    let holds = |both: &Both, name| {
        both.state.as_ref().is_some_and(|state| state.entries[&holder(name)].place.taken().is_some())
    };
    assert!(holds(&both, "early") && !holds(&both, "recent"));
    let attempt = |name| vec![AcquireRequest { wait: false, ..in_lane(name, "", 1) }];
    both.declaration = Declaration::Declare(4);
    assert_eq!(both.acquired(attempt("try")), [AcquireOutcome::Waiting { position: 1 }]);
    assert!(holds(&both, "recent") && !holds(&both, "later"));
    assert_eq!(both.state.as_ref().map(|state| state.limit), Some(4));
    let refused = AcquireOutcome::Refused(Refusal::NoPermits);
    assert_eq!(both.acquired(attempt("second-try")), [refused]);
}
