//! The look of the screen.

use std::time::{Duration, Instant, SystemTime};

use crossterm::event::KeyCode;
use permits::{AdminError, ChangeInfo, Ended, Inspection, OperatorChange, StoreError};
use ratatui::style::{Color, Modifier};

use super::super::fetch::Snapshot;
use super::super::model::Model;
use super::{buffer, detail, drawn, opened, overview, press, types, waiter};
use crate::inspected::ListRow;
use crate::units::HeldUnits;

/// The overview with these rows.
fn with_rows(rows: &[(&str, ListRow)]) -> Model {
    let now = Instant::now();
    let mut model = overview(&Vec::from_iter(rows.iter().map(|row| row.0)), now);
    let rows = rows.iter().map(|(name, row)| ((*name).to_owned(), Ok(row.clone())));
    model.on_snapshot(Snapshot::Rows(rows.collect()), now);
    model
}

#[test]
fn the_overview_has_a_row_for_each_semaphore() {
    let now = Instant::now();
    let mut model = overview(&["exports", "imports", "migrations", "stray", "日本"], now);
    let foreign = StoreError::Rejected { reason: "no".into() };
    let row = |limit, held, waiting| ListRow { limit, held, waiting, ..ListRow::default() };
    let exports = ListRow { pinned: true, closed: Some("moved".into()), ..row(Some(4), 4, 12) };
    let imports = ListRow { paused: true, recovering_ms: 3000, ..row(Some(1), 0, 3) };
    let rows = [
        ("exports", Ok(ListRow { oldest_waiter_age_ms: Some(65_000), ..exports })),
        ("imports", Ok(ListRow { oldest_waiter_age_ms: Some(950), ..imports })),
        ("migrations", Ok(row(None, 0, 0))),
        ("stray", Err(AdminError::Store(foreign))),
    ];
    let rows = rows.into_iter().map(|(name, row)| (name.to_owned(), row));
    model.on_snapshot(Snapshot::Rows(rows.collect()), now);
    let expected = [
        "permits top: 5 semaphores by need (memory:)",
        "  SEMAPHORE   HELD  LIMIT  WAITING   WAITED  STATE",
        "> exports        4      4       12  1 m 5 s  limit pinned, CLOSED (moved)",
        "  imports        0      1        3    0.9 s  PAUSED, recovering for 3.0 s",
        "  migrations     0      -        0           not in use, no limit",
        "  stray                                      UNREADABLE: the store rejected t…",
        "  日本           …",
        "",
        "q quit  ? help  Enter open  s sort  b busy  / filter",
    ];
    assert_eq!(drawn(&mut model, 78, 9, now), expected);
}

#[test]
fn a_row_has_the_colour_of_the_longest_wait() {
    let row = |held, wait: Option<u64>| {
        let (waiting, oldest_waiter_age_ms) = (u64::from(wait.is_some()), wait);
        ListRow { limit: Some(4), held, waiting, oldest_waiter_age_ms, ..ListRow::default() }.ranked()
    };
    let waits = [("a", None), ("b", Some(9_999)), ("c", Some(10_000)), ("d", Some(60_000))];
    let rows: Vec<_> = waits.map(|(name, wait)| (name, row(4, wait))).into_iter().collect();
    let mut model = with_rows(&[&rows[..], &[("e", row(0, None))]].concat());
    let screen = buffer(&mut model, 78, 9, true, Instant::now());
    let style = |line: u16| (screen[(2, line)].fg, screen[(2, line)].modifier.contains(Modifier::DIM));
    let expected = [
        (Color::Reset, false),
        (Color::Reset, false),
        (Color::Yellow, false),
        (Color::Red, false),
        (Color::Reset, true),
    ];
    assert_eq!([2, 3, 4, 5, 6].map(style), expected, "full is healthy");
}

#[test]
fn an_opened_semaphore_is_shown_as_by_status() {
    let now = Instant::now();
    let (change, age) = (OperatorChange::LimitSet(3), Duration::from_secs(7200));
    let change = ChangeInfo { change, by: "alice@web".into(), at: SystemTime::UNIX_EPOCH, age };
    let mut model = opened(Inspection { changes: vec![change], ..detail() }, now);
    let expected = [
        "exports: 3 of 3 held, 1 waiting (memory:)",
        "  HOLDER  WEIGHT  SLOT             TOKEN   LEASE      AGE  LABEL",
        "> web-1        2     0  1700000000000000  14.2 s  1 h 2 m",
        "  web-2        1     2  1700000000000002  14.2 s  1 h 2 m",
        "",
        "  WAITER  WEIGHT  BEFORE    AGE  LABEL",
        "  web-3        1       0  7.0 s  nightly export",
        "",
        "  OPERATOR       AGE  LAST CHANGES",
        "  alice@web  2 h 0 m  set the limit to 3",
        "",
        "permits revoke exports web-1 · permits pause exports --for 10m",
        "permits limit exports 3 · permits close exports --reason ''",
        "q quit  ? help  ↑↓ select  Esc back",
    ];
    assert_eq!(drawn(&mut model, 70, 14, now), expected);
}

#[test]
fn a_long_line_scrolls_and_its_rest_is_counted() {
    let now = Instant::now();
    let waiters = (0..1000).map(|position| waiter(&format!("web-{position}"), position)).collect();
    let mut model = opened(Inspection { held: 2000, waiting: 1500, waiters, ..detail() }, now);
    let rows = drawn(&mut model, 70, 9, now);
    assert_eq!(rows[4], "  … and 1997 more units held by others");
    press(&mut model, KeyCode::End);
    let rows = drawn(&mut model, 70, 9, now);
    assert_eq!(rows[7], "> web-999       1     999  7.0 s  nightly export");
    types(&mut model, "k");
    assert!(drawn(&mut model, 70, 9, now)[6].starts_with("> web-998"));
}

#[test]
fn colour_carries_no_information_of_its_own() {
    let now = Instant::now();
    let mut model = with_rows(&[("exports", ListRow { paused: true, ..ListRow::default() })]);
    let error = AdminError::Store(StoreError::Unreachable { reason: "it is gone".into() });
    model.on_snapshot(Snapshot::Failed(error), now);
    model.warning = Some("the connection is slow".into());
    let coloured = buffer(&mut model, 80, 24, true, now);
    let plain = buffer(&mut model, 80, 24, false, now);
    let text = |buffer: &ratatui::buffer::Buffer| {
        buffer.content().iter().map(|cell| cell.symbol().to_owned()).collect::<String>()
    };
    assert_eq!(text(&coloured), text(&plain));
    assert!(text(&plain).contains("the connection is slow"));
    let is_coloured = |cell: &ratatui::buffer::Cell| (cell.fg, cell.bg) != (Color::Reset, Color::Reset);
    assert!(coloured.content().iter().any(is_coloured));
    assert!(!plain.content().iter().any(is_coloured));
    assert!(plain[(0, 2)].modifier.contains(Modifier::REVERSED) && plain[(0, 2)].symbol() == ">");
}

#[test]
fn no_size_is_too_small_or_too_large() {
    let now = Instant::now();
    let error =
        AdminError::Store(StoreError::Unreachable { reason: "it is gone, and has been for long".into() });
    let long = ["a".repeat(200), "日本".repeat(33)];
    for keys in ["", "?", "/a", "jjj"] {
        let with_notes = |mut model: Model| {
            model.on_snapshot(Snapshot::Failed(error.clone()), now);
            types(&mut model, keys);
            model.warning = Some("the connection is slow and the night is dark".into());
            model
        };
        let mut shown =
            [overview(&[], now), overview(&[&long[0], &long[1]], now), opened(detail(), now)].map(with_notes);
        for model in &mut shown {
            let widths = [0, 1, 2, 3, 5, 8, 12, 16, 20, 21, 30, 39, 45];
            let heights = [0, 1, 2, 3, 4, 5, 7, 12];
            for (width, height) in widths.into_iter().flat_map(|width| heights.map(|height| (width, height)))
            {
                let rows = drawn(model, width, height, now);
                assert!(rows.iter().all(|row| crate::text::width(row) <= width.into()), "{rows:?}");
            }
            drawn(model, 500, 200, now);
        }
    }
}

#[test]
fn a_command_is_whole_or_left_out() {
    let now = Instant::now();
    let mut labelled = detail();
    labelled.holders[0].holder = "vm:10273/oI-d0YHv9CdF.0".into();
    let mut model = opened(labelled, now);
    let revoke = "permits revoke exports vm:10273/oI-d0YHv9CdF.0";
    let has = |rows: &[String], text: &str| rows.iter().any(|row| row == text);
    assert!(has(&drawn(&mut model, 80, 24, now), &format!("{revoke} · permits pause exports --for 10m")));
    assert!(has(&drawn(&mut model, 60, 24, now), revoke));
    // A shell reads on behind a backslash.
    let rows = drawn(&mut model, 30, 24, now);
    assert!(
        rows.windows(2).any(|rows| rows == ["permits revoke exports \\", "vm:10273/oI-d0YHv9CdF.0"]),
        "{rows:#?}"
    );
    for (width, height) in [(24, 24), (30, 9)] {
        assert!(!drawn(&mut model, width, height, now).iter().any(|row| row.contains("permits ")), "{width}");
    }
    assert!(has(&drawn(&mut model, 24, 24, now), "a larger window shows t…"));
}

#[test]
fn the_filter_is_visible_on_the_smallest_screen() {
    let now = Instant::now();
    let mut model = overview(&["exports"], now);
    model.on_snapshot(Snapshot::Failed(AdminError::Ended(Ended::Closed)), now);
    types(&mut model, "/exp");
    let rows = drawn(&mut model, 20, 3, now);
    assert_eq!(rows.last().map(String::as_str), Some("names with: exp"), "{rows:?}");
}

#[test]
fn the_help_is_that_of_the_command_line() {
    let now = Instant::now();
    let mut model = overview(&["exports"], now);
    types(&mut model, "?");
    let rows = drawn(&mut model, 80, 24, now);
    for line in crate::help::TOP_KEYS.lines() {
        assert!(rows.iter().any(|row| row == line), "{line:?}");
    }
}

#[test]
fn the_state_is_visible_at_every_width() {
    let now = Instant::now();
    let plain = ListRow { limit: Some(4), held: 3, waiting: 2, ..ListRow::default() };
    let all = ListRow { paused: true, recovering_ms: 3000, pinned: true, closed: Some("x".into()), ..plain };
    let mut model = with_rows(&[("exports", all)]);
    for (width, state) in [
        (100, "PAUSED, recovering for 3.0 s, limit pinned, CLOSED (x)"),
        (76, "PAUSED recovering pinned CLOSED"),
        (40, "PRLC"),
        (20, "PRLC"),
    ] {
        let rows = drawn(&mut model, width, 24, now);
        let row = rows.iter().find(|row| row.starts_with('>')).expect("it is selected");
        assert!(row.ends_with(&format!("  {state}")), "{width}: {row}");
    }
}

#[test]
fn units_that_cool_are_not_shown_as_held_and_those_that_may_be_kept_are() {
    let units = |cooling, may_be_kept, is_partial| HeldUnits { cooling, may_be_kept, is_partial };
    let row = |units| ListRow { limit: Some(20), held: 20, units, ..ListRow::default() };
    let rows = [("all", row(units(0, 17, true))), ("rate", row(units(20, 0, false)))];
    let mut model = with_rows(&[&rows[..], &[("some", row(units(3, 17, false)))]].concat());
    assert_eq!(
        drawn(&mut model, 80, 24, Instant::now())[2..5],
        [
            "> all          20     20        0          17+ may be kept",
            "  rate          0     20        0          cooling 20",
            "  some         17     20        0          cooling 3, 17 may be kept",
        ]
    );
}
