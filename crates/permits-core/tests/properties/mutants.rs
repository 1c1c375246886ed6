//! Mutants of single steps: a sound step, changed as a faulty store would, must fail the check of its
//! property.

use permits_core::model::PAUSED;
use permits_core::model::{EntryState, Lane, Lanes, State};
use permits_core::protocol::{
    AcquireOutcome, Answers, Counts, Event, EventKind, Grant, LimitChange, Operation, Refusal,
};
use permits_testkit::history::checks::{CHECKS, check, conserved};
use permits_testkit::history::step::Step;

use crate::coverage::Coverage;
use crate::simulation::Simulation;
use crate::story::{Story, holder, request};
use crate::{Run, counted, repeated};

fn after(step: &mut Step) -> &mut State {
    step.after.as_mut().expect("there is a state")
}

/// Returns true if the check of `property` fails on `sound` after `mutate`.
fn sees(property: &str, sound: &Step, mutate: impl FnOnce(&mut Step)) -> bool {
    assert_eq!(check(sound), Ok(()), "the step is sound without the mutation");
    let mut step = sound.clone();
    mutate(&mut step);
    let (_, check) = CHECKS.iter().find(|(name, _)| *name == property).expect("there is such a check");
    check(&step).is_err()
}

#[test]
fn the_checks_see_a_grant_above_the_limit() {
    let step = Story::full().release("a");
    assert!(sees("P1", &step, |step| after(step).limit = 1));
    assert!(sees("P1", &step, |step| after(step).paused_until_ms = PAUSED));
    assert!(sees("P1", &step, |step| after(step).closed = Some("".into())));
    let newcomer = Story::new().acquire(&["a"]);
    let in_window = |step: &mut Step| after(step).recovering_until_ms = u64::MAX;
    assert!(sees("P1", &newcomer, in_window));
}

#[test]
fn the_checks_see_an_effect_without_a_request() {
    let mut story = Story::new();
    story.acquire(&["a", "b"]);
    let step = story.release("a");
    let resurrect = |step: &mut Step| {
        let before = step.before.clone();
        step.after = before;
        after(step).sequence += 1;
    };
    assert!(sees("P9", &step, resurrect));
    let idle = Story::new().send(Operation::Renew(Vec::new()));
    let other = story.state.clone();
    assert!(sees("P5", &idle, |step| step.after = other));
}

#[test]
fn the_checks_see_an_overtaker() {
    // D is granted, and C, which came before, still waits.
    let mut story = Story::full();
    let step = story.release("a");
    let swap = |step: &mut Step| {
        let state = step.before.as_mut().expect("there is a state");
        let tickets: Vec<u64> = state.queue.keys().copied().collect();
        for (ticket, name) in tickets.iter().zip(["d", "c"]) {
            state.queue.insert(*ticket, holder(name));
            let entry = state.entries.get_mut(&holder(name)).expect("it waits");
            entry.place = EntryState::Waiting(*ticket);
        }
        let state = after(step);
        let (_, waiter) = state.queue.pop_first().expect("one waits");
        state.entries.get_mut(&waiter).expect("it waits").place = EntryState::Waiting(tickets[0]);
        state.queue.insert(tickets[0], waiter);
    };
    assert!(sees("P6", &step, swap));
    // A newcomer is granted behind a waiter of the same batch.
    let step = Story::new().acquire(&["a", "b"]);
    let overtake = |step: &mut Step| {
        let Answers::Acquire(answers) = &mut step.reply.answers else { unreachable!() };
        answers[0] = AcquireOutcome::Waiting { position: 0 };
    };
    assert!(sees("P6", &step, overtake));
}

#[test]
fn the_checks_see_a_wrong_count() {
    let granted = Story::full().release("a");
    let refused = Story::full().send(Operation::Acquire { queue_max: 0, requests: vec![request("z", 1000)] });
    let sees = |sound: &Step, mutate: fn(&mut Counts)| {
        assert_eq!(counted(sound), Ok(()), "the step is sound without the mutation");
        let mut step = sound.clone();
        mutate(&mut after(&mut step).counts);
        counted(&step).is_err()
    };
    assert!(sees(&granted, |counts| counts.grants += 1));
    assert!(sees(&granted, |counts| counts.refused += 1));
    assert!(sees(&granted, |counts| counts.revoked += 1));
    assert!(sees(&refused, |counts| counts.refused -= 1));
}

#[test]
fn the_checks_see_a_head_left_waiting() {
    let mut story = Story::full();
    let step = story.send(Operation::Renew(Vec::new()));
    assert!(sees("P7", &step, |step| after(step).limit = 3));
}

#[test]
fn the_checks_see_cut_work_that_is_not_asked_for() {
    let mut story = Story::new();
    for first in [0, 400] {
        let requests = (first..first + 400).map(|number| request(&number.to_string(), 3_000)).collect();
        story.send(Operation::Acquire { queue_max: 1_000, requests });
    }
    let (origin, change) = (Simulation::session_id(9).request(1).into(), LimitChange::Set(1_000));
    let step = story.send(Operation::SetLimit { origin, change, expected_version: None });
    let turn = step.events.last().expect("work is left").clone();
    assert!(sees("P7, asked for", &step, |step| drop(step.events.pop())), "nobody asks");
    assert!(sees("P7, asked for", &step, |step| step.events.push(turn.clone())), "a session asks twice");
    let late = |step: &mut Step| step.events.last_mut().expect("work is left").kind = EventKind::Turn(2);
    assert!(sees("P7, asked for", &step, late));
    let of_another = |step: &mut Step| step.events.last_mut().expect("work is left").holder = holder("799");
    assert!(sees("P7, asked for", &step, of_another), "not the head");
}

#[test]
fn the_checks_see_a_state_that_disagrees_with_itself() {
    let step = Story::full().send(Operation::Renew(Vec::new()));
    let mutations: [fn(&mut State); 7] = [
        |state| state.held += 1,
        |state| state.slots_made += 1,
        |state| assert_eq!(state.free.insert(1, 1), None),
        |state| drop(state.queue.pop_first()),
        |state| drop(state.leases.pop_first()),
        |state| state.last_token = 1,
        |state| state.sequence += 1,
    ];
    for (number, mutate) in mutations.into_iter().enumerate() {
        assert!(sees("P10", &step, |step| mutate(after(step))), "mutation {number}");
    }
    let mut state = step.after.expect("there is a state");
    let slot = |state: &mut State, name: &str, slot| {
        let entry = state.entries.get_mut(&holder(name)).expect("it holds");
        let EntryState::Holding(grant) = entry.place else { unreachable!() };
        entry.place = EntryState::Holding(Grant { slot, ..grant });
    };
    slot(&mut state, "b", 0);
    assert!(conserved(&state).is_err_and(|reason| reason.contains("out of place")));
}

#[test]
fn the_checks_see_an_inspection_that_changes_something() {
    let step = Story::full().send(Operation::Inspect { max: 9 });
    assert_eq!(check(&step), Ok(()));
    let mutations: [fn(&mut State); 2] = [|state| state.expires_ms += 1, |state| state.sequence += 1];
    for mutate in mutations {
        let mut step = step.clone();
        mutate(after(&mut step));
        assert!(check(&step).is_err());
    }
}

#[test]
fn the_checks_see_a_declaration_that_changes_a_pinned_limit() {
    let mut story = Story::new();
    let step = story.send(Operation::Renew(Vec::new()));
    assert!(sees("P11", &step, |step| after(step).limit = 5));
}

#[test]
fn the_checks_see_a_change_of_an_uninvolved_permit() {
    let mut story = Story::full();
    let step = story.send(Operation::Renew(Vec::new()));
    let shorten = |step: &mut Step| {
        let state = after(step);
        let entry = state.entries.get_mut(&holder("b")).expect("it holds");
        state.leases.remove(&(entry.deadline, holder("b")));
        entry.deadline -= 1;
        state.leases.insert((entry.deadline, holder("b")));
    };
    assert!(sees("P13", &step, shorten));
}

#[test]
fn the_checks_see_a_herd() {
    let step = Story::full().release("a");
    assert!(sees("P15", &step, |step| step.events.push(step.events[0].clone())));
    assert!(sees("P15", &step, |step| step.events[0].session = Simulation::session_id(2)));
    // A waiter is granted, although no holder has left.
    let no_release = |step: &mut Step| {
        let Some(state) = &mut step.after else { unreachable!() };
        let before = step.before.as_ref().expect("there is a state");
        state.entries.insert(holder("a"), before.entries[&holder("a")].clone());
    };
    assert!(sees("P15", &step, no_release));
}

#[test]
fn the_checks_see_a_head_that_is_overtaken_by_a_lane() {
    let mut story = Story::full();
    let step = story.acquire_in(&[("x", "lane")]);
    let overtake = |step: &mut Step| {
        let lanes = &mut after(step).lanes;
        let mut known = lanes.known().clone();
        for lane in known.values_mut() {
            if let Lane::Waits { number: 1, progress, .. } = lane {
                progress.0 = 1.0;
            }
        }
        *lanes = Lanes::new(lanes.last, known);
    };
    assert!(sees("P23", &step, overtake), "the new lane is before the head");
    let mut story = Story::new();
    story.acquire_in(&[("a", ""), ("b", ""), ("c", "1"), ("d", "2")]);
    let step = story.release("a");
    let grant_other = |step: &mut Step| {
        let other = Event { holder: holder("d"), ..step.events[0].clone() };
        step.events.insert(0, other);
    };
    assert!(sees("P23", &step, grant_other), "another is granted first");
}

#[test]
fn the_checks_see_an_overtaker_in_a_lane() {
    let mut story = Story::new();
    story.acquire_in(&[("a", ""), ("b", ""), ("c", "1"), ("d", "1"), ("e", "2")]);
    let step = story.release("a");
    let of_the_same_lane = |step: &mut Step| {
        let stays = step.before.as_ref().expect("there is a state").entries[&holder("c")].clone();
        step.events[0].holder = holder("d");
        let granted = after(step).entries.insert(holder("c"), stays).expect("it holds");
        after(step).entries.insert(holder("d"), granted);
    };
    assert!(sees("P6", &step, of_the_same_lane));
}

#[test]
fn the_checks_see_a_token_that_does_not_rise() {
    let mut coverage = Coverage::default();
    let mut run = Run::new(0, &mut coverage);
    let step = Story::new().acquire(&["a"]);
    assert_eq!(run.tokens(&step), Ok(()));
    let mut later = step;
    later.before = later.after.clone();
    assert!(run.tokens(&later).is_ok(), "a repeated answer is no new grant");
    let mut later = Story::new().acquire(&["b"]);
    later.before.as_mut().expect("there is a state").last_token = run.last_token;
    assert!(run.tokens(&later).is_err());
}

#[test]
fn the_checks_see_a_command_that_does_more_the_second_time() {
    let mut story = Story::full();
    let mut step = story.release("a");
    step.after = step.before.clone();
    assert!(repeated(&step, &story.simulation.server()).is_err(), "as if the first release had done nothing");
}

#[test]
fn the_checks_see_a_token_that_may_be_used_twice() {
    let mut story = Story::new();
    story.acquire_to_keep("a");
    let last = story.state.as_ref().expect("there is a state").last_token;
    let step = story.send(Operation::Revoke {
        origin: Simulation::session_id(9).request(2).into(),
        holder: holder("a"),
        cooling: None,
        reason: "".into(),
    });
    assert!(sees("P4, kept", &step, |step| after(step).last_token = last + 1));
}

#[test]
fn the_checks_see_that_a_permit_may_be_kept_while_others_need_it() {
    let mut story = Story::new();
    let step = story.acquire_to_keep("a");
    assert!(step.reply.keepable);
    assert!(sees("P22", &step, |step| after(step).kept_until_ms -= 1));
    let idle = story.send(Operation::Renew(Vec::new()));
    assert!(sees("P22", &idle, |step| after(step).kept_until_ms -= 1));
    assert!(sees("P22", &step, |step| after(step).paused_until_ms = PAUSED));
    assert!(sees("P22", &step, |step| after(step).closed = Some("".into())));
    assert!(sees("P22", &step, |step| after(step).recovering_until_ms = u64::MAX));
    assert!(sees("P22", &step, |step| after(step).limit = 0));
    let waiter = story.acquire(&["b", "c"]);
    assert!(sees("P22", &waiter, |step| step.reply.keepable = true));
    let mut story = Story::new();
    story.acquire_to_keep("a");
    story.acquire(&["b"]);
    let mut request = request("c", 3_000);
    request.wait = false;
    let tried = story.send(Operation::Acquire { queue_max: 9, requests: vec![request] });
    let refuses = |step: &mut Step| {
        step.reply.answers = Answers::Acquire(vec![AcquireOutcome::Refused(Refusal::NoPermits)]);
        step.after = step.before.clone();
    };
    assert!(sees("P22", &tried, refuses));
}
