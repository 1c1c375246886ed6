//! Changes by operators: remembered for operators to read, and for changes that are sent again.

use permits_core::model::PAUSED;
use permits_core::protocol::{
    Answers, ChangeEffect, ChangeOrigin, ChangeRecord, Label, LimitChange, Operation, SetOutcome,
};

use crate::fixture::{Both, acquire, change_limit, close_line, holder, id, pause, release};

/// The changes that an inspection lists, the newest first.
fn listed(both: &mut Both, max: u32) -> Vec<ChangeRecord> {
    let Answers::Inspect(found) = both.same(&Operation::Inspect { max }) else { unreachable!() };
    found.changes
}

/// Sets a limit, by the request of this number.
fn changed(both: &mut Both, number: u32) -> Answers {
    both.same(&change_limit(&format!("l{number}"), LimitChange::Set(10 + number)))
}

fn done(limit: u32, version: u64) -> Answers {
    Answers::Set(SetOutcome::Done { limit, version })
}

#[test]
fn a_change_that_may_be_sent_again_is_remembered_whatever_follows() {
    let mut both = Both::start();
    for number in 0..256 {
        assert_eq!(changed(&mut both, number), done(10 + number, u64::from(number) + 1));
    }
    assert_eq!(changed(&mut both, 0), done(10, 1), "255 have followed, and it is remembered");
    changed(&mut both, 256);
    assert_eq!(
        changed(&mut both, 0),
        done(10, 258),
        "the 257th before the last is forgotten, and made again"
    );
}

#[test]
fn the_last_changes_are_remembered_and_earlier_ones_are_made_again() {
    let mut both = Both::start();
    for number in 0..=32 {
        changed(&mut both, number);
    }
    let (minute, last) = (60_000_000, both.now_us);
    both.set_time(last + minute - 1);
    assert_eq!(changed(&mut both, 33), done(43, 34));
    assert_eq!(changed(&mut both, 0), done(10, 1), "it is younger than a minute");
    both.set_time(last + minute);
    assert_eq!(changed(&mut both, 34), done(44, 35), "what is older is forgotten now");
    assert_eq!(changed(&mut both, 3), done(13, 4), "the 32nd before the last is remembered");
    assert_eq!(changed(&mut both, 2), done(12, 36), "the one before is forgotten, and made again");
}

#[test]
fn the_last_change_of_each_part_is_remembered_whatever_follows() {
    let mut both = Both::start();
    both.same(&acquire(&["a"]));
    let revoke = |request: &str, name: &str| Operation::Revoke {
        origin: ChangeOrigin { request: id(request), by: Label::new("me, 100 %").expect("it is valid") },
        holder: holder(name),
        cooling: None,
        reason: "late".into(),
    };
    both.same(&revoke("r1", "a"));
    both.same(&pause("p1", true));
    both.same(&close_line("c1", Some("moved")));
    for number in 0..40 {
        both.same(&change_limit(&format!("l{number}"), LimitChange::Set(10 + number)));
    }
    both.set_time(both.now_us + 60_000_000);
    both.same(&change_limit("l40", LimitChange::Set(9)));
    let changes = listed(&mut both, 1000);
    assert_eq!(changes.len(), 32);
    assert_eq!(changes[0].effect, ChangeEffect::Limit { limit: 9, version: 42 });
    let [closed, paused, revoked] = &changes[29..] else { unreachable!("there are 32") };
    assert_eq!(closed.effect, ChangeEffect::Close("moved".into()));
    assert_eq!(paused.effect, ChangeEffect::Pause { until_ms: PAUSED, reason: "".into() });
    let (waited, reason) = (false, "late".into());
    assert_eq!(revoked.effect, ChangeEffect::Revoke { holder: holder("a"), waited, reason });
    assert_eq!(revoked.origin.by.as_str(), "me, 100 %");
    let parts = [&changes[..1], &changes[29..]].concat();
    assert_eq!(listed(&mut both, 1), parts);
    assert_eq!(listed(&mut both, 2), [&changes[..2], &changes[29..]].concat());
    assert_eq!(listed(&mut both, 0), []);
}

#[test]
fn a_change_without_an_effect_is_not_remembered() {
    let mut both = Both::start();
    both.same(&acquire(&["a"]));
    both.same(&pause("p1", false));
    both.same(&close_line("c1", None));
    both.same(&change_limit("l1", LimitChange::Unpin));
    assert_eq!(listed(&mut both, 9), []);
    both.same(&pause("p2", true));
    both.same(&pause("p3", true));
    let requests: Vec<_> = listed(&mut both, 9).into_iter().map(|change| change.origin.request).collect();
    assert_eq!(requests, [id("p2")]);
}

#[test]
fn a_pause_or_a_closing_that_is_sent_again_does_not_undo_a_later_change() {
    let mut both = Both::start();
    both.same(&acquire(&["a"]));
    for (request, paused) in [("p1", true), ("p2", false), ("p1", true)] {
        both.same(&pause(request, paused));
    }
    for (request, reason) in [("c1", Some("moved")), ("c2", None), ("c1", Some("moved"))] {
        both.same(&close_line(request, reason));
    }
    let Answers::Inspect(found) = both.same(&Operation::Inspect { max: 9 }) else { unreachable!() };
    assert_eq!((found.paused, found.closed), (None, None));
    both.same(&release("a"));
}
