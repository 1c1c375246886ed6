//! Changes by operators that are sent again.

use permits::protocol::{Answers, LimitChange, LimitOutcome};

use crate::fixture::{Both, change_limit};

#[test]
fn the_last_changes_are_remembered_and_earlier_ones_are_made_again() {
    let mut both = Both::start();
    let changed = |both: &mut Both, number: u32| {
        both.same(&change_limit(&format!("l{number}"), LimitChange::Set(10 + number)))
    };
    for number in 0..=32 {
        changed(&mut both, number);
    }
    let done = |limit, version| Answers::SetLimit(LimitOutcome::Done { limit, version });
    assert_eq!(changed(&mut both, 1), done(11, 2), "the 32nd before the last is remembered");
    assert_eq!(changed(&mut both, 32), done(42, 33));
    assert_eq!(changed(&mut both, 0), done(10, 34), "the one before is forgotten, and made again");
    assert_eq!(changed(&mut both, 1), done(11, 35), "and now the next one is forgotten too");
}
