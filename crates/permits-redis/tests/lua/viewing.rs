//! Inspections of states in which leases have ended. None of them writes: see `Both::same`.

use permits_core::model::{REAP_MAX, VIEW_MAX};
use permits_core::protocol::{AcquireRequest, Answers, Inspected, LimitChange, Operation, PermitTerms};

use crate::fixture::{Both, acquire, acquire_among, change_limit, id, in_lane, release_all, renew, request};

const LEASE_US: u64 = 3_000_000;

impl Both {
    /// Sends `count` requests, most of which are granted at once, and then lets all leases end.
    fn crowd(&mut self, count: usize) {
        let limit = u32::try_from(count.min(VIEW_MAX + 300)).expect("it is small");
        self.same(&change_limit("l1", LimitChange::Set(limit)));
        let names: Vec<String> = (0..count).map(|number| format!("h{number}")).collect();
        for names in names.chunks(500) {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            self.same(&acquire_among(&names, 1_000));
        }
        self.set_time(self.now_us + LEASE_US);
    }

    pub(crate) fn seen(&mut self, max: u32) -> Box<Inspected> {
        let Answers::Inspect(seen) = self.same(&Operation::Inspect { max }) else { unreachable!() };
        seen
    }
}

fn holders(seen: &Inspected) -> Vec<(&str, bool)> {
    seen.holders.iter().map(|holder| (holder.holder.as_str(), holder.cooling)).collect()
}

/// A request whose grant counts for this time.
fn counting(name: &str, at_least_ms: u64) -> AcquireRequest {
    let request = request(name);
    AcquireRequest { terms: PermitTerms { at_least_ms, ..request.terms }, ..request }
}

fn waiters(seen: &Inspected) -> Vec<&str> {
    seen.waiters.iter().map(|waiter| waiter.holder.as_str()).collect()
}

#[test]
fn an_ended_lease_is_passed_over_and_its_unit_is_granted_by_the_next_command() {
    let mut both = Both::start();
    both.same(&change_limit("l1", LimitChange::Set(2)));
    both.same(&acquire(&["a", "b", "c", "d"]));
    both.set_time(both.now_us + LEASE_US / 2);
    both.same(&renew("b", None));
    both.same(&renew("d", None));
    both.set_time(both.now_us + LEASE_US / 2);
    for max in [0, 1, 9] {
        let seen = both.seen(max);
        assert_eq!((seen.held, seen.waiting, seen.counts.expired), (1, 1, 2));
        assert_eq!(holders(&seen), [("b", false)][..1.min(max as usize)]);
        assert_eq!(waiters(&seen), ["d"][..1.min(max as usize)]);
    }
    both.same(&Operation::Renew(Vec::new()));
    let seen = both.seen(9);
    assert_eq!((seen.held, seen.waiting), (2, 0));
}

#[test]
fn what_cools_from_the_end_of_its_lease_on_is_listed_by_its_own_end() {
    let mut both = Both::start();
    both.acquired(vec![counting("long", 60_000), counting("short", 30_000), counting("ended", 1_000)]);
    both.set_time(both.now_us + LEASE_US);
    for max in [1, 2, 9] {
        let seen = both.seen(max);
        assert_eq!((seen.held, seen.cooling, seen.counts.expired), (2, 2, 3));
        assert_eq!(holders(&seen), [("short", true), ("long", true)][..2.min(max as usize)]);
    }
}

/// More than an inspection lists.
#[test]
fn all_units_that_cool_are_counted() {
    let mut both = Both::start();
    both.same(&change_limit("l1", LimitChange::Set(3_000)));
    let names: Vec<String> = (0..1_500).map(|number| format!("h{number}")).collect();
    for names in names.chunks(500) {
        both.acquired(names.iter().map(|name| counting(name, 60_000)).collect());
        both.same(&release_all(&names.iter().map(String::as_str).collect::<Vec<_>>()));
    }
    both.same(&acquire(&["works"]));
    let seen = both.seen(2);
    assert_eq!((seen.held, seen.cooling), (1_501, 1_500));
    let freed = seen.holders.iter().find(|holder| holder.cooling).expect("it is listed").clone();
    let (holder, cooling) = (freed.holder, Some(freed.grant.token));
    both.same(&Operation::Revoke { origin: id("r1").into(), holder, cooling, reason: "".into() });
    assert_eq!(both.seen(0).cooling, 1_499);
    both.set_time(both.now_us + 61_000_000);
    assert_eq!((both.seen(0).held, both.seen(0).cooling), (0, 0));
    both.same(&Operation::Renew(Vec::new()));
    assert_eq!((both.seen(0).held, both.seen(0).cooling), (0, 0));
}

#[test]
fn lanes_are_those_of_waiters_whose_leases_run() {
    let mut both = Both::start();
    both.acquired(vec![in_lane("held", "", 3)]);
    let lanes = ["x", "y", "x", "z", "", "y"];
    let requests = lanes.iter().zip(1..).map(|(lane, number)| in_lane(&format!("w{number}"), lane, 1));
    both.acquired(requests.collect());
    both.set_time(both.now_us + LEASE_US / 2);
    for alive in ["held", "w2", "w3", "w6"] {
        both.same(&renew(alive, None));
    }
    both.set_time(both.now_us + LEASE_US / 2);
    let seen = both.seen(9);
    assert_eq!(waiters(&seen), ["w3", "w2", "w6"]);
    let lanes = seen.lanes.iter().map(|lane| (lane.lane.as_str(), lane.waiting));
    assert_eq!(lanes.collect::<Vec<_>>(), [("y", 2), ("x", 1), ("", 0)]);
    for max in [1, 2] {
        assert_eq!(waiters(&both.seen(max)), ["w3", "w2"][..max as usize]);
    }
    both.set_time(both.now_us + LEASE_US / 2);
    let seen = both.seen(9);
    assert_eq!((seen.held, seen.waiting, seen.lanes.len()), (0, 0, 0));
}

#[test]
fn lanes_whose_waiters_have_all_ended_take_no_places_in_the_list() {
    let mut both = Both::start();
    both.acquired(vec![in_lane("held", "", 3)]);
    let gone = (0..20).map(|number| in_lane(&format!("gone{number}"), &format!("lane{number}"), 1));
    both.acquired(gone.collect());
    both.set_time(both.now_us + LEASE_US / 2);
    let many = (0..20).map(|number| in_lane(&format!("w{number}"), "many", 1));
    both.acquired(many.collect());
    both.same(&renew("held", None));
    both.set_time(both.now_us + LEASE_US / 2);
    assert_eq!(waiters(&both.seen(9)).len(), 9);
}

/// More than a command reaps; and more than an inspection passes over.
#[test]
fn a_crowd_whose_leases_have_ended_is_passed_over() {
    let mut both = Both::start();
    both.crowd(10 * REAP_MAX);
    let seen = both.seen(9);
    assert_eq!((seen.held, seen.holders.len(), seen.counts.expired), (0, 0, 10 * REAP_MAX as u64));
    both.again();
    both.crowd(VIEW_MAX + 400);
    let seen = both.seen(9);
    assert_eq!((seen.held, seen.waiting, seen.holders.len()), (300, 100, 0));
}
