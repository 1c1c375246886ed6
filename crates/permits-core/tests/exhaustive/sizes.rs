//! The scopes in which all properties hold, in two sizes. Each fault is in some scope: all faults at once are
//! more than can be explored.

use permits_core::protocol::Recovery;

use super::client::Kind;
use super::scope::{Budget, ENDLESS, Memory, NOTHING, Scope};
use super::steps::Action;
use super::{changes, holds_in};

/// Two clients and one unit: late and lost requests, replies and messages.
fn losses(budget: Budget) -> Scope {
    Scope { budget: Budget { losses: 1, ..budget }, ..Scope::small("losses") }
}

fn crashes(budget: Budget) -> Scope {
    Scope { budget: Budget { crashes: 1, cancels: 1, ..budget }, ..Scope::small("crashes") }
}

/// A heavy request in the line, and a limit that is lowered under it.
fn weights(budget: Budget) -> Scope {
    let scope = Scope::small("weights");
    Scope { weights: &[1, 2], limit: 2, budget: Budget { limits: 1, ..budget }, ..scope }
}

/// Three clients, two units.
fn crowd(budget: Budget) -> Scope {
    Scope { weights: &[1, 1, 1], limit: 2, budget, ..Scope::small("crowd") }
}

/// A client alone in its lane, with twice the share, beside a lane of two.
fn lanes(budget: Budget) -> Scope {
    let lanes = &[("a", 1), ("a", 1), ("b", 2)];
    Scope { weights: &[1, 1, 1], lanes, limit: 1, name: "lanes", ..crowd(budget) }
}

/// Two lanes, each with a limit of one unit. In the lane of two clients one waits while a unit is free.
fn lane_limits(budget: Budget) -> Scope {
    Scope { lane_bounds: &[(1, 0); 3], limit: 2, name: "lane limits", ..lanes(budget) }
}

/// Two lanes, one with a limit of one unit and one with a floor of one, which passes the other.
fn lane_floors(budget: Budget) -> Scope {
    let scope = Scope { lane_bounds: &[(1, 0), (1, 0), (0, 1)], name: "lane floors", ..lanes(budget) };
    Scope { weights: &[1, 1, 2], limit: 2, ..scope }
}

/// Two clients with one key wait for the permit of a third, which has it, too.
fn keys(budget: Budget) -> Scope {
    Scope { keyed: true, limit: 1, name: "keys", ..crowd(budget) }
}

/// Grants that count for some time, shorter or longer than a lease, while their holders crash or release.
fn rates(at_least: u32, budget: Budget) -> Scope {
    Scope { at_least, name: "rates", ..crashes(budget) }
}

/// A client with a short lease between two with a long one: one holds the unit, and the others wait for it.
fn leases(budget: Budget) -> Scope {
    Scope { leases: &[3, 2, 3], begin: ALL_WAIT, limit: 1, name: "leases", ..crowd(budget) }
}

/// Clients that keep what they release.
fn keeps(scope: Scope, name: &'static str) -> Scope {
    Scope { keep: true, name, ..scope }
}

/// A restart that keeps everything.
fn restarts(budget: Budget) -> Scope {
    let budget = Budget { restarts: 1, ..budget };
    Scope { restarts: &[Memory::All], budget, ..Scope::small("restarts") }
}

/// A restart without state, with the strict window: no client needs to be connected.
fn forgets(budget: Budget) -> Scope {
    let budget = Budget { restarts: 1, ..budget };
    let scope = Scope::small("forgets, strict window");
    Scope { restarts: &[Memory::Nothing], recovery: Recovery::Strict, budget, ..scope }
}

/// A restart without state, with the default window, which covers connected clients.
fn forgets_connected(budget: Budget) -> Scope {
    let scope = Scope::small("forgets, all connected");
    Scope { recovery: Recovery::Interval, connected: true, name: scope.name, ..forgets(budget) }
}

/// A loss that no window covers: at most as many units again are held, for at most a lease.
fn flushes(budget: Budget) -> Scope {
    Scope { restarts: &[Memory::Flushed], name: "flushes", ..forgets(budget) }
}

fn lags(budget: Budget) -> Scope {
    Scope { restarts: &[Memory::Earlier], name: "a replica that lags", ..forgets(budget) }
}

/// A replica that lags, with the default window, of two ticks, which covers connected clients.
fn lags_connected(budget: Budget) -> Scope {
    let scope = Scope { recovery: Recovery::Interval, connected: true, ..lags(budget) };
    Scope { lease: 6, name: "a replica that lags, all connected", ..scope }
}

/// Client 0 holds with the longer of two leases, which a replica knows, but not the grant. The semaphore is
/// pinned, so that it is not forgotten.
fn lags_with_leases(budget: Budget) -> Scope {
    const BEGIN: &[Action] = &[
        Action::Acquire(0),
        Action::Execute(0, Kind::Acquire),
        Action::Return(0, Kind::Acquire),
        Action::SetLimit,
        Action::Release(0),
        Action::SendRelease(0),
        Action::Execute(0, Kind::Release),
        Action::Return(0, Kind::Release),
        Action::Replicate,
        Action::Acquire(0),
        Action::Execute(0, Kind::Acquire),
        Action::Return(0, Kind::Acquire),
    ];
    let scope = lags(Budget { limits: 1, ..budget });
    Scope { leases: &[3, 1], begin: BEGIN, name: "a replica that lags, leases", ..scope }
}

fn two(delays: u8) -> Budget {
    Budget { acquisitions: 2, delays, ..NOTHING }
}

fn three(delays: u8) -> Budget {
    Budget { acquisitions: 3, delays, ..NOTHING }
}

#[test]
fn lost_calls_break_nothing() {
    holds_in(losses(two(0)), 1);
}

#[test]
fn late_calls_break_nothing() {
    holds_in(Scope { budget: two(2), ..Scope::small("late") }, 1);
}

#[test]
fn crashes_and_cancellations_break_nothing() {
    holds_in(crashes(two(0)), 1);
}

#[test]
fn a_cancellation_after_a_lost_reply_breaks_nothing() {
    let budget = Budget { losses: 1, cancels: 1, ..two(0) };
    holds_in(Scope { budget, lease: 2, weights: &[1], ..Scope::small("losses and cancellations") }, 1);
}

#[test]
fn a_heavy_request_and_a_lowered_limit_break_nothing() {
    holds_in(weights(two(0)), 1);
}

#[test]
fn a_crowd_breaks_nothing() {
    holds_in(crowd(two(0)), 1);
}

/// The beginning in which client 0 holds and the others wait, each in its lane.
const ALL_WAIT: &[Action] = &[
    Action::Acquire(0),
    Action::Execute(0, Kind::Acquire),
    Action::Return(0, Kind::Acquire),
    Action::Acquire(1),
    Action::Execute(1, Kind::Acquire),
    Action::Return(1, Kind::Acquire),
    Action::Acquire(2),
    Action::Execute(2, Kind::Acquire),
    Action::Return(2, Kind::Acquire),
];

/// The first steps of a history in which client 0 holds.
const HELD: &[Action] =
    &[Action::Acquire(0), Action::Execute(0, Kind::Acquire), Action::Return(0, Kind::Acquire)];

#[test]
fn lanes_break_nothing() {
    holds_in(Scope { begin: ALL_WAIT, lease: 1, ..lanes(three(0)) }, 1);
}

#[test]
fn lane_limits_break_nothing() {
    holds_in(Scope { begin: HELD, lease: 1, ..lane_limits(three(0)) }, 1);
}

#[test]
fn lane_floors_break_nothing() {
    holds_in(Scope { begin: HELD, lease: 1, ..lane_floors(three(0)) }, 1);
}

#[test]
fn keys_break_nothing() {
    holds_in(Scope { begin: HELD, lease: 2, ..keys(three(0)) }, 1);
}

/// Client 1 holds and has spent what its lane had, and client 0 may ask in that lane again.
#[test]
fn a_lane_that_owes_breaks_nothing() {
    const BEGIN: &[Action] = &[
        Action::Acquire(0),
        Action::Execute(0, Kind::Acquire),
        Action::Return(0, Kind::Acquire),
        Action::Acquire(1),
        Action::Execute(1, Kind::Acquire),
        Action::Return(1, Kind::Acquire),
        Action::Acquire(2),
        Action::Execute(2, Kind::Acquire),
        Action::Return(2, Kind::Acquire),
        Action::Release(0),
        Action::SendRelease(0),
        Action::Execute(0, Kind::Release),
        Action::Return(0, Kind::Release),
        Action::Push(0),
    ];
    let budget = Budget { acquisitions: 4, ..three(0) };
    holds_in(Scope { begin: BEGIN, lease: 1, name: "lanes, owing", ..lanes(budget) }, 1);
}

#[test]
fn leases_of_two_lengths_break_nothing() {
    holds_in(leases(three(0)), 1);
}

#[test]
fn grants_that_count_for_less_than_a_lease_break_nothing() {
    holds_in(rates(2, two(0)), 1);
}

#[test]
fn grants_that_count_for_longer_than_a_lease_break_nothing() {
    holds_in(rates(4, two(0)), 1);
}

#[test]
fn kept_permits_break_nothing() {
    holds_in(keeps(Scope { budget: two(1), ..Scope::small("") }, "kept, late"), 1);
}

#[test]
fn a_restart_breaks_nothing() {
    holds_in(restarts(two(0)), 1);
}

#[test]
fn a_restart_that_forgets_breaks_nothing_behind_a_strict_window() {
    holds_in(forgets(two(0)), 1);
}

#[test]
fn a_restart_that_forgets_breaks_nothing_for_connected_clients() {
    holds_in(forgets_connected(two(0)), 1);
}

#[test]
fn a_flush_admits_no_more_than_as_much_again_for_a_lease() {
    holds_in(flushes(two(0)), 1);
}

#[test]
fn a_replica_that_lags_breaks_nothing_behind_a_strict_window() {
    holds_in(lags(two(0)), 1);
}

#[test]
fn a_replica_that_lags_breaks_nothing_with_leases_of_two_lengths() {
    holds_in(lags_with_leases(three(1)), 1);
}

#[test]
fn a_replica_that_lags_breaks_nothing_for_connected_clients() {
    holds_in(lags_connected(two(0)), 1);
}

/// The scopes run one after the other, because each needs much memory.
#[test]
#[ignore = "takes long and is for a release build: scripts/lab check-model runs it"]
fn everything_holds_in_the_long_scopes() {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let longer = |scope: Scope, name: &'static str| Scope { lease: 6, name, ..scope };
    let scopes = [
        Scope { name: "late", budget: two(ENDLESS), ..Scope::small("") },
        losses(two(3)),
        crashes(two(3)),
        weights(two(ENDLESS)),
        crowd(three(2)),
        lanes(three(1)),
        lane_limits(three(1)),
        lane_floors(three(1)),
        Scope { name: "lane floors, losses", ..lane_floors(Budget { losses: 1, ..three(0) }) },
        Scope { name: "lane limits, losses", ..lane_limits(Budget { losses: 1, ..three(0) }) },
        Scope { name: "lanes, losses", ..lanes(Budget { losses: 1, ..three(0) }) },
        Scope { name: "lanes, cancels", ..lanes(Budget { cancels: 1, ..three(0) }) },
        Scope { lease: 2, name: "lanes, again", ..lanes(Budget { acquisitions: 4, ..three(0) }) },
        // Scopes with keys begin with a grant and have short leases: otherwise they run for many minutes.
        Scope { begin: HELD, lease: 2, ..keys(three(1)) },
        Scope { begin: HELD, lease: 2, name: "keys, losses", ..keys(Budget { losses: 1, ..three(0) }) },
        rates(2, two(3)),
        rates(4, two(3)),
        Scope { at_least: 4, weights: &[1, 1, 1], name: "rates, with a crowd", ..crowd(three(0)) },
        Scope { at_least: 4, name: "rates, and a replica that lags", ..lags(two(2)) },
        keeps(Scope { budget: three(1), ..Scope::small("") }, "kept, late"),
        keeps(losses(three(0)), "kept, losses"),
        keeps(crashes(three(0)), "kept, crashes"),
        keeps(weights(three(0)), "kept, weights"),
        keeps(restarts(two(2)), "kept, restarts"),
        keeps(forgets(two(1)), "kept, forgets"),
        keeps(flushes(two(1)), "kept, flushes"),
        keeps(lags(two(1)), "kept, a replica that lags"),
        restarts(two(4)),
        forgets(two(4)),
        forgets_connected(two(4)),
        longer(forgets_connected(two(3)), "forgets, all connected, window of two ticks"),
        flushes(two(4)),
        lags(two(3)),
        lags(three(1)),
        lags_connected(three(1)),
        Scope {
            weights: &[1, 1, 1],
            name: "a replica that lags, with a crowd",
            ..lags(Budget { losses: 1, ..three(0) })
        },
        Scope {
            weights: &[1, 1, 1],
            name: "a replica that lags, with a crowd, all connected",
            ..lags_connected(three(0))
        },
    ];
    let chosen = std::env::var("PERMITS_SCOPE").unwrap_or_default();
    let numbers: Result<Vec<usize>, _> = chosen.split_whitespace().map(str::parse).collect();
    let is_chosen = |place: usize, scope: &Scope| match &numbers {
        Ok(numbers) if !chosen.is_empty() => numbers.contains(&(place + 1)),
        _ => scope.name.contains(&chosen),
    };
    let scopes = scopes
        .into_iter()
        .chain(changes::long())
        .enumerate()
        .filter(|(place, scope)| is_chosen(*place, scope));
    let scopes: Vec<_> = scopes.map(|(_, scope)| scope).collect();
    assert!(!scopes.is_empty(), "no scope is called {chosen}");
    for scope in scopes {
        holds_in(scope, threads);
    }
}
