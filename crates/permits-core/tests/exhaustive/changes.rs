//! The scopes in which operators change something, replicas are asked, and holders change their permits, give
//! them away, or renew them by themselves: all properties hold.

use permits_core::protocol::Recovery;

use super::holds_in;
use super::scope::{Budget, Change, Memory, NOTHING, Scope};

/// An operator revokes permits and waiters.
const REVOKE: &[Change] = &[Change::Revoke(0), Change::Revoke(1)];

/// Two clients and one unit, with so many acquisitions.
fn scope(name: &'static str, acquisitions: u8) -> Scope {
    Scope { budget: Budget { acquisitions, ..NOTHING }, ..Scope::small(name) }
}

pub(crate) fn revoked(name: &'static str, budget: Budget) -> Scope {
    Scope { changes: REVOKE, budget: Budget { operators: 1, ..budget }, ..scope(name, 0) }
}

/// An operator closes the line, and opens it again.
fn closed(name: &'static str, budget: Budget) -> Scope {
    let changes = &[Change::Close, Change::Open];
    Scope { changes, budget: Budget { operators: 2, ..budget }, ..scope(name, 0) }
}

/// An operator pauses the semaphore, for a tick or until it is resumed.
fn paused(name: &'static str, budget: Budget) -> Scope {
    let changes = &[Change::Pause, Change::PauseForTick, Change::Resume];
    Scope { changes, budget: Budget { operators: 2, ..budget }, ..scope(name, 0) }
}

/// An operator pins the lane of two clients to one of two units, and may lift the pin.
fn pinned_lane(name: &'static str, operators: u8, budget: Budget) -> Scope {
    let lanes = &[("a", 1), ("a", 1), ("b", 1)];
    let changes = &[Change::PinLane, Change::UnpinLane];
    let budget = Budget { operators, ..budget };
    Scope { weights: &[1, 1, 1], lanes, limit: 2, changes, lease: 1, budget, ..scope(name, 0) }
}

/// Two clients: one does not wait, and the other does.
fn tries(name: &'static str, budget: Budget) -> Scope {
    Scope { tries: &[1], budget, ..scope(name, 0) }
}

/// Replicas are asked for each grant, and once too few have it. An operator revokes something meanwhile.
pub(crate) fn replicas(name: &'static str, budget: Budget) -> Scope {
    Scope { replicas: true, ..revoked(name, Budget { shortages: 1, ..budget }) }
}

/// A holder makes its lease shorter or longer.
fn leases(name: &'static str, new_lease: u32, budget: Budget) -> Scope {
    Scope { new_lease, budget: Budget { terms: 1, ..budget }, ..scope(name, 0) }
}

/// A holder of two units gives one back, for which another client waits.
fn parts(name: &'static str, budget: Budget) -> Scope {
    Scope { weights: &[2, 1], limit: 2, budget: Budget { terms: 1, ..budget }, ..scope(name, 0) }
}

/// Programs renew their permits themselves, and now and then do not.
fn by_program(name: &'static str, budget: Budget) -> Scope {
    Scope { by_program: true, budget, ..scope(name, 0) }
}

/// As before, and the server restarts with nothing: the sessions put the permits back, for the rest of their
/// leases.
fn by_program_forgotten(name: &'static str, budget: Budget) -> Scope {
    let budget = Budget { restarts: 1, ..budget };
    let restarts = &[Memory::Nothing];
    Scope { restarts, recovery: Recovery::Interval, connected: true, ..by_program(name, budget) }
}

/// As before, and a holder makes its lease shorter.
fn by_program_shorter(name: &'static str, budget: Budget) -> Scope {
    Scope { new_lease: 2, ..by_program_forgotten(name, Budget { terms: 1, ..budget }) }
}

/// A permit is handed over, renewed by its handle, and adopted, or not.
fn handles(name: &'static str, budget: Budget) -> Scope {
    Scope { in_order: true, budget: Budget { hand_overs: 1, ..budget }, ..scope(name, 0) }
}

/// The scope with a lease of two ticks, which ends sooner.
fn short(scope: Scope) -> Scope {
    Scope { lease: 2, ..scope }
}

pub(crate) const TWO: Budget = Budget { acquisitions: 2, ..NOTHING };
const THREE: Budget = Budget { acquisitions: 3, ..NOTHING };

#[test]
fn revocations_break_nothing() {
    holds_in(revoked("revoked", Budget { delays: 1, ..TWO }), 1);
}

#[test]
fn revocations_whose_messages_are_lost_break_nothing() {
    holds_in(short(revoked("revoked, losses", Budget { losses: 1, ..TWO })), 1);
}

#[test]
fn a_closed_line_breaks_nothing() {
    holds_in(closed("closed", TWO), 1);
}

#[test]
fn pauses_break_nothing() {
    holds_in(paused("paused", TWO), 1);
}

#[test]
fn a_pinned_lane_breaks_nothing() {
    holds_in(pinned_lane("a pinned lane", 1, THREE), 1);
}

#[test]
fn tries_break_nothing() {
    holds_in(tries("tries", Budget { losses: 1, ..TWO }), 1);
}

#[test]
fn grants_that_replicas_confirm_break_nothing() {
    holds_in(replicas("replicas", TWO), 1);
}

#[test]
fn a_shorter_lease_breaks_nothing() {
    holds_in(leases("a shorter lease", 2, Budget { losses: 1, ..TWO }), 1);
}

#[test]
fn a_longer_lease_breaks_nothing() {
    holds_in(leases("a longer lease", 4, Budget { delays: 1, ..TWO }), 1);
}

#[test]
fn permits_released_in_part_break_nothing() {
    holds_in(parts("parts", Budget { delays: 1, ..TWO }), 1);
}

#[test]
fn permits_that_their_programs_renew_break_nothing() {
    holds_in(by_program("by program", Budget { delays: 1, ..TWO }), 1);
}

#[test]
fn permits_that_their_programs_renew_are_put_back() {
    holds_in(by_program_forgotten("by program, forgotten", TWO), 1);
}

#[test]
fn permits_that_their_programs_shorten_are_put_back() {
    holds_in(by_program_shorter("by program, shorter", TWO), 1);
}

#[test]
fn permits_handed_over_break_nothing() {
    holds_in(handles("handles", TWO), 1);
}

/// The longer ones.
pub(crate) fn long() -> Vec<Scope> {
    vec![
        revoked("revoked, late", Budget { losses: 1, delays: 1, ..TWO }),
        revoked("revoked, losses, three", Budget { losses: 1, ..THREE }),
        closed("closed, losses", Budget { losses: 1, ..TWO }),
        paused("paused, losses", Budget { losses: 1, ..TWO }),
        pinned_lane("a lane that is pinned and unpinned", 2, THREE),
        tries("tries, three", Budget { losses: 1, delays: 1, ..THREE }),
        replicas("replicas, losses", Budget { losses: 1, ..TWO }),
        leases("a shorter lease, late", 2, Budget { losses: 1, delays: 2, ..TWO }),
        leases("a longer lease, late", 4, Budget { losses: 1, delays: 2, ..TWO }),
        parts("parts, late", Budget { losses: 1, delays: 2, ..TWO }),
        by_program_forgotten("by program, forgotten, losses", Budget { losses: 1, ..TWO }),
        by_program_shorter("by program, shorter, losses", Budget { losses: 1, ..TWO }),
        handles("handles, late", Budget { delays: 1, ..TWO }),
        handles("handles, losses", Budget { losses: 1, ..TWO }),
    ]
}
