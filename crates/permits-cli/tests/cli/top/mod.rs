//! `permits top` on a terminal: its screen, and the commands on it, which a shell runs.

mod resilience;
pub(crate) mod view;

use permits_testkit::Server;
use serde_json::{Value, json};

use crate::support::{Holder, fresh, output, permits, prepare, shell, status, until_counts, waiter};
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
    output(&mut permits(&server.url(), ["pause", &name])).ends(0);
    let is_coloured = |no_color: &str| {
        let mut command = permits(&server.url(), ["top"]);
        command.env("NO_COLOR", no_color);
        let mut view = View::start(command);
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

/// The command on the screen that begins so, as it is copied: without what is beside it.
#[track_caller]
fn copied(view: &mut View, begin: &str) -> String {
    view.shows(begin);
    let rows = view.rows();
    let mut commands = rows.iter().flat_map(|row| row.split(" · "));
    commands
        .find(|command| command.starts_with(begin))
        .expect("it begins a line, or is beside others")
        .to_owned()
}

#[test]
fn the_commands_on_the_screen_change_the_store_in_a_shell() {
    let server = Server::start();
    let name = "the team's exports";
    prepare(&server, name);
    let mut view = View::top(&server, &[]);
    view.resize(24, 160);
    for (begin, shows, field, value) in [
        ("permits pause ", "PAUSED for another", "paused", json!(true)),
        ("permits resume ", "1 semaphore by need (", "paused", json!(false)),
        ("permits limit ", "limit pinned", "pinned", json!(true)),
        ("permits limit ", "1 semaphore by need (", "pinned", json!(false)),
        ("permits close ", "CLOSED", "closed", json!("")),
        ("permits open ", "1 semaphore by need (", "closed", Value::Null),
    ] {
        let command = copied(&mut view, begin);
        output(&mut shell(&server.url(), &command)).ends(0);
        assert_eq!(status(&server, name)[field], value, "{command}");
        view.shows(shows);
        view.does_not_show(&command);
    }
    view.quits();
}

#[test]
fn a_copied_command_revokes_the_marked_holder_and_waiter() {
    let (server, name) = fresh();
    let holders =
        ["--limit 2 --holder web-1", "--holder web-2"].map(|options| Holder::start(&server, &name, options));
    let waiter = waiter(&server, &name, "--holder web-3", (2, 1));
    let mut view = View::top(&server, &[]);
    view.resize(24, 160);
    view.shows(&format!("> {name}     2      2        1  "));
    view.types(ENTER);
    view.shows("> web-1");
    let mut revokes = |keys: &str, holder: &str| {
        view.types(keys);
        let command = copied(&mut view, &format!("permits revoke {name} {holder}"));
        output(&mut shell(&server.url(), &command)).ends(0);
    };
    revokes("jj", "web-3");
    waiter.finish().ends(75);
    revokes("kk", "web-1");
    view.shows("> web-2");
    let [first, _second] = holders;
    let first = first.finish();
    assert_eq!((first.code, first.stderr.contains("the permit was revoked")), (76, true), "{first:?}");
    until_counts(&server, &name, (1, 0));
    view.quits();
}

#[test]
fn commands_repeat_the_options_that_name_the_store() {
    let server = Server::start();
    let url = server.url();
    output(&mut permits(&url, ["limit", "x", "1", "--declare", "--prefix", "team's"])).ends(0);
    let mut view = View::start(permits("local:", ["top", "--url", &url, "--prefix", "team's"]));
    view.resize(24, 160);
    let command = copied(&mut view, "permits pause x");
    assert!(command.ends_with(" --prefix 'team'\\''s'"), "{command}");
    output(&mut shell("local:/nowhere", &command)).ends(0);
    view.shows("PAUSED for another");
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
fn the_screen_writes_nothing() {
    let server = Server::start();
    let mut view = View::top(&server, &[]);
    view.shows("no semaphores");
    view.quits();
    assert_eq!(server.info("rdb_changes_since_last_save").as_deref(), Some("0"));
}
