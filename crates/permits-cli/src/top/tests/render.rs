//! The look of the screen.

use std::time::{Duration, Instant, SystemTime};

use crossterm::event::KeyCode;
use permits::{AdminError, ChangeInfo, Counts, Ended, Inspection, LaneInfo, OperatorChange, StoreError};
use ratatui::style::{Color, Modifier};

use super::super::model::Model;
use super::super::snapshot::Snapshot;
use super::{buffer, detail, drawn, opened, overview, press, types, waiter};
use crate::inspected::ListRow;
use crate::units::HeldUnits;

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
fn a_wide_screen_shows_the_oldest_holder() {
    let now = Instant::now();
    let mut model = overview(&["exports"], now);
    let row = ListRow {
        held: 4,
        limit: Some(4),
        paused: true,
        oldest_holder: Some("nightly".into()),
        oldest_holder_age_ms: Some(65_000),
        ..ListRow::default()
    };
    model.on_snapshot(Snapshot::Rows(vec![("exports".into(), Ok(row))]), now);
    assert!(drawn(&mut model, 140, 9, now)[2].ends_with("  PAUSED; held by \"nightly\" for 1 m 5 s"));
    assert!(drawn(&mut model, 139, 9, now)[2].ends_with("  PAUSED"));
}

#[test]
fn a_row_has_the_grants_of_the_last_seconds_and_the_colour_of_the_longest_wait() {
    let now = Instant::now();
    let names = ["a", "b", "c", "d", "e"];
    let mut model = overview(&names, now);
    let waits = [None, Some(9_999), Some(10_000), Some(60_000), None];
    for second in 0..4 {
        let rows = names.into_iter().zip(waits).map(|(name, oldest_waiter_age_ms)| {
            let (held, waiting) = (u64::from(name != "e") * 4, u64::from(oldest_waiter_age_ms.is_some()));
            let grants = if name == "a" { second * 3 } else { 7 };
            let counts = Counts { grants, ..Counts::default() };
            let row =
                ListRow { limit: Some(4), held, waiting, oldest_waiter_age_ms, counts, ..ListRow::default() };
            (name.to_owned(), Ok(row.ranked()))
        });
        model.on_snapshot(Snapshot::Rows(rows.collect()), now + Duration::from_secs(second));
    }
    let lines = drawn(&mut model, 78, 9, now);
    assert_eq!(lines[1], "  SEMAPHORE  HELD  LIMIT  WAITING   WAITED      GRANTS  STATE");
    assert_eq!(lines[2], "> a             4      4        0            ███ 3.0/s");
    let screen = buffer(&mut model, 78, 9, true, now);
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
fn a_semaphore_has_its_holders_and_its_line() {
    let now = Instant::now();
    let mut model = opened(detail(), now);
    let expected = [
        "exports: 3 of 3 held, 1 waiting (memory:)",
        "  HOLDER      AGE  LEASE  SLOT  WEIGHT             TOKEN",
        "> web-1   1 h 2 m   14 s     0       2  1700000000000000",
        "  web-2   1 h 2 m   14 s     2       1  1700000000000002",
        "  WAITER  BEFORE    AGE  WEIGHT  LABEL",
        "  web-3        0  7.0 s       1  nightly export",
        "",
        "permits revoke exports web-1 · permits pause exports --for 10m",
        "permits limit exports 3 · permits close exports --reason ''",
        "q quit  ? help  ↑↓ select  Esc back",
    ];
    assert_eq!(drawn(&mut model, 70, 10, now), expected);
    assert_eq!(
        drawn(&mut model, 24, 9, now)[..4],
        [
            "exports: 3 of 3 held, 1…",
            "  HOLDER      AGE  LEASE",
            "> web-1   1 h 2 m   14 s",
            "  web-2   1 h 2 m   14 s",
        ]
    );
}

#[test]
fn unlisted_holders_and_waiters_are_counted() {
    let now = Instant::now();
    let counts = Counts { grants: 9, expired: 1, ..Counts::default() };
    let waiters = (0..1000).map(|position| waiter(&format!("web-{position}"), position)).collect();
    let mut model =
        opened(Inspection { limit: None, held: 2000, waiting: 1500, counts, waiters, ..detail() }, now);
    let rows = drawn(&mut model, 70, 8, now);
    assert_eq!(rows[0], "exports: 2000 held, 1500 waiting, no limit, 9 granted, 1 expired (mem…");
    assert_eq!(
        rows[4..7],
        [
            "  … and 1997 more units held by others",
            "  WAITER   BEFORE    AGE  WEIGHT  LABEL",
            "  web-0         0  7.0 s       1  nightly export"
        ]
    );
    press(&mut model, KeyCode::End);
    let rows = drawn(&mut model, 70, 8, now);
    assert_eq!(rows[6], "> web-999     999  7.0 s       1  nightly export");
    types(&mut model, "k");
    assert!(drawn(&mut model, 70, 8, now)[5].starts_with("> web-998"));
}

#[test]
fn colour_carries_no_information_of_its_own() {
    let now = Instant::now();
    let mut model = overview(&["exports"], now);
    let paused = ListRow { paused: true, ..ListRow::default() };
    model.on_snapshot(Snapshot::Rows(vec![("exports".into(), Ok(paused))]), now);
    let error = AdminError::Store(StoreError::Unreachable { reason: "it is gone".into() });
    model.on_snapshot(Snapshot::Failed(error), now);
    model.on_warning("the connection is slow".into());
    let coloured = buffer(&mut model, 80, 24, true, now);
    let plain = buffer(&mut model, 80, 24, false, now);
    let text = |buffer: &ratatui::buffer::Buffer| {
        buffer.content().iter().map(|cell| cell.symbol().to_owned()).collect::<String>()
    };
    assert_eq!(text(&coloured), text(&plain));
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
    for keys in ["", "?", "p", "r", "/a", "jjjr"] {
        let with_notes = |mut model: Model| {
            model.on_snapshot(Snapshot::Failed(error.clone()), now);
            model.on_warning("the connection is slow and the night is dark".into());
            types(&mut model, keys);
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
    // What was asked for is shown on a small screen, too.
    types(&mut model, "r");
    assert!(has(&drawn(&mut model, 60, 7, now), revoke));
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

/// The states that an operator has to see, each in its forms.
fn states() -> [(Inspection, [&'static str; 3]); 5] {
    let plain = Inspection { limit: Some(4), held: 3, waiting: 2, ..Inspection::default() };
    let paused = Inspection { paused: true, ..plain.clone() };
    let closed = Inspection { closed: Some("moved to another machine".into()), ..plain.clone() };
    let recovering = Inspection { recovering: Duration::from_secs(3), ..plain.clone() };
    let pinned = Inspection { pinned: true, ..plain };
    let all = Inspection { paused: true, recovering: Duration::from_secs(3), pinned: true, ..closed.clone() };
    let phrase = "PAUSED, recovering for 3.0 s, limit pinned, CLOSED";
    [
        (paused, ["PAUSED", "PAUSED", "P"]),
        (closed, ["CLOSED", "CLOSED", "C"]),
        (recovering, ["recovering for 3.0 s", "recovering", "R"]),
        (pinned, ["limit pinned", "pinned", "L"]),
        (all, [phrase, "PAUSED recovering pinned CLOSED", "PRLC"]),
    ]
}

#[test]
fn the_state_is_visible_at_every_width() {
    let now = Instant::now();
    let name = "a-name-that-is-wide";
    for (inspection, forms) in states() {
        for (width, shortest) in [(20, 2), (40, 2), (60, 2), (80, 2), (200, 0)] {
            let is_shown = |row: &str, forms: [&str; 3], shortest: usize| {
                forms[..=shortest].iter().any(|form| row.contains(form))
            };
            let mut model = overview(&[name, "other"], now);
            let rows = [(name, ListRow::from(&inspection)), ("other", ListRow::default())];
            let rows = rows.map(|(name, row)| (name.to_owned(), Ok(row)));
            model.on_snapshot(Snapshot::Rows(rows.into()), now);
            let rows = drawn(&mut model, width, 24, now);
            let row = rows.iter().find(|row| row.starts_with("> a-na")).expect("it is selected");
            let rest = row.trim_start_matches(|first: char| first != ' ').trim_start_matches(' ');
            let rest = rest.split_once(' ').map_or("", |(_, rest)| rest);
            assert!(is_shown(rest, forms, shortest), "{width}: {rows:#?}");
            // A single word is shown in place of numbers.
            assert!(
                forms[1].contains(' ') || rest.contains(forms[1]) || width < 40 || width == 200,
                "{width}: {rows:#?}"
            );
            for height in [5, 24] {
                let Inspection { holders, waiters, .. } = detail();
                let mut model = opened(Inspection { holders, waiters, ..inspection.clone() }, now);
                let rows = drawn(&mut model, width, height, now);
                let title = rows[..2].join(" ");
                assert!(is_shown(&title, forms, 2), "{width} {height}: {rows:#?}");
                assert!(title.contains("exports"), "{width} {height}: {rows:#?}");
            }
        }
    }
}

#[test]
fn numbers_go_before_the_state() {
    let now = Instant::now();
    let rows_at = |width| {
        let mut model = overview(&["exports"], now);
        let row = ListRow::from(&states()[0].0);
        model.on_snapshot(Snapshot::Rows(vec![("exports".into(), Ok(row))]), now);
        drawn(&mut model, width, 24, now)
            .into_iter()
            .find(|row| row.starts_with("> "))
            .expect("it is selected")
    };
    assert_eq!(rows_at(60), "> exports       3      4        2          PAUSED");
    assert_eq!(rows_at(40), "> exports       3      4     2  PAUSED");
    assert_eq!(rows_at(36), "> exports       3      4  PAUSED");
    assert_eq!(rows_at(30), "> exports       3  PAUSED");
    assert_eq!(rows_at(20), "> exports    PAUSED");
    assert_eq!(rows_at(12), "> exp…s  P");
}

#[test]
fn a_label_is_shown_in_place_of_the_token() {
    let now = Instant::now();
    let mut labelled = detail();
    labelled.holders[0].holder = "vm:10273/oI-d0YHv9CdF.0".into();
    labelled.holders[0].label = Some("alice: export".into());
    let first = |width| drawn(&mut opened(labelled.clone(), now), width, 12, now)[2].clone();
    assert_eq!(
        first(100),
        "> vm:10273/oI-d0YHv9CdF.0  1 h 2 m   14 s     0       2  1700000000000000  alice: export"
    );
    assert_eq!(first(70), "> vm:10273/oI-d0YHv9CdF.0  1 h 2 m   14 s     0       2  alice: export");
    assert_eq!(first(60), "> vm:10273…dF.0  1 h 2 m   14 s     0       2  alice: export");
    assert_eq!(first(50), "> vm:1027…F.0  1 h 2 m   14 s     0  alice: export");
}

#[test]
fn a_lane_is_shown_before_the_label() {
    let now = Instant::now();
    let mut laned = detail();
    laned.lanes = vec![LaneInfo { lane: Some("tenant-7".into()), waiting: 0, held: 2 }];
    laned.holders[0].lane = Some("tenant-7".into());
    laned.holders[0].label = Some("export".into());
    let rows = drawn(&mut opened(laned, now), 120, 12, now);
    assert!(rows[1].ends_with("  TOKEN  [LANE] LABEL"), "{rows:?}");
    assert!(rows[2].ends_with("  [tenant-7] export"), "{rows:?}");
}

#[test]
fn units_that_cool_are_not_shown_as_held() {
    let now = Instant::now();
    let units = |cooling, may_be_kept, is_partial| HeldUnits { cooling, may_be_kept, is_partial };
    let of = |held, units| ListRow { limit: Some(20), held, units, waiting: 3, ..ListRow::default() };
    let mut model = overview(&["some", "rate", "large"], now);
    let rows = [
        ("some", of(20, units(5, 0, false))),
        ("rate", of(20, units(20, 0, false))),
        ("large", of(900, units(100, 0, true))),
    ];
    let rows = rows.map(|(name, row)| (name.to_owned(), Ok(row)));
    model.on_snapshot(Snapshot::Rows(rows.into()), now);
    let rows = drawn(&mut model, 80, 24, now);
    assert_eq!(
        rows[2..5],
        [
            "> large       800     20        3          cooling 100",
            "  rate          0     20        3          cooling 20",
            "  some         15     20        3          cooling 5",
        ]
    );
    let mut cools = detail();
    (cools.holders[0].cooling, cools.holders[0].lease_remaining) = (true, Duration::from_millis(40));
    cools.cooling = 2;
    let rows = drawn(&mut opened(cools, now), 100, 12, now);
    assert_eq!(rows[0], "exports: 1 of 3 held, 1 waiting, cooling 2 (memory:)");
    assert_eq!(rows[2], "> web-1   1 h 2 m  cooling     0       2  1700000000000000");
}

#[test]
fn units_that_may_be_kept_are_marked_and_shown_as_held() {
    let now = Instant::now();
    let units = |cooling, is_partial| HeldUnits { cooling, may_be_kept: 17, is_partial };
    let of = |units| Ok(ListRow { limit: Some(20), held: 20, units, ..ListRow::default() });
    let mut model = overview(&["all", "large", "rate"], now);
    let rows = [("all", of(units(0, false))), ("large", of(units(0, true))), ("rate", of(units(3, false)))];
    let rows = rows.map(|(name, row)| (name.to_owned(), row));
    model.on_snapshot(Snapshot::Rows(rows.into()), now);
    let rows = drawn(&mut model, 80, 24, now);
    assert_eq!(
        rows[2..5],
        [
            "> all          20     20        0          17 may be kept",
            "  large        20     20        0          17+ may be kept",
            "  rate         17     20        0          cooling 3, 17 may be kept",
        ]
    );
    let mut kept = detail();
    kept.holders[0].may_be_kept = true;
    let rows = drawn(&mut opened(kept, now), 100, 12, now);
    assert_eq!(rows[0], "exports: 3 of 3 held, 1 waiting, 2 may be kept (memory:)");
    assert_eq!(rows[2], "> web-1   1 h 2 m  14 s, may be kept     0       2  1700000000000000");
    assert_eq!(rows[3], "  web-2   1 h 2 m               14 s     2       1  1700000000000002");
}

#[test]
fn the_problems_of_the_store_are_a_line() {
    let now = Instant::now();
    let mut model = overview(&["exports"], now);
    let line = "permits doctor (1 of 2): eviction: maxmemory-policy is allkeys-lru";
    model.problems = Some(line.into());
    let has = |rows: &[String], text: &str| rows.iter().any(|row| row == text);
    assert!(has(&drawn(&mut model, 80, 24, now), line));
    assert!(has(&drawn(&mut model, 30, 24, now), "permits doctor (1 of 2): evic…"));
    assert!(!drawn(&mut model, 80, 9, now).iter().any(|row| row.contains("doctor")));
    model.on_snapshot(Snapshot::Failed(AdminError::Ended(Ended::Closed)), now);
    assert!(!has(&drawn(&mut model, 80, 24, now), line), "a store that does not answer has no other problem");
    let mut model = overview(&["exports"], now);
    model.problems = Some(line.into());
    model.on_diagnosed(None);
    assert!(!has(&drawn(&mut model, 80, 24, now), line));
}

#[test]
fn the_last_changes_by_operators_are_a_line() {
    let now = Instant::now();
    let change = |seconds, change| {
        let age = Duration::from_secs(seconds);
        ChangeInfo { change, by: "alice@web".into(), at: SystemTime::UNIX_EPOCH, age }
    };
    let changes = vec![
        change(5, OperatorChange::Paused { time: None, reason: String::new() }),
        change(7200, OperatorChange::LimitSet(3)),
    ];
    let mut model = opened(Inspection { changes, ..detail() }, now);
    let line = "alice@web paused 5.0 s ago; alice@web set the limit to 3 2 h 0 m ago";
    let has = |rows: &[String], text: &str| rows.iter().any(|row| row == text);
    assert!(has(&drawn(&mut model, 80, 24, now), line));
    assert!(has(&drawn(&mut model, 30, 24, now), "alice@web paused 5.0 s ago; a…"));
    assert!(!drawn(&mut model, 80, 9, now).iter().any(|row| row.contains("alice")));
}
