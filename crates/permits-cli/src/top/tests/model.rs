//! Effects of the store's answers, and the queries.

use std::time::{Duration, Instant};

use crossterm::event::KeyCode;
use permits::{AdminError, StoreError};

use super::super::model::{Model, Note};
use super::super::snapshot::{Listing, Query, Snapshot};
use super::{detail, drawn, listing, opened, overview, press, snapshot, types, waiter};
use crate::inspected::ListRow;

fn unreachable() -> AdminError {
    AdminError::Store(StoreError::Unreachable { reason: "it is gone".into() })
}

/// The notes apart from the commands.
fn notes(model: &Model, now: Instant) -> Vec<Note> {
    model.notes(now).into_iter().filter(|note| !matches!(note, Note::Commands(_))).collect()
}

#[test]
fn only_visible_rows_are_fetched() {
    let all: Vec<String> = (0..5000).map(|number| format!("semaphore {number:04}")).collect();
    let mut model = Model::new("memory:".into(), None, Instant::now());
    assert_eq!(model.query(), Query::Rows(Vec::new()));
    model.on_listed(Ok(Listing { names: all.clone(), counts: None }), Instant::now());
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

    let mut model = opened(detail(), now);
    types(&mut model, "jj");
    let mut later = detail();
    later.waiters.insert(0, waiter("web-0", 0));
    later.holders.remove(0);
    model.on_snapshot(snapshot("exports", later), now);
    assert!(drawn(&mut model, 80, 24, now).iter().any(|row| row.starts_with("> web-3")));
}

#[test]
fn a_waiter_that_was_granted_keeps_the_marker() {
    let now = Instant::now();
    let mut model = opened(detail(), now);
    types(&mut model, "jj");
    let mut later = detail();
    later.waiters.clear();
    later.holders[0] = super::holder("web-3", 1, 0);
    model.on_snapshot(snapshot("exports", later), now);
    assert!(drawn(&mut model, 80, 24, now).iter().any(|row| row.starts_with("> web-3")));
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
}

#[test]
fn old_counts_are_not_shown_on_going_back() {
    let mut model = overview(&["exports", "imports"], Instant::now());
    types(&mut model, "j");
    press(&mut model, KeyCode::Enter);
    press(&mut model, KeyCode::Esc);
    assert_eq!((model.selected(), model.rows.len()), (Some("imports"), 0));
}

#[test]
fn old_data_is_marked_with_its_age() {
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    let stale = |text: &str| vec![Note::Stale(text.into())];
    let mut model = Model::new("memory:".into(), Some("exports".into()), start);
    assert_eq!(notes(&model, at(2)), []);
    assert_eq!(notes(&model, at(3)), stale("the store does not answer"));
    model.on_snapshot(snapshot("exports", detail()), at(10));
    assert_eq!(notes(&model, at(12)), []);
    assert_eq!(notes(&model, at(75)), stale("as of 1 m 5 s ago: the store does not answer"));
    model.on_snapshot(Snapshot::Failed(unreachable()), at(11));
    let text = "as of 1.0 s ago: the store cannot be reached: it is gone";
    assert_eq!(notes(&model, at(11)), stale(text));
    model.on_snapshot(snapshot("exports", detail()), at(12));
    assert_eq!(notes(&model, at(12)), []);
}

#[test]
fn a_failed_list_is_shown_in_the_overview_only() {
    let now = Instant::now();
    let mut model = opened(detail(), now);
    model.on_listed(Err(unreachable()), now);
    assert_eq!(notes(&model, now), []);
    press(&mut model, KeyCode::Esc);
    assert_eq!(notes(&model, now), [Note::Stale(unreachable().to_string())]);
    model.on_listed(Ok(listing(&[])), now);
    assert_eq!(notes(&model, now), []);
}

#[test]
fn messages_are_shown_until_the_next_key() {
    let mut model = opened(detail(), Instant::now());
    types(&mut model, "p");
    model.on_warning("the connection is slow".into());
    let [warning, message] = &notes(&model, Instant::now())[..] else { panic!("two notes") };
    assert_eq!(warning, &Note::Warning("the connection is slow".into()));
    assert!(matches!(message, Note::Message(_)), "{message:?}");
    types(&mut model, "j");
    assert_eq!(notes(&model, Instant::now()), []);
}

/// A list with counts: the held units, the waiters, and the seconds of the longest wait.
fn counted(rows: &[(&str, u64, u64, u64)]) -> Listing {
    let counts = rows.iter().map(|&(name, held, waiting, waited)| {
        let oldest_waiter_age_ms = (waiting > 0).then_some(waited * 1000);
        (name.to_owned(), ListRow { held, waiting, oldest_waiter_age_ms, ..ListRow::default() }.ranked())
    });
    let mut names: Vec<String> = rows.iter().map(|row| row.0.to_owned()).collect();
    names.sort();
    Listing { names, counts: Some(counts.collect()) }
}

const ROWS: &[(&str, u64, u64, u64)] = &[("a", 1, 0, 0), ("b", 0, 0, 0), ("c", 1, 5, 2), ("d", 7, 1, 9)];

#[test]
fn rows_are_sorted_and_the_marker_stays_with_the_name() {
    let now = Instant::now();
    let mut model = overview(&["a", "b", "c", "d"], now);
    types(&mut model, "j");
    assert!(model.needs_counts() && model.shown().eq(["a", "b", "c", "d"]), "until there are counts");
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
    // A list from before they were needed leaves the order.
    model.on_listed(Ok(listing(&["a", "b"])), now);
    assert!(model.shown().eq(["b", "a"]));
}

#[test]
fn what_needs_a_look_comes_first() {
    let now = Instant::now();
    let mut model = overview(&["foreign"], now);
    let mut listing =
        counted(&[("busy", 4, 0, 0), ("idle", 0, 0, 0), ("long", 4, 1, 70), ("quick", 4, 9, 0)]);
    let stopped = |paused, waiting| {
        ListRow { paused, waiting, closed: Some("moved".into()), ..ListRow::default() }.ranked()
    };
    let more = [("stuck", stopped(true, 1)), ("closed", stopped(false, 0))];
    listing.counts.as_mut().expect("counts").extend(more.map(|(name, row)| (name.to_owned(), row)));
    listing.names.extend(["closed", "foreign", "stuck"].map(str::to_owned));
    listing.names.sort();
    model.on_listed(Ok(listing), now);
    let shown: Vec<_> = model.shown().collect();
    assert_eq!(
        shown,
        ["stuck", "long", "foreign", "closed", "busy", "quick", "idle"],
        "what cannot be read, behind what waits"
    );
    assert_eq!(model.summary(), Some((3, 2, Some(Duration::from_secs(70)))));
}

#[test]
fn idle_semaphores_are_hidden_and_counted() {
    let now = Instant::now();
    let mut model = overview(&["a", "b", "c", "d"], now);
    types(&mut model, "jb");
    assert_eq!((model.shown().count(), model.hidden()), (0, None), "until there are counts");
    assert!(drawn(&mut model, 80, 24, now)[1].starts_with("asking the store"));
    model.on_listed(Ok(counted(ROWS)), now);
    assert_eq!((model.shown().collect::<Vec<_>>(), model.hidden()), (vec!["d", "c", "a"], Some(1)));
    let title = drawn(&mut model, 100, 24, now)[0].clone();
    assert!(
        title.starts_with(
            "permits top: 4 semaphores by need, 2 with waiters, longest wait 9.0 s, 1 idle hidden"
        ),
        "{title}"
    );
    let Query::Rows(asked) = model.query() else { panic!("it is the overview") };
    assert_eq!(asked, ["d", "c", "a"]);
    // A semaphore without counts may be in use.
    let mut unknown = counted(ROWS);
    unknown.names.push("foreign".into());
    model.on_listed(Ok(unknown), now);
    assert!(model.shown().any(|name| name == "foreign"));
    model.on_listed(Ok(counted(&[("b", 0, 0, 0)])), now);
    assert!(drawn(&mut model, 80, 24, now)[1].starts_with("no semaphore is in use (b shows all)"));
    // There is nothing to fetch: the list shows that the store answers.
    model.on_listed(Ok(counted(&[("b", 0, 0, 0)])), now + Duration::from_secs(60));
    assert_eq!(notes(&model, now + Duration::from_secs(61)), []);
    types(&mut model, "b");
    assert_eq!((model.shown().collect::<Vec<_>>(), model.hidden()), (vec!["b"], None));
}
