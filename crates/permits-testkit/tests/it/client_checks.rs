//! The checks of the clients' events find every violation, and report no other.

use permits_testkit::history::client_checks::{
    Granted, check_bound, check_lanes, check_queue_order, check_slots, check_tokens,
};
use permits_testkit::history::{ClientEvent, ClientRecord, History, Violation, verify};

fn granted(token: u64, slot: u32, acquired: u64, until: u64) -> Granted {
    Granted {
        worker: 0,
        tag: token.to_string(),
        weight: 1,
        semaphore: String::new(),
        lane: None,
        token,
        slot,
        again: false,
        asked: acquired - 1,
        enqueued: None,
        acquired,
        until,
        releasing: None,
        lost: None,
    }
}

/// The rule that is violated.
fn rule(verdict: Result<(), Violation>) -> &'static str {
    verdict.expect_err("the history has a violation").rule
}

/// Two clients share a unit, one after the other, and are closed: a sound history.
fn sound() -> History {
    let mut history = History::default();
    let mut note = |at, worker, what| history.note_at(at, worker, "a", what);
    note(10, 1, ClientEvent::Asked { weight: 1 });
    note(20, 1, ClientEvent::Acquired { token: 7, slot: 0, until: 1000, again: false });
    note(30, 2, ClientEvent::Asked { weight: 1 });
    note(40, 2, ClientEvent::Enqueued);
    note(50, 1, ClientEvent::Held { until: 1050 });
    note(60, 1, ClientEvent::Releasing);
    note(60, 2, ClientEvent::Acquired { token: 9, slot: 0, until: 1000, again: false });
    note(70, 1, ClientEvent::Released(Ok(())));
    note(1000, 2, ClientEvent::NotHeld);
    note(1010, 2, ClientEvent::Lost("late".to_owned()));
    note(1020, 1, ClientEvent::Closed(Ok(())));
    note(1030, 2, ClientEvent::Closed(Ok(())));
    history
}

/// The verdict on the sound history with one event changed.
fn changed(number: usize, change: impl FnOnce(&mut ClientRecord)) -> &'static str {
    let mut history = sound();
    change(&mut history.events[number].1);
    rule(verify(&history, 1))
}

/// The verdict on the sound history with one event more.
fn added(at: u64, worker: usize, tag: &str, what: ClientEvent) -> &'static str {
    let mut history = sound();
    history.note_at(at, worker, tag, what);
    rule(verify(&history, 1))
}

#[test]
fn a_sound_history_passes() {
    assert_eq!(verify(&sound(), 1), Ok(()));
    assert_eq!(verify(&History::default(), 1), Ok(()));
}

#[test]
fn one_microsecond_too_early_is_found() {
    assert_eq!(changed(6, |event| event.at = 59), "P2");
    assert_eq!(changed(5, |event| event.at = 61), "P2");
}

#[test]
fn one_unit_too_many_is_found() {
    assert_eq!(changed(2, |event| event.event = ClientEvent::Asked { weight: 2 }), "P2");
    let fine = [granted(1, 0, 10, 20), granted(2, 1, 15, 30), granted(3, 0, 20, 40)];
    assert_eq!(check_bound(&fine, 2), Ok(()));
    let mut mutant = fine.to_vec();
    mutant.push(granted(4, 1, 29, 50));
    assert_eq!(rule(check_bound(&mutant, 2)), "P2");
    mutant[1].releasing = Some(29);
    assert_eq!(check_bound(&mutant, 2), Ok(()));
    mutant.push(granted(5, 1, 35, 35));
    assert_eq!(check_bound(&mutant, 2), Ok(()), "never held by its own report");
    mutant[2].weight = 2;
    assert_eq!(rule(check_bound(&mutant, 2)), "P2");
}

#[test]
fn a_permit_ends_with_the_first_of_release_loss_and_deadline() {
    let mut history = History::default();
    history.note_at(1, 0, "a", ClientEvent::Asked { weight: 3 });
    history.note_at(2, 0, "a", ClientEvent::Acquired { token: 7, slot: 1, until: 100, again: false });
    history.note_at(3, 1, "a", ClientEvent::Asked { weight: 1 });
    let only = |history: &History| history.grants()[0].clone();
    assert_eq!((history.grants().len(), only(&history).asked, only(&history).weight), (1, 1, 3));
    assert_eq!(only(&history).end(), 100);
    history.note_at(50, 0, "a", ClientEvent::Held { until: 150 });
    assert_eq!(only(&history).end(), 150);
    history.note_at(160, 0, "a", ClientEvent::Lost("why".to_owned()));
    assert_eq!(only(&history).end(), 150, "signalled late, it was not held in between");
    history.note_at(120, 0, "a", ClientEvent::NotHeld);
    assert_eq!(only(&history).end(), 120);
    history.note_at(110, 0, "a", ClientEvent::Releasing);
    assert_eq!(only(&history).end(), 110);
}

#[test]
fn tokens_that_fall_or_repeat_are_found() {
    assert_eq!(
        changed(6, |event| event.event =
            ClientEvent::Acquired { token: 7, slot: 0, until: 1000, again: false }),
        "P4"
    );
    let fine = [granted(1, 0, 10, 20), granted(2, 1, 15, 30), granted(3, 0, 20, 40)];
    assert_eq!(check_tokens(&fine), Ok(()));
    assert_eq!(rule(check_tokens(&[granted(2, 0, 10, 20), granted(1, 1, 15, 30)])), "P4");
    let mut side_by_side = [granted(2, 0, 10, 20), granted(1, 1, 15, 30)];
    side_by_side[1].asked = 9;
    assert_eq!(check_tokens(&side_by_side), Ok(()), "their order is not known");
    let late = [granted(9, 0, 10, 20), granted(3, 1, 11, 20), granted(5, 0, 40, 50)];
    assert_eq!(rule(check_tokens(&late)), "P4", "the highest counts, not the last");
}

/// Out of what a client keeps in a slot come the next tokens, while the store grants other slots.
#[test]
fn tokens_of_kept_permits_that_fall_or_repeat_within_a_slot_are_found() {
    let again =
        |token, slot, acquired| Granted { again: true, ..granted(token, slot, acquired, acquired + 2) };
    let fine = [granted(1, 0, 10, 12), granted(5, 1, 13, 30), again(2, 0, 20), again(5, 0, 25)];
    assert_eq!(check_tokens(&fine), Ok(()));
    let with = |last| rule(check_tokens(&[&fine[..], &[last]].concat()));
    assert_eq!(with(again(5, 0, 40)), "P4", "once more");
    assert_eq!(with(again(4, 0, 40)), "P4");
    assert_eq!(with(granted(5, 0, 40, 50)), "P4", "by the store, in place of a higher one");
    assert_eq!(with(granted(4, 2, 40, 50)), "P4", "below an earlier grant of the store");
}

#[test]
fn slots_shared_or_without_rising_tokens_are_found() {
    let fine = [granted(1, 0, 10, 20), granted(2, 1, 15, 30), granted(3, 0, 20, 40)];
    assert_eq!(check_slots(&fine, 2), Ok(()));
    assert_eq!(rule(check_slots(&fine, 1)), "slots");
    assert_eq!(rule(check_slots(&[granted(1, 0, 10, 20), granted(2, 0, 19, 30)], 2)), "slots");
    // The requests overlap, so only the slot shows the violation.
    let mut sinks = [granted(2, 0, 10, 20), granted(1, 0, 25, 30)];
    sinks[1].asked = 9;
    assert_eq!(check_tokens(&sinks), Ok(()));
    assert_eq!(rule(check_slots(&sinks, 2)), "slots");
    assert_eq!(
        changed(6, |event| event.event =
            ClientEvent::Acquired { token: 9, slot: 1, until: 1000, again: false }),
        "slots"
    );
}

#[test]
fn an_overtaken_waiter_is_found() {
    let mut waiting = [granted(5, 0, 30, 40), granted(4, 0, 20, 25)];
    (waiting[0].asked, waiting[1].asked) = (10, 15);
    assert_eq!(check_queue_order(&waiting), Ok(()), "not seen in the queue");
    waiting[0].enqueued = Some(14);
    assert_eq!(rule(check_queue_order(&waiting)), "P6");
    waiting[0].weight = 9;
    assert_eq!(rule(check_queue_order(&waiting)), "P6", "however heavy it is");
    waiting[0].enqueued = Some(15);
    assert_eq!(check_queue_order(&waiting), Ok(()), "seen when the other had asked");

    let mut history = History::default();
    for (at, worker) in [(10, 1), (20, 2)] {
        history.note_at(at, worker, "a", ClientEvent::Asked { weight: 1 });
        history.note_at(at + 1, worker, "a", ClientEvent::Enqueued);
    }
    history.note_at(30, 2, "a", ClientEvent::Acquired { token: 3, slot: 0, until: 40, again: false });
    history.note_at(50, 1, "a", ClientEvent::Acquired { token: 4, slot: 0, until: 60, again: false });
    assert_eq!(rule(verify(&history, 1)), "P6");
}

#[test]
fn work_behind_the_deadline_is_found() {
    assert_eq!(changed(4, |event| event.event = ClientEvent::Held { until: 50 }), "P3");
    assert_eq!(changed(4, |event| event.event = ClientEvent::Held { until: 49 }), "P3");
    assert_eq!(added(1015, 2, "a", ClientEvent::Held { until: 2000 }), "P3", "it rose from the dead");
}

#[test]
fn a_request_left_open_is_found() {
    assert_eq!(added(2000, 1, "b", ClientEvent::Asked { weight: 1 }), "served");
    let mut history = sound();
    history.note_at(2000, 3, "a", ClientEvent::Asked { weight: 1 });
    assert_eq!(verify(&history, 1), Ok(()), "who was killed is not");
    // A permit without a release, and a loss without a signal.
    for number in [7, 9] {
        let mut history = sound();
        history.events.remove(number);
        assert_eq!(rule(verify(&history, 1)), "served");
    }
}

#[test]
fn a_history_that_makes_no_sense_is_found() {
    for (what, tag) in [
        (ClientEvent::Acquired { token: 10, slot: 0, until: 5000, again: false }, "never-asked"),
        (ClientEvent::Acquired { token: 10, slot: 0, until: 5000, again: false }, "a"),
        (ClientEvent::Asked { weight: 1 }, "a"),
        (ClientEvent::Held { until: 5000 }, "never-asked"),
        (ClientEvent::Releasing, "never-asked"),
        (ClientEvent::Failed("why".to_owned()), "never-asked"),
        (ClientEvent::Enqueued, "never-asked"),
    ] {
        assert_eq!(added(2000, 1, tag, what.clone()), "form", "{what:?}");
    }
}

/// Three requests, of which the first holds: the second waits when the third is sent, and the third is
/// granted first.
fn overtaken(lanes: [&str; 3]) -> Vec<Granted> {
    let mut grants = vec![granted(7, 0, 10, 100), granted(9, 1, 60, 100), granted(8, 2, 50, 100)];
    (grants[1].asked, grants[1].enqueued, grants[2].asked) = (20, Some(30), 40);
    for (granted, lane) in grants.iter_mut().zip(lanes) {
        granted.lane = Some((lane.to_owned(), 1));
    }
    grants
}

#[test]
fn a_lane_is_in_order_and_keeps_its_limit() {
    assert_eq!(check_queue_order(&overtaken(["a", "b", "c"])), Ok(()));
    assert_eq!(rule(check_queue_order(&overtaken(["a", "b", "b"]))), "P6");
    assert_eq!(check_lanes(&overtaken(["a", "b", "c"])), Ok(()));
    assert_eq!(rule(check_lanes(&overtaken(["a", "a", "c"]))), "P25");
}
