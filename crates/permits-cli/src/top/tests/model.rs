//! Effects of the store's answers, and the queries.

use std::time::{Duration, Instant};

use crossterm::event::KeyCode;
use permits::{AdminError, StoreError};

use super::super::fetch::{Listing, Query, Snapshot};
use super::super::model::Model;
use super::{detail, drawn, holder, listing, opened, overview, press, snapshot, types, waiter};
use crate::inspected::ListRow;

fn unreachable() -> AdminError {
    AdminError::Store(StoreError::Unreachable { reason: "it is gone".into() })
}

#[test]
fn only_visible_rows_are_fetched() {
    let all: Vec<String> = (0..5000).map(|number| format!("semaphore {number:04}")).collect();
    let mut model = Model::new("memory:".into(), None, Instant::now());
    assert_eq!(model.query(), Query::Rows(Vec::new()));
    model.on_listed(Ok(Listing { names: all.clone(), ..Listing::default() }), Instant::now());
    let rows_of = |model: &mut Model, height| {
        drawn(model, 80, height, Instant::now());
        let Query::Rows(rows) = model.query() else { panic!("it is the overview") };
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
        model.on_listed(Ok(listing(list)), now);
        drawn(&mut model, 80, 24, now);
        assert_eq!(model.selected(), Some(expected), "{list:?}");
    }

    // A waiter whose place changes, and that is granted.
    let mut model = opened(detail(), now);
    types(&mut model, "jj");
    let mut later = detail();
    later.waiters.insert(0, waiter("web-0", 0));
    later.holders.remove(0);
    let mut granted = detail();
    granted.waiters.clear();
    granted.holders[0] = holder("web-3", 1, 0);
    for inspection in [later, granted] {
        model.on_snapshot(snapshot("exports", inspection), now);
        assert!(drawn(&mut model, 80, 24, now).iter().any(|row| row.starts_with("> web-3")));
    }
}

#[test]
fn an_answer_about_another_screen_is_ignored() {
    let now = Instant::now();
    let mut model = overview(&["exports", "imports"], now);
    press(&mut model, KeyCode::Enter);
    model.on_snapshot(snapshot("imports", detail()), now);
    model.on_snapshot(Snapshot::Rows(vec![("exports".into(), Err(unreachable()))]), now);
    assert!(model.opened.as_ref().is_some_and(|opened| opened.detail.is_none()));
    assert!(model.rows.get("exports").is_some_and(Result::is_ok));
    assert_eq!(model.query(), Query::Detail("exports".into()));
    // Old rows are not shown on going back.
    press(&mut model, KeyCode::Esc);
    assert_eq!((model.selected(), model.rows.len()), (Some("exports"), 0));
}

#[test]
fn old_data_is_marked_with_its_age() {
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    let mut model = Model::new("memory:".into(), Some("exports".into()), start);
    assert_eq!(model.staleness(at(2)), None);
    assert_eq!(model.staleness(at(3)).as_deref(), Some("the store does not answer"));
    model.on_snapshot(snapshot("exports", detail()), at(10));
    assert_eq!(model.staleness(at(12)), None);
    assert_eq!(model.staleness(at(75)).as_deref(), Some("as of 1 m 5 s ago: the store does not answer"));
    model.on_snapshot(Snapshot::Failed(unreachable()), at(11));
    let text = "as of 1.0 s ago: the store cannot be reached: it is gone";
    assert_eq!(model.staleness(at(11)).as_deref(), Some(text));
    model.on_snapshot(snapshot("exports", detail()), at(12));
    assert_eq!(model.staleness(at(12)), None);
}

#[test]
fn a_failed_list_is_shown_in_the_overview_only() {
    let now = Instant::now();
    let mut model = opened(detail(), now);
    model.on_listed(Err(unreachable()), now);
    assert_eq!(model.staleness(now), None);
    press(&mut model, KeyCode::Esc);
    assert_eq!(model.staleness(now), Some(unreachable().to_string()));
    model.on_listed(Ok(listing(&[])), now);
    assert_eq!(model.staleness(now), None);
}

/// A list: the held units, the waiters, and the seconds of the longest wait.
fn counted(rows: &[(&str, u64, u64, u64)]) -> Listing {
    let counts = rows.iter().map(|&(name, held, waiting, waited)| {
        let oldest_waiter_age_ms = (waiting > 0).then_some(waited * 1000);
        (name.to_owned(), ListRow { held, waiting, oldest_waiter_age_ms, ..ListRow::default() }.ranked())
    });
    let mut names: Vec<String> = rows.iter().map(|row| row.0.to_owned()).collect();
    names.sort();
    Listing { names, rows: counts.collect() }
}

const ROWS: &[(&str, u64, u64, u64)] = &[("a", 1, 0, 0), ("b", 0, 0, 0), ("c", 1, 5, 2), ("d", 7, 1, 9)];

#[test]
fn rows_are_sorted_and_the_marker_stays_with_the_name() {
    let now = Instant::now();
    let mut model = overview(&["a", "b", "c", "d"], now);
    types(&mut model, "j");
    for expected in [
        ["d", "c", "a", "b"],
        ["a", "b", "c", "d"],
        ["d", "a", "c", "b"],
        ["c", "d", "a", "b"],
        ["d", "c", "a", "b"],
    ] {
        model.on_listed(Ok(counted(ROWS)), now);
        drawn(&mut model, 80, 24, now);
        assert_eq!((model.shown().collect::<Vec<_>>(), model.selected()), (expected.into(), Some("b")));
        types(&mut model, "s");
    }
    // The numbers change, and the marker moves along, by held.
    types(&mut model, "ss");
    model.on_listed(Ok(counted(&[("a", 1, 0, 0), ("b", 9, 0, 0)])), now);
    assert_eq!((model.shown().collect::<Vec<_>>(), model.selected()), (vec!["b", "a"], Some("b")));
}

#[test]
fn idle_semaphores_are_hidden_and_counted() {
    let now = Instant::now();
    let mut model = overview(&["a", "b", "c", "d"], now);
    types(&mut model, "jb");
    let mut list = counted(ROWS);
    list.names.push("foreign".into());
    model.on_listed(Ok(list), now);
    assert!(model.shown().eq(["d", "c", "foreign", "a"]), "one that cannot be read may be in use");
    let title = drawn(&mut model, 100, 24, now)[0].clone();
    assert_eq!(title, "permits top: 5 semaphores by need, 2 with waiters, 1 idle hidden (memory:)");
    let Query::Rows(asked) = model.query() else { panic!("it is the overview") };
    assert!(!asked.contains(&"b".to_owned()), "{asked:?}");
    model.on_listed(Ok(counted(&[("b", 0, 0, 0)])), now);
    assert!(drawn(&mut model, 80, 24, now)[1].starts_with("no semaphore is in use (b shows all)"));
    // The list alone shows that the store answers, since nothing else is fetched.
    model.on_listed(Ok(counted(&[("b", 0, 0, 0)])), now + Duration::from_secs(60));
    assert_eq!(model.staleness(now + Duration::from_secs(61)), None);
    types(&mut model, "b");
    assert_eq!((model.shown().collect::<Vec<_>>(), model.hidden()), (vec!["b"], 0));
}
