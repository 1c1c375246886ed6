//! `permits top` on a terminal: its screen, and the effects of keys on a real store.

mod resilience;
pub(crate) mod view;

use permits_testkit::Server;
use serde_json::{Value, json};

use crate::support::{Holder, fresh, permits, prepare, status, until_counts, waiter};
use view::View;

const ENTER: &str = "\r";
const ESCAPE: &str = "\x1b";
const DOWN: &str = "\x1b[B";

#[test]
fn the_overview_shows_what_the_store_has() {
    let (server, name) = fresh();
    prepare(&server, "other one");
    let _holder = Holder::start(&server, &name, "--limit 3 --weight 2");
    let _waiter = waiter(&server, &name, "--weight 2", (1, 1));
    let mut view = View::top(&server, &["--sort", "name"]);
    view.shows("permits top: 2 semaphores");
    view.shows_row(&["SEMAPHORE", "HELD", "LIMIT", "WAITING", "WAITED", "STATE"]);
    view.shows_row(&[">", "other", "one", "0", "1", "0"]);
    let unmarked = format!("  {name}     2      3        1  ");
    view.shows(&unmarked);
    view.types(DOWN);
    view.shows(&unmarked.replacen(' ', ">", 1));
    view.types("k");
    view.shows_row(&[">", "other", "one", "0", "1", "0"]);
    view.quits();
}

#[test]
fn a_change_appears_by_itself() {
    let (server, name) = fresh();
    let mut view = View::top(&server, &[]);
    view.shows_row(&[">", &name, "0", "1", "0"]);
    let first = Holder::start(&server, &name, "--limit 5 --lease 1s");
    view.shows_row(&[">", &name, "1", "5", "0"]);
    drop(first);
    view.types(ENTER);
    view.shows("SLOT");
    let _second = Holder::start(&server, &name, "--holder web-2");
    view.shows("> web-2");
    prepare(&server, "newcomer");
    view.types(ESCAPE);
    // The marker stays on the semaphore that was opened.
    view.shows_row(&["newcomer", "0", "1", "0"]);
    view.shows(&format!("> {name}"));
    view.quits();
}

#[test]
fn an_opened_semaphore_lists_holders_and_waiters_in_order() {
    let (server, name) = fresh();
    // The oldest has the longest lease; the store lists it last.
    let _holders = ["--limit 3 --holder web-1 --lease 1h", "--holder web-2 --weight 2"]
        .map(|options| Holder::start(&server, &name, options));
    let _waiters = ["--holder web-3 --weight 3", "--holder web-0"]
        .into_iter()
        .enumerate()
        .map(|(before, options)| waiter(&server, &name, options, (2, before + 1)))
        .collect::<Vec<_>>();
    let mut view = View::top(&server, &[&name]);
    view.shows(&format!("{name}: 3 of 3 held, 2 waiting"));
    let rows = view.rows();
    let listed = rows.iter().filter_map(|row| row.get(2..7)).filter(|name| name.starts_with("web-"));
    assert!(listed.eq(["web-1", "web-2", "web-3", "web-0"]), "{rows:#?}");
    view.quits();
}

#[test]
fn no_color_turns_colours_off() {
    let (server, name) = fresh();
    let is_coloured = |no_color: &str| {
        let mut command = permits(&server.url(), ["top"]);
        command.env("NO_COLOR", no_color);
        let mut view = View::start(command);
        if no_color.is_empty() {
            view.shows_row(&[">", &name, "0", "1", "0"]);
            view.types("p\r\r");
        }
        view.shows("PAUSED");
        let row = (0..24).find(|row| view.rows()[*row].contains("PAUSED")).expect("it is shown");
        let cell = view.emulator.screen().cell(u16::try_from(row).expect("small"), 0).expect("it is there");
        let coloured = cell.fgcolor() != vt100::Color::Default;
        view.quits();
        coloured
    };
    assert!(is_coloured(""), "it means nothing if it is empty");
    assert!(!is_coloured("1"));
}

#[test]
fn a_confirmed_action_is_done_when_the_screen_is_left_at_once() {
    let (server, name) = fresh();
    let mut view = View::top(&server, &[&name]);
    view.shows("no holders and no waiters");
    view.types("p\r\rq");
    assert_eq!(view.finish(), (0, String::new()));
    assert_eq!(status(&server, &name)["paused"], json!(true));
}

#[test]
fn a_revoked_holder_is_named_and_loses_the_permit() {
    let (server, name) = fresh();
    let holders =
        ["--limit 2 --holder web-1", "--holder web-2"].map(|options| Holder::start(&server, &name, options));
    let waiter = waiter(&server, &name, "--holder web-3", (2, 1));
    let mut view = View::top(&server, &[]);
    view.shows(&format!("> {name}     2      2        1  "));
    view.types("r");
    view.shows("open it with Enter, and select a holder or waiter to revoke");
    view.types(ENTER);
    view.shows("> web-1");
    view.types("jjr");
    view.shows(r#": revoke web-3: take its place in line away? (y/n)"#);
    view.types("y");
    view.shows(r#": revoke web-3: done"#);
    waiter.finish().ends(75);
    view.types("kr");
    view.shows(r#": revoke web-"#);
    view.types("\r");
    view.shows("not done: ");
    view.types("kkr");
    view.shows(r#": revoke web-1: take its permit away? (y/n)"#);
    view.types("y");
    view.shows(r#": revoke web-1: done"#);
    view.shows("> web-2");
    let [first, _second] = holders;
    let first = first.finish();
    assert_eq!((first.code, first.stderr.contains("the permit was revoked")), (76, true), "{first:?}");
    until_counts(&server, &name, (1, 0));
    view.quits();
}

/// The names of the overview, in its order.
fn listed(rows: &[String]) -> Vec<String> {
    let rows = rows.iter().filter(|row| row.starts_with("> ") || row.starts_with("  "));
    rows.filter_map(|row| row[2..].split_whitespace().next().map(str::to_owned)).skip(1).collect()
}

#[test]
fn a_semaphore_that_cannot_be_read_hides_no_others() {
    let (server, name) = fresh();
    server.command(&["HSET", "permits:{bad}:state", "\tstate", "abc"]);
    let _holder = Holder::start(&server, &name, "--limit 1");
    let mut view = View::top(&server, &["--sort", "held", "--busy"]);
    view.shows("2 semaphores by held");
    view.until("the one that is held first", |rows| listed(rows) == [&name, "bad"]);
    view.shows("UNREADABLE: semaphore ");
    view.quits();
}

#[test]
fn the_first_problem_of_the_store_is_shown_and_nothing_is_written() {
    let server = Server::builder().arg("maxmemory", "100mb").arg("maxmemory-policy", "allkeys-lru").start();
    let mut view = View::top(&server, &[]);
    view.shows("permits doctor: eviction: ");
    view.shows("no semaphores");
    view.types("q");
    assert_eq!(view.finish().0, 0);
    assert_eq!(server.info("rdb_changes_since_last_save").as_deref(), Some("0"));
}

/// The keys, the questions and the refusals are those of the unit tests.
#[test]
fn the_acts_of_an_operator_change_the_store() {
    let (server, name) = fresh();
    let mut view = View::top(&server, &[&name]);
    view.shows(&format!("{name}: 0 of 1 held"));
    for (keys, shows, field, value) in [
        ("l8\ry", "0 of 8 held, 0 waiting, limit pinned", "limit", json!(8)),
        ("u", "unpin the limit: done", "pinned", json!(false)),
        ("cmoved\r", "CLOSED (moved)", "closed", json!("moved")),
        ("c", "open the line: done", "closed", Value::Null),
        ("dy", "delete: done", "limit", Value::Null),
    ] {
        view.types(keys);
        view.shows(shows);
        assert_eq!(status(&server, &name)[field], value, "{keys}");
    }
    view.quits();
}
