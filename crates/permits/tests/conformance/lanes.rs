//! Lanes: waiters of several lanes are granted by the shares of their lanes.

use std::collections::BTreeMap;
use std::time::Duration;

use permits::{
    AcquireError, AcquireOptions, AdminError, Client, InvalidInput, LaneInfo, Limit, OperatorChange, Permit,
    Semaphore,
};
use permits_testkit::sound::{Named as _, Succeeds as _};
use permits_testkit::{HANGS, HOUR};
use tokio::time::timeout;

use crate::fixture::{Fixture, Waiter};

/// Waiters of two clients behind one permit, and a handle of each client.
struct Line<'a> {
    fixture: &'a Fixture,
    semaphores: [Semaphore; 2],
    holds: Option<Permit>,
    waiters: BTreeMap<String, Waiter>,
    _clients: [Client; 2],
}

impl<'a> Line<'a> {
    async fn behind(fixture: &'a Fixture, first: AcquireOptions) -> Self {
        let clients = [fixture.client().await, fixture.client().await];
        let semaphores = [fixture.semaphore(&clients[0], 1), fixture.semaphore(&clients[1], 1)];
        let holds = Some(semaphores[0].acquire_with(first).succeeds().await);
        Self { fixture, semaphores, holds, waiters: BTreeMap::new(), _clients: clients }
    }

    /// Waits in a lane, by this name, through one client or the other.
    async fn join(&mut self, name: &str, options: AcquireOptions) {
        let semaphore = &self.semaphores[self.waiters.len() % 2];
        let waiter = self.fixture.queued(semaphore, options.holder(name)).await;
        self.waiters.insert(name.to_owned(), waiter);
    }

    /// Releases, and returns the name of the next holder.
    async fn next(&mut self) -> String {
        self.holds.take().expect("it holds").release().succeeds().await;
        let seen = self.fixture.inspect(&self.semaphores[0]).await;
        let [holder] = &seen.holders[..] else { panic!("not one holder: {seen:?}") };
        let waiter = self.waiters.remove(&holder.holder).expect("it waited");
        self.holds = Some(waiter.permit().await);
        holder.holder.clone()
    }

    /// Serves all of them. Returns their names in order.
    async fn served(&mut self) -> Vec<String> {
        let mut names = Vec::new();
        while !self.waiters.is_empty() {
            names.push(self.next().await);
        }
        self.holds.take().expect("it holds").release().succeeds().await;
        names
    }

    /// The names of those that wait, as an inspection shows them.
    async fn waiting(&self) -> Vec<String> {
        let seen = self.fixture.inspect(&self.semaphores[1]).await;
        seen.waiters.into_iter().map(|waiter| waiter.holder).collect()
    }
}

fn lane(name: &str) -> AcquireOptions {
    AcquireOptions::new().lane(name)
}

pub(crate) async fn lanes_take_turns(fixture: &Fixture) {
    let mut line = Line::behind(fixture, AcquireOptions::new()).await;
    // The waiters of a lane are granted in the order of arrival, not of names.
    for name in ["a3", "a1", "a2"] {
        line.join(name, lane("a")).await;
    }
    for name in ["b2", "b1"] {
        line.join(name, lane("b")).await;
    }
    // Requests without a name are a lane, too.
    line.join("c", AcquireOptions::new()).await;
    let order = ["a3", "b2", "c", "a1", "b1", "a2"];
    assert_eq!(line.waiting().await, order);
    assert_eq!(line.served().await, order);
}

pub(crate) async fn a_share_of_three_gets_three_of_four(fixture: &Fixture) {
    let mut line = Line::behind(fixture, AcquireOptions::new()).await;
    for number in 0..3 {
        line.join(&format!("once-{number}"), lane("once").share(1)).await;
    }
    for number in 0..9 {
        line.join(&format!("thrice-{number}"), lane("thrice").share(3)).await;
    }
    let served = line.served().await;
    for four in served.chunks(4) {
        let thrice = four.iter().filter(|name| name.starts_with("thrice")).count();
        assert_eq!(thrice, 3, "{served:?}");
    }
}

pub(crate) async fn a_lane_pays_for_the_weight_of_its_grants(fixture: &Fixture) {
    let [semaphore, others] = fixture.two_semaphores(3).await;
    let all = semaphore.acquire_with(AcquireOptions::new().weight(3)).succeeds().await;
    let heavy = fixture.queued(&others, lane("heavy").weight(3).holder("heavy-1")).await;
    let heavy_again = fixture.queued(&semaphore, lane("heavy").weight(3).holder("heavy-2")).await;
    let mut light = Vec::new();
    for number in 0..3 {
        light.push(fixture.queued(&others, lane("light").holder(format!("light-{number}"))).await);
    }
    all.release().succeeds().await;
    heavy.permit().await.release().succeeds().await;
    // A grant of 3 units counts as much as three grants of 1.
    let mut permits = Vec::new();
    for waiter in light {
        permits.push(waiter.permit().await);
    }
    assert!(!heavy_again.is_answered());
    drop(permits);
    heavy_again.permit().await.release().succeeds().await;
}

pub(crate) async fn a_lane_whose_waiters_give_up_pays_nothing(fixture: &Fixture) {
    let mut line = Line::behind(fixture, AcquireOptions::new()).await;
    for name in ["gone-1", "gone-2"] {
        line.join(name, lane("a").timeout(Duration::from_millis(300))).await;
    }
    for name in ["b1", "b2"] {
        line.join(name, lane("b")).await;
    }
    for name in ["gone-1", "gone-2"] {
        let waiter = line.waiters.remove(name).expect("it waits");
        assert!(matches!(waiter.outcome().await, Err(AcquireError::TimedOut { .. })));
    }
    fixture.settles(&line.semaphores[0], 1, 2).await;
    line.join("a1", lane("a")).await;
    assert_eq!(line.served().await, ["b1", "a1", "b2"]);
}

pub(crate) async fn a_lane_that_comes_back_gains_nothing(fixture: &Fixture) {
    let mut line = Line::behind(fixture, AcquireOptions::new()).await;
    line.join("a1", lane("a")).await;
    for name in ["b1", "b2", "b3"] {
        line.join(name, lane("b")).await;
    }
    assert_eq!(line.next().await, "a1");
    // Lane A has been granted one request, and lane B has not been granted any.
    line.join("a2", lane("a")).await;
    assert_eq!(line.served().await, ["b1", "b2", "a2", "b3"]);
}

pub(crate) async fn an_inspection_shows_lanes(fixture: &Fixture) {
    let mut line = Line::behind(fixture, lane("a")).await;
    let named = |seen: &permits::Inspection| -> Vec<(String, u64, u64)> {
        let lanes = seen.lanes.iter().filter_map(|lane| Some((lane.lane.clone()?, lane.waiting, lane.held)));
        lanes.collect()
    };
    let seen = fixture.inspect(&line.semaphores[0]).await;
    assert_eq!(named(&seen), [("a".into(), 0, 1)]);
    assert_eq!(seen.holders[0].lane.as_deref(), Some("a"));
    for (name, lane_name) in [("b1", "b \u{fc}"), ("b2", "b \u{fc}"), ("a1", "a")] {
        line.join(name, lane(lane_name)).await;
    }
    line.join("none", AcquireOptions::new()).await;
    let seen = fixture.inspect(&line.semaphores[0]).await;
    assert_eq!(named(&seen), [("b \u{fc}".into(), 2, 0), ("a".into(), 1, 1)]);
    let without = seen.lanes.iter().find(|lane| lane.lane.is_none()).expect("one waits there");
    assert_eq!(without.waiting, 1);
    let waiters: Vec<_> =
        seen.waiters.iter().map(|waiter| (&*waiter.holder, waiter.lane.as_deref())).collect();
    let order = [("b1", Some("b \u{fc}")), ("a1", Some("a")), ("none", None), ("b2", Some("b \u{fc}"))];
    assert_eq!(waiters, order);
    assert_eq!(line.served().await, ["b1", "a1", "none", "b2"]);
}

/// Shows a lane at its limit, a lane below its floor, and a lane that holds and has no waiters.
pub(crate) async fn an_inspection_shows_the_bounds_of_lanes(fixture: &Fixture) {
    let client = fixture.client().await;
    let semaphore = fixture.semaphore(&client, 4);
    let (full, short) = (|| lane("full").lane_limit(1), || lane("short").lane_floor(2));
    let quiet = lane("quiet").lane_limit(3).lane_floor(1).at_least(HOUR);
    let mut held = Vec::new();
    for options in [full(), short(), lane("plain"), quiet] {
        held.push(semaphore.acquire_with(options).succeeds().await);
    }
    let waiters = [fixture.queued(&semaphore, full()).await, fixture.queued(&semaphore, short()).await];
    let named = |name: &str, [waiting, held]: [u64; 2], limit, floor| {
        let lane = Some(name.to_owned());
        LaneInfo { lane, waiting, held, limit, floor, pinned: false }
    };
    let quiet = named("quiet", [0, 1], Some(3), 1);
    let [full, short] = [named("full", [1, 1], Some(1), 0), named("short", [1, 1], None, 2)];
    let all = [full, short, named("plain", [0, 1], None, 0), quiet.clone()];
    assert_eq!(fixture.inspect(&semaphore).await.lanes, all);
    for permit in held {
        permit.release().succeeds().await;
    }
    for waiter in waiters {
        waiter.permit().await.release().succeeds().await;
    }
    assert_eq!(fixture.inspect(&semaphore).await.lanes, [quiet], "its unit cools");
    fixture.frees_what_cools(&semaphore).await;
    client.close().succeeds().await;
}

pub(crate) async fn several_semaphores_are_acquired_in_lanes(fixture: &Fixture) {
    let mut line = Line::behind(fixture, AcquireOptions::new()).await;
    for name in ["b1", "b2"] {
        line.join(name, lane("b")).await;
    }
    let client = fixture.client().await;
    let (wide, narrow) = (fixture.semaphore(&client, 1), client.named("exports/tenant-7", 1));
    let both = [(wide, lane("a").holder("set")), (narrow, lane("a"))];
    let acquiring = tokio::spawn(async move {
        let set = client.acquire_all(both).succeeds().await;
        (client, set)
    });
    fixture.settles(&line.semaphores[0], 1, 3).await;
    assert_eq!(line.waiting().await, ["b1", "set", "b2"]);
    assert_eq!(line.next().await, "b1");
    line.holds.take().expect("it holds").release().succeeds().await;
    let (client, set) = timeout(HANGS, acquiring).await.expect("it is granted").expect("no panic");
    let seen = fixture.inspect(&line.semaphores[0]).await;
    assert_eq!((&*seen.holders[0].holder, seen.waiting), ("set", 1));
    set.release().succeeds().await;
    line.waiters.remove("b2").expect("it waits").permit().await.release().succeeds().await;
    client.close().succeeds().await;
}

/// A rate in a lane, too: what cools counts for its limit, and a try says when.
pub(crate) async fn a_lane_keeps_to_its_limit_and_stops_nobody_else(fixture: &Fixture) {
    let client = fixture.client().await;
    let semaphore = fixture.semaphore(&client, 3);
    let within = |limit| lane("a").lane_limit(limit);
    let first = semaphore.acquire_with(within(1)).succeeds().await;
    let waiter = fixture.queued(&semaphore, within(1)).await;
    let full = semaphore.acquire_with(within(1).no_wait()).await.expect_err("one is held");
    assert_eq!(full, AcquireError::LaneFull { lane: "a".to_owned(), remaining: None });
    let heavy = semaphore.acquire_with(within(1).weight(2)).await.expect_err("it can never fit");
    assert_eq!(heavy, AcquireError::ExceedsLaneLimit { weight: 2, lane: "a".to_owned(), limit: 1 });
    let other = semaphore.acquire_with(lane("b").no_wait()).succeeds().await;
    let none = semaphore.acquire_with(AcquireOptions::new().no_wait()).succeeds().await;
    first.release().succeeds().await;
    let second = waiter.permit().await;
    for permit in [second, other, none] {
        permit.release().succeeds().await;
    }
    semaphore.acquire_with(within(1).at_least(HOUR)).succeeds().await.release().succeeds().await;
    let cools = semaphore.acquire_with(within(1).no_wait()).await.expect_err("a unit cools");
    let again = cools.retry_after().expect("time alone frees the unit of the lane");
    assert!(
        again <= HOUR + Duration::from_millis(1) && matches!(cools, AcquireError::LaneFull { .. }),
        "{cools}"
    );
    semaphore.acquire_with(lane("b").no_wait()).succeeds().await.release().succeeds().await;
    fixture.frees_what_cools(&semaphore).await;
    client.close().succeeds().await;
}

/// A lane below its floor gets the next units. This holds for a newcomer, too, although the head of another
/// lane waits for more units than are free. Then the other lanes follow. A floor above a limit is refused.
pub(crate) async fn a_lane_below_its_floor_is_before_others(fixture: &Fixture) {
    let client = fixture.client().await;
    let semaphore = fixture.semaphore(&client, 2);
    let above = |floor| lane("a").lane_floor(floor);
    let [first, second] = [semaphore.acquire().succeeds().await, semaphore.acquire().succeeds().await];
    let heavy = fixture.queued(&semaphore, lane("b").weight(2)).await;
    let floor = fixture.queued(&semaphore, above(1)).await;
    let behind = fixture.queued(&semaphore, above(1)).await;
    first.release().succeeds().await;
    let floor = floor.permit().await;
    second.release().succeeds().await;
    let full = semaphore.acquire_with(above(1).no_wait()).await.expect_err("it holds its floor");
    assert_eq!(full, AcquireError::NoPermits);
    let other = semaphore.acquire_with(lane("c").lane_floor(1).no_wait()).succeeds().await;
    floor.release().succeeds().await;
    let behind = behind.permit().await;
    other.release().succeeds().await;
    behind.release().succeeds().await;
    heavy.permit().await.release().succeeds().await;
    let above_all = semaphore.acquire_with(above(3)).await.expect_err("two are all");
    let what = "the limit of the semaphore";
    assert_eq!(above_all, AcquireError::Invalid(InvalidInput::FloorAboveLimit { floor: 3, limit: 2, what }));
    let required = client.named(semaphore.name(), Limit::Exactly(2));
    assert_eq!(required.acquire_with(above(3)).await.expect_err("two are all"), above_all);
    let of_lane = semaphore.acquire_with(above(2).lane_limit(1)).await.expect_err("it may hold one");
    let what = "its limit";
    assert_eq!(of_lane, AcquireError::Invalid(InvalidInput::FloorAboveLimit { floor: 2, limit: 1, what }));
    client.close().succeeds().await;
}

/// Requests do not change pinned bounds, all that the lane holds counts for them, and a change grants at
/// once.
pub(crate) async fn an_operator_pins_the_bounds_of_a_lane(fixture: &Fixture) {
    let client = fixture.client().await;
    let semaphore = fixture.semaphore(&client, 3);
    let operator = fixture.connect(fixture.builder().label("dana")).await;
    let administered = operator.named(fixture.name(), Limit::Stored);
    let held = semaphore.acquire_with(lane("a")).succeeds().await;
    for _ in 0..2 {
        administered.set_lane("a", Some(1), None).succeeds().await;
    }
    let naming = || lane("a").lane_limit(3).lane_floor(3);
    let full = semaphore.acquire_with(naming().no_wait()).await.expect_err("one is held");
    assert_eq!(full, AcquireError::LaneFull { lane: "a".to_owned(), remaining: None });
    let heavy = semaphore.acquire_with(naming().weight(2)).await.expect_err("it can never fit");
    assert_eq!(heavy, AcquireError::ExceedsLaneLimit { weight: 2, lane: "a".to_owned(), limit: 1 });
    let waiter = fixture.queued(&semaphore, naming()).await;
    semaphore.acquire_with(lane("b").no_wait()).succeeds().await.release().succeeds().await;
    administered.set_lane("a", Some(2), Some(1)).succeeds().await;
    let second = waiter.permit().await;
    let seen = fixture.inspect(&semaphore).await;
    let (lane_name, limit) = ("a".to_owned(), Some(2));
    let info = LaneInfo { lane: Some(lane_name.clone()), waiting: 0, held: 2, limit, floor: 1, pinned: true };
    assert_eq!(seen.lanes.first(), Some(&info));
    let texts: Vec<String> = seen.changes.iter().map(|info| info.change.to_string()).collect();
    assert_eq!(
        texts[..2],
        ["pinned a limit of 2 and a floor of 1 of lane a", "pinned a limit of 1 of lane a"]
    );
    let pinned = OperatorChange::LanePinned { lane: lane_name, limit, floor: 1 };
    assert_eq!((&seen.changes[0].change, &*seen.changes[0].by), (&pinned, "dana"));
    for permit in [held, second] {
        permit.release().succeeds().await;
    }
    let idle = LaneInfo { held: 0, ..info };
    assert_eq!(fixture.inspect(&semaphore).await.lanes, [idle], "it stays although nobody uses it");
    administered.unpin_lane("a").succeeds().await;
    let seen = fixture.inspect(&semaphore).await;
    assert_eq!((&seen.lanes[..], &*seen.changes[0].change.to_string()), (&[][..], "unpinned lane a"));
    semaphore.acquire_with(lane("a").weight(3).no_wait()).succeeds().await.release().succeeds().await;
    client.close().succeeds().await;
}

pub(crate) async fn a_pin_that_makes_no_sense_is_refused(fixture: &Fixture) {
    let client = fixture.client().await;
    let semaphore = client.named("pinned", 2);
    semaphore.declare().succeeds().await;
    let above = |limit, what| InvalidInput::FloorAboveLimit { floor: 9, limit, what };
    for (name, limit, floor, refused) in [
        ("", Some(1), None, InvalidInput::Empty { what: "the lane", max: 120 }),
        ("a", Some(0), None, InvalidInput::ZeroLaneLimit),
        ("a", None, None, InvalidInput::PinsNoBound),
        ("a", None, Some(0), InvalidInput::PinsNoBound),
        ("a", Some(1), Some(9), above(1, "its limit")),
        ("a", Some(9), Some(9), above(2, "the limit of the semaphore")),
    ] {
        assert_eq!(semaphore.set_lane(name, limit, floor).await, Err(AdminError::Invalid(refused)));
    }
    assert_eq!(semaphore.inspect().succeeds().await.changes, []);
    semaphore.set_lane("a", Some(9), Some(2)).succeeds().await;
    semaphore.unpin_lane("never pinned").succeeds().await;
    assert_eq!(semaphore.delete().await, Ok(true), "a pin does not keep it from that");
    let seen = semaphore.inspect().succeeds().await;
    assert_eq!((seen.lanes, seen.changes), (Vec::new(), Vec::new()));
    client.close().succeeds().await;
}
