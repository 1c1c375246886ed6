//! What answers of the store do, and what it is asked.

use std::time::{Duration, Instant};

use crossterm::event::KeyCode;
use permits::{AdminError, StoreError};

use super::super::deed::{Action, Deed};
use super::super::model::{Looked, Model, Note, Wanted};
use super::{detail, drawn, names, opened, overview, press, types, waiter};

fn unreachable() -> AdminError {
    AdminError::Store(StoreError::Unreachable { reason: "it is gone".into() })
}

#[test]
fn only_what_is_on_the_screen_is_asked_for() {
    let all: Vec<String> = (0..5000).map(|number| format!("semaphore {number:04}")).collect();
    let mut model = Model::new("memory:".into(), None, Instant::now());
    assert_eq!(model.wanted(), Wanted::Rows(Vec::new()));
    model.on_listed(Ok(all.clone()), Instant::now());
    let rows_of = |model: &mut Model, height| {
        drawn(model, 80, height, Instant::now());
        let Wanted::Rows(rows) = model.wanted() else { panic!("it is the overview") };
        rows
    };
    // A title, a heading, and the keys.
    assert_eq!(rows_of(&mut model, 24), all[..21]);
    press(&mut model, KeyCode::End);
    assert_eq!(rows_of(&mut model, 24), all[4979..]);
    types(&mut model, "/0042");
    assert_eq!(rows_of(&mut model, 24), ["semaphore 0042"]);
    press(&mut model, KeyCode::Esc);
    assert_eq!(rows_of(&mut model, 1000).len(), 300, "however high the screen");
}

#[test]
fn the_marker_stays_with_the_name() {
    let now = Instant::now();
    let mut model = overview(&["b", "d"], now);
    types(&mut model, "j");
    for (list, expected) in
        [(&["a", "b", "c", "d"][..], "d"), (&["a", "d"], "d"), (&["a"], "a"), (&["a", "b"], "a")]
    {
        model.on_listed(Ok(names(list)), now);
        drawn(&mut model, 80, 24, now);
        assert_eq!(model.selected(), Some(expected), "{list:?}");
    }

    let mut model = opened(detail(), now);
    types(&mut model, "jj");
    let mut later = detail();
    later.waiters.insert(0, waiter("web-0", 0));
    later.holders.remove(0);
    model.on_looked(Looked::Detail("exports".into(), later), now);
    assert!(drawn(&mut model, 80, 24, now).iter().any(|row| row.starts_with("> web-3")));
}

#[test]
fn who_waited_and_holds_now_keeps_the_marker() {
    let now = Instant::now();
    let mut model = opened(detail(), now);
    types(&mut model, "jj");
    let mut later = detail();
    later.waiters.clear();
    later.holders[0] = super::holder("web-3", 1, 0);
    model.on_looked(Looked::Detail("exports".into(), later), now);
    assert!(drawn(&mut model, 80, 24, now).iter().any(|row| row.starts_with("> web-3")));
}

#[test]
fn an_answer_about_another_screen_is_ignored() {
    let now = Instant::now();
    let mut model = overview(&["exports", "imports"], now);
    press(&mut model, KeyCode::Enter);
    model.on_looked(Looked::Detail("imports".into(), detail()), now);
    model.on_looked(Looked::Rows(vec![("exports".into(), Err(unreachable()))]), now);
    assert!(model.opened.as_ref().is_some_and(|opened| opened.detail.is_none()));
    assert!(model.rows.get("exports").is_some_and(Result::is_ok));
    assert_eq!(model.wanted(), Wanted::Detail("exports".into()));
}

#[test]
fn numbers_from_before_are_not_shown_on_coming_back() {
    let mut model = overview(&["exports", "imports"], Instant::now());
    types(&mut model, "j");
    press(&mut model, KeyCode::Enter);
    press(&mut model, KeyCode::Esc);
    assert_eq!((model.selected(), model.selected_counts()), (Some("imports"), None));
}

#[test]
fn an_old_picture_is_said_to_be_old() {
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    let trouble = |text: &str| vec![Note::Trouble(text.into())];
    let mut model = Model::new("memory:".into(), Some("exports".into()), start);
    assert_eq!(model.notes(at(2)), []);
    assert_eq!(model.notes(at(3)), trouble("the store does not answer"));
    model.on_looked(Looked::Detail("exports".into(), detail()), at(10));
    assert_eq!(model.notes(at(12)), []);
    assert_eq!(model.notes(at(75)), trouble("as of 1 m 5 s ago: the store does not answer"));
    model.on_looked(Looked::Failed(unreachable()), at(11));
    let text = "as of 1.0 s ago: the store cannot be reached: it is gone";
    assert_eq!(model.notes(at(11)), trouble(text));
    model.on_looked(Looked::Detail("exports".into(), detail()), at(12));
    assert_eq!(model.notes(at(12)), []);
}

#[test]
fn a_list_that_cannot_be_had_is_said_in_the_overview_alone() {
    let now = Instant::now();
    let mut model = opened(detail(), now);
    model.on_listed(Err(unreachable()), now);
    assert_eq!(model.notes(now), []);
    press(&mut model, KeyCode::Esc);
    assert_eq!(model.notes(now), [Note::Trouble(unreachable().to_string())]);
    model.on_listed(Ok(Vec::new()), now);
    assert_eq!(model.notes(now), []);
}

#[test]
fn what_has_come_of_an_action_is_said_until_the_next_key() {
    let now = Instant::now();
    let action = |deed| Action { semaphore: "exports".into(), deed };
    let revoke = action(Deed::Revoke("web-1".into(), true));
    for (action, result, expected) in [
        (action(Deed::SetLimit(3)), Ok(true), r#"the limit of "exports" is 3, and pinned"#),
        (revoke.clone(), Ok(true), r#"revoked "web-1""#),
        (revoke, Ok(false), r#""web-1" had nothing any more"#),
        (
            action(Deed::Pause),
            Err(unreachable()),
            r#"could not pause "exports": the store cannot be reached: it is gone"#,
        ),
    ] {
        let mut model = opened(detail(), now);
        model.on_acted(&action, result);
        model.on_warning("the line is slow".into());
        let expected = [Note::Warning("the line is slow".into()), Note::Message(expected.into())];
        assert_eq!(model.notes(now), expected);
        types(&mut model, "j");
        assert_eq!(model.notes(now), []);
    }
}
