//! Each property breaks in a mutant of the store or of the client, or where nothing is promised.

use permits_core::model::{ServerClock, State, apply};
use permits_core::protocol::{Command, Event, EventKind, Recovery, Reply};
use permits_testkit::mutants::model;

use super::changes::{TWO, replicas, revoked};
use super::client::Kind;
use super::scope::{Budget, ClientBehaviour, Memory, NOTHING, Scope, Store};
use super::steps::Action;
use super::world::World;
use super::{breaks, breaks_alone, properties};

/// Two clients that are late, and a mutant of the store.
fn mutant(store: Store) -> Scope {
    let budget = Budget { acquisitions: 3, delays: 3, ..NOTHING };
    Scope { store, budget, ..Scope::small("mutant") }
}

fn with_loss(store: Store) -> Scope {
    let scope = mutant(store);
    Scope { budget: Budget { losses: 1, ..scope.budget }, ..scope }
}

fn with_restart(memory: &'static [Memory], recovery: Recovery) -> Scope {
    let scope = mutant(apply);
    let budget = Budget { restarts: 1, ..scope.budget };
    Scope { restarts: memory, recovery, budget, excused: false, ..scope }
}

#[test]
fn a_grant_above_the_limit_is_seen() {
    breaks("P1", mutant(model::one_too_many));
    breaks("P2", mutant(model::one_too_many));
}

#[test]
fn a_restart_without_a_window_is_seen() {
    let scope = with_restart(&[Memory::Nothing], Recovery::Strict);
    breaks("P2", Scope { store: model::no_window, ..scope });
}

#[test]
fn a_client_that_dates_from_the_reply_is_seen() {
    let scope = Scope { behaviour: ClientBehaviour::DatesFromReply, ..mutant(apply) };
    breaks("P2", scope.clone());
    breaks("P3", scope);
}

#[test]
fn a_token_that_does_not_rise_is_seen() {
    breaks("P4", mutant(model::old_tokens));
}

#[test]
fn a_resurrection_is_seen() {
    breaks("P5", mutant(model::resurrects));
}

#[test]
fn a_request_with_two_effects_is_seen() {
    breaks("P5, one effect", with_loss(model::forgets_requests));
}

#[test]
fn a_newcomer_that_overtakes_is_seen() {
    breaks("P6", mutant(model::lets_overtake));
}

#[test]
fn a_lane_that_overtakes_is_seen() {
    let scope = mutant(model::puts_new_lanes_first);
    breaks("P23", Scope { weights: &[1, 1, 1], lanes: &[("a", 1), ("a", 1), ("b", 2)], ..scope });
}

#[test]
fn what_is_freed_and_kept_is_seen() {
    breaks("P7", mutant(model::keeps_what_is_freed));
}

#[test]
fn a_head_that_is_not_told_of_a_shorter_lease_is_seen() {
    let scope = mutant(model::announces_no_turn);
    breaks("P7, asked for", Scope { weights: &[1, 1, 1], leases: &[3, 2, 3], ..scope });
}

#[test]
fn a_grant_that_counts_too_short_is_seen() {
    breaks("P17", Scope { at_least: 2, ..mutant(model::forgets_the_time) });
}

#[test]
fn a_waiter_that_is_never_served_is_seen() {
    breaks("P7, served", with_loss(model::trusts_messages));
}

#[test]
fn what_is_released_and_stays_is_seen() {
    breaks("P9", mutant(model::keeps_the_entry));
}

#[test]
fn a_withdrawal_that_waits_is_seen() {
    let scope = Scope { behaviour: ClientBehaviour::WithdrawsLater, ..mutant(apply) };
    breaks("P9, in order", Scope { budget: Budget { cancels: 1, ..scope.budget }, ..scope });
}

#[test]
fn a_kept_permit_that_is_not_recalled_is_seen() {
    breaks("P22", Scope { keep: true, ..mutant(model::never_recalls) });
    breaks("P22, recalled", Scope { keep: true, ..mutant(model::never_recalls) });
    for behaviour in [ClientBehaviour::IgnoresRecalls, ClientBehaviour::KeepsAlways] {
        breaks("P22, recalled", Scope { keep: true, behaviour, ..mutant(apply) });
    }
}

#[test]
fn a_token_that_a_kept_permit_repeats_is_seen() {
    let behaviour = ClientBehaviour::RepeatsTokens;
    breaks("P4, each slot", Scope { keep: true, behaviour, ..mutant(apply) });
}

#[test]
fn a_unit_that_is_lost_is_seen() {
    breaks("P10", mutant(model::loses_a_unit));
}

#[test]
fn what_never_comes_to_rest_is_seen() {
    breaks("P10, at rest", mutant(model::never_reaps));
}

#[test]
fn a_limit_that_is_not_the_operators_is_seen() {
    let scope = mutant(model::ignores_the_pin);
    breaks("P11", Scope { budget: Budget { limits: 1, ..scope.budget }, ..scope });
}

#[test]
fn a_lease_that_others_shorten_is_seen() {
    breaks("P13", mutant(model::shortens_others));
}

#[test]
fn a_message_too_many_is_seen() {
    breaks("P15", mutant(model::publishes_twice));
}

#[test]
fn a_slot_that_two_have_is_seen() {
    breaks("slots", Scope { limit: 2, ..mutant(model::one_slot) });
}

/// Nothing is promised to a holder that cannot reconnect within the usual window.
#[test]
fn the_usual_window_does_not_cover_a_disconnected_holder() {
    breaks("P2", with_restart(&[Memory::Nothing], Recovery::Interval));
}

#[test]
fn a_flush_can_admit_too_many() {
    breaks("P2", with_restart(&[Memory::Flushed], Recovery::Strict));
}

/// The old primary knew that client 0 had released and that client 1 was granted. Its replacement does not:
/// client 0 retries its release, since it had no reply. Its unit is client 1's.
#[test]
fn what_is_released_again_and_handed_on_is_seen() {
    let scope = Scope { weights: &[1, 1, 1], ..with_restart(&[Memory::Earlier], Recovery::Strict) };
    let scope = Scope { budget: Budget { losses: 1, ..scope.budget }, ..scope };
    let way = |does: &mut Does<'_>| {
        does.call(0, Kind::Acquire, Action::Acquire(0));
        does.call(1, Kind::Acquire, Action::Acquire(1));
        does.take(Action::Replicate);
        does.take(Action::Release(0));
        does.take(Action::Execute(0, Kind::Release));
        does.take(Action::Push(0));
        does.take(Action::Lose(0, Kind::Release));
        does.take(Action::Restart(Memory::Earlier));
        // The store tells it to retry later.
        does.call(1, Kind::Renew, Action::Renew(1));
        does.call(2, Kind::Acquire, Action::Acquire(2));
        does.call(0, Kind::Release, Action::SendRelease(0));
    };
    let world = taken(&scope, way);
    assert_eq!(format!("{:?}", world.broken), "{}");
    let scope = Scope { store: model::hands_on_what_is_released_again, ..scope };
    let world = taken(&scope, |does| {
        way(does);
        does.take(Action::Push(0));
    });
    assert_eq!(format!("{:?}", world.broken), r#"{"P2", "slots"}"#);
    assert_eq!(properties::believed(&world), 2);
}

/// The unit of a client that has gone is free when its lease ends, and is a forgotten holder's.
#[test]
fn a_window_that_ends_before_a_forgotten_holder_is_put_back_is_seen() {
    let scope = with_restart(&[Memory::Earlier], Recovery::Interval);
    let budget = Budget { delays: 0, ..scope.budget };
    let scope = Scope { lease: 4, connected: true, budget, ..scope };
    breaks("P2", Scope { store: model::ends_the_window, ..scope });
}

/// A regression: sessions dated a pushed grant from the call that they had sent last, although it was the
/// grant to an earlier, late call.
#[test]
fn a_client_that_forgets_late_calls_is_seen() {
    let scope = with_loss(apply);
    let way = |does: &mut Does<'_>| {
        does.call(0, Kind::Acquire, Action::Acquire(0));
        does.take(Action::Acquire(1));
        does.take(Action::GiveUp(1, Kind::Acquire));
        does.call(1, Kind::Acquire, Action::Ask(1));
        does.take(Action::Tick);
        does.call(0, Kind::Renew, Action::Renew(0));
        does.take(Action::Renew(1));
        does.take(Action::Tick);
        does.take(Action::Tick);
        // Too late: it is to be queued again. The late call has queued it already.
        does.take(Action::Execute(1, Kind::Renew));
        does.take(Action::Return(1, Kind::Renew));
        does.take(Action::ExecuteLate(0));
        does.call(0, Kind::Release, Action::Release(0));
        does.take(Action::Tick);
        does.take(Action::Ask(1));
        does.take(Action::Push(0));
    };
    let budget = Budget { delays: 9, ..scope.budget };
    let sound = Scope { budget, ..scope };
    assert_eq!(format!("{:?}", taken(&sound, way).broken), "{}");
    let unsound = Scope { behaviour: ClientBehaviour::ForgetsLateCalls, ..sound };
    assert_eq!(format!("{:?}", taken(&unsound, way).broken), r#"{"P3"}"#);
}

/// A history, step by step.
struct Does<'a> {
    scope: &'a Scope,
    world: World,
}

impl Does<'_> {
    fn take(&mut self, action: Action) {
        let mut possible = Vec::new();
        self.world.actions(self.scope, &mut possible);
        assert!(possible.contains(&action), "{action:?} is none of {possible:?}");
        self.world = self.world.step(self.scope, action);
    }

    /// A call that returns at once.
    fn call(&mut self, client: usize, kind: Kind, action: Action) {
        self.take(action);
        self.take(Action::Execute(client, kind));
        self.take(Action::Return(client, kind));
    }
}

fn taken(scope: &Scope, way: impl Fn(&mut Does<'_>)) -> World {
    let mut does = Does { scope, world: World::new(scope) };
    way(&mut does);
    does.world
}

/// Mutants that one check alone rejects, in the scope of each: without it they would live.
///
/// P4, "P5, one effect", "P9, in order", "P22, tries" and "slots" are not in this list. A token that falls, a
/// request with two effects, a withdrawal that waits, a try that is queued and a slot that two holders have
/// each cause a wrong answer, count or unit in a later step, where another check sees it. These checks stay
/// because they name the step that is wrong.
#[test]
fn some_mutants_are_rejected_by_one_check_alone() {
    let small = Scope { budget: TWO, ..Scope::small("mutant") };
    let late = Budget { delays: 3, ..NOTHING };
    let alone = [
        // Nobody waits, so that too long is not too many.
        (
            "P3",
            Scope {
                weights: &[1],
                behaviour: ClientBehaviour::DatesFromReply,
                budget: Budget { acquisitions: 1, ..late },
                ..small.clone()
            },
        ),
        ("P2, revoked", Scope { store: tells_no_revocation, ..revoked("mutant", TWO) }),
        ("P2, confirmed", Scope { behaviour: ClientBehaviour::AsksNoReplicas, ..replicas("mutant", TWO) }),
        ("P4, each slot", Scope { keep: true, behaviour: ClientBehaviour::RepeatsTokens, ..small.clone() }),
        (
            "P7, served",
            Scope { store: model::trusts_messages, budget: Budget { losses: 1, ..TWO }, ..small.clone() },
        ),
        ("P9, released", Scope { behaviour: ClientBehaviour::ReleasesNothing, ..small.clone() }),
        ("P10, at rest", Scope { store: model::never_reaps, ..small.clone() }),
        ("P22, recalled", Scope { keep: true, behaviour: ClientBehaviour::KeepsAlways, ..small }),
    ];
    for (property, scope) in alone {
        breaks_alone(property, scope);
    }
}

/// The store restarts without a window and forgets client 1, which holds slot 1. It then grants both units to
/// client 2, in slot 0. No slot is held twice, so only P2 sees the fault.
#[test]
fn a_second_slot_that_was_forgotten_is_seen_by_one_check_alone() {
    const BEGIN: &[Action] = &[
        Action::Acquire(0),
        Action::Execute(0, Kind::Acquire),
        Action::Return(0, Kind::Acquire),
        Action::Acquire(1),
        Action::Execute(1, Kind::Acquire),
        Action::Return(1, Kind::Acquire),
        Action::Release(0),
        Action::SendRelease(0),
        Action::Execute(0, Kind::Release),
        Action::Return(0, Kind::Release),
    ];
    let scope = with_restart(&[Memory::Nothing], Recovery::Strict);
    let budget = Budget { delays: 0, ..scope.budget };
    let scope = Scope { weights: &[1, 1, 2], limit: 2, begin: BEGIN, budget, ..scope };
    breaks_alone("P2", Scope { store: model::no_window, ..scope });
}

/// Revokes permits, and tells nobody.
fn tells_no_revocation(
    state: &mut Option<State>,
    server: &ServerClock<'_>,
    command: &Command,
) -> (Reply, Vec<Event>) {
    let (reply, mut events) = apply(state, server, command);
    events.retain(|event| !matches!(event.kind, EventKind::Revoked(_)));
    (reply, events)
}
