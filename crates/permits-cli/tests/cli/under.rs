//! `--under PREFIX`: all semaphores whose names begin so.

use permits_testkit::{Server, wait};
use serde_json::Value;

use crate::support::{
    Holder, Local, Output, Running, Store, on_a_server, on_both_stores, output, permits, prepare, status,
    waiter,
};
use crate::terminal::Terminal;

on_both_stores! {
    several_are_changed_with_yes_only,
}

on_a_server! {
    the_verbs_that_show_choose_by_the_beginning_of_the_name,
    one_that_fails_keeps_no_other_from_its_change,
    all_holders_and_waiters_are_revoked,
    semaphores_are_watched_from_their_beginning,
}

const TENANTS: [&str; 3] = ["api/tenant-1", "api/tenant-2", "api/tenant-3"];

fn call(store: &dyn Store, arguments: &[&str]) -> Output {
    output(&mut permits(&store.url(), arguments))
}

#[track_caller]
fn prepare_tenants(store: &dyn Store) {
    ["api", "apis/one"].iter().chain(&TENANTS).for_each(|name| prepare(store, name));
}

/// The names that are paused.
fn paused(store: &dyn Store) -> Vec<&'static str> {
    TENANTS.into_iter().filter(|name| status(store, name)["paused"] == true).collect()
}

fn the_verbs_that_show_choose_by_the_beginning_of_the_name(store: &dyn Store, _: &str) {
    prepare_tenants(store);
    let names = |text: &str| -> Vec<String> {
        text.lines().filter_map(|line| line.split([':', ' ']).next()).map(str::to_owned).collect()
    };
    for arguments in [&["list", "--under", "api/"][..], &["limit", "--under", "api/"]] {
        let shown = call(store, arguments);
        assert_eq!((shown.code, shown.stderr.as_str()), (0, ""), "{arguments:?}");
        let names = names(&shown.stdout);
        assert!(names.iter().filter(|name| *name != "NAME").eq(&TENANTS), "{names:?}");
    }
    let shown = call(store, &["status", "--under", "api/"]).stdout;
    assert_eq!(names(&shown).into_iter().filter(|name| !name.is_empty()).collect::<Vec<_>>(), TENANTS);
    let shown = call(store, &["status", "--json", "--under", "api/"]).stdout;
    let parsed = shown.lines().map(|line| serde_json::from_str::<Value>(line).expect("it is JSON"));
    assert!(parsed.map(|status| status["name"].clone()).eq(TENANTS));
    for verb in ["status", "limit", "pause"] {
        let none = call(store, &[verb, "--under", "tenant"]);
        assert_eq!((none.code, none.stderr.as_str()), (66, "permits: no semaphore begins with \"tenant\"\n"));
    }
    let none = call(store, &["list", "--under", "tenant"]);
    assert_eq!(
        (none.code, none.stderr.as_str()),
        (0, "permits: there are no semaphores that begin with \"tenant\"\n")
    );
    let both = call(store, &["status", "api", "--under", "api/"]);
    assert_eq!(both.code, 64, "{}", both.stderr);
}

fn several_are_changed_with_yes_only(store: &dyn Store, _: &str) {
    prepare_tenants(store);
    let refused = call(store, &["pause", "--under", "api/"]);
    let says = "permits: would change 3 semaphores, \"api/tenant-1\", \"api/tenant-2\", \"api/tenant-3\": pause; \
                if you mean it, add --yes\n";
    assert_eq!((refused.code, refused.stdout.as_str(), refused.stderr.as_str()), (64, "", says));
    assert_eq!(paused(store), [""; 0]);
    let shown = call(store, &["pause", "--under", "api/", "--yes"]);
    let lines = TENANTS.map(|name| format!("{name}: paused, 0 of 1 held, 0 waiting\n")).concat();
    assert_eq!((shown.code, shown.stdout, shown.stderr.as_str()), (0, lines, ""));
    assert_eq!(paused(store), TENANTS);
    let one = call(store, &["resume", "--under", "api/tenant-2"]);
    assert_eq!((one.code, one.stderr.as_str()), (0, ""), "one needs no question");
    assert_eq!(paused(store), ["api/tenant-1", "api/tenant-3"]);
    let limited = call(store, &["limit", "--under", "api/", "--yes", "7"]);
    let lines = TENANTS.map(|name| format!("{name}: limit 7, pinned (version 2)\n")).concat();
    assert_eq!((limited.code, limited.stdout), (0, lines), "{}", limited.stderr);
    let lower = call(store, &["limit", "--under", "api/", "-2", "--yes"]);
    assert_eq!(status(store, TENANTS[0])["limit"], 5, "{}", lower.stderr);
    // The prefix of a variable that is not set.
    let all = call(store, &["pause", "--under", "", "--yes"]);
    assert_eq!(all.code, 64);
    assert!(all.stderr.ends_with(" more: pause; an empty prefix needs a terminal\n"), "{}", all.stderr);
    assert_eq!(status(store, "api")["paused"], false);
}

fn one_that_fails_keeps_no_other_from_its_change(store: &dyn Store, _: &str) {
    prepare_tenants(store);
    assert_eq!(call(store, &["limit", TENANTS[0], "9"]).code, 0);
    assert_eq!(call(store, &["limit", TENANTS[2], "9"]).code, 0);
    let changed = call(store, &["limit", "--under", "api/", "-3", "--yes"]);
    assert_eq!(changed.code, 64);
    assert!(changed.stderr.starts_with("permits: api/tenant-2: "), "{}", changed.stderr);
    assert!(
        changed.stderr.ends_with("permits: 1 of 3 semaphores could not be changed\n"),
        "{}",
        changed.stderr
    );
    assert_eq!(TENANTS.map(|name| status(store, name)["limit"].as_u64()), [Some(6), Some(1), Some(6)]);
}

fn all_holders_and_waiters_are_revoked(store: &dyn Store, _: &str) {
    prepare_tenants(store);
    let holders = [TENANTS[0], TENANTS[2]].map(|name| Holder::start(store, name, "--limit 1"));
    let waiter = waiter(store, TENANTS[0], "", (1, 1));
    let revoked = call(store, &["revoke", "--under", "api/", "--all", "--yes", "--reason", "moved"]);
    let lines = "api/tenant-1: 1 holder and 1 waiter revoked, 0 of 1 held, 0 waiting\n\
                 api/tenant-3: 1 holder and 0 waiters revoked, 0 of 1 held, 0 waiting\n";
    assert_eq!((revoked.code, revoked.stdout.as_str()), (0, lines), "{}", revoked.stderr);
    assert_eq!(holders.map(|holder| holder.finish().code), [76, 76]);
    assert_eq!(waiter.finish().code, 75);
    assert_eq!(call(store, &["revoke", "--under", "api/", "--all", "--yes"]).code, 1);
}

fn semaphores_are_watched_from_their_beginning(store: &dyn Store, _: &str) {
    prepare_tenants(store);
    let mut watch = permits(&store.url(), ["watch", "--under", "api/", "--interval", "100ms"]);
    let watch = Running::until(&mut watch, "Z  api/tenant-3: 0 of 1 held, 0 waiting\n");
    assert_eq!(call(store, &["pause", "api/tenant-2"]).code, 0);
    watch.prints("Z  api/tenant-2: ");
    watch.prints(" paused\n");
    assert_eq!(call(store, &["limit", "api/tenant-4", "2", "--declare"]).code, 0);
    watch.prints("Z  api/tenant-4: 0 of 2 held, 0 waiting");
    watch.signal(rustix::process::Signal::TERM);
    let ended = watch.finish();
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""));
    assert!(!ended.stdout.contains("  api:") && !ended.stdout.contains("apis/one"), "{}", ended.stdout);
}

#[test]
fn a_terminal_is_asked_before_several_are_changed() {
    let store = Local::new();
    prepare_tenants(&store);
    for (answer, code) in [("n\n", 1), ("y\n", 0)] {
        let mut terminal = Terminal::start(&mut permits(&store.url(), ["pause", "--under", "api"]));
        terminal.shows(
            "permits: change 5 semaphores, \"api\", \"api/tenant-1\", \"api/tenant-2\" and 2 more: pause? (y/n) ",
        );
        terminal.types(answer);
        terminal.shows(if code == 0 { "api/tenant-3: paused" } else { "permits: nothing was changed" });
        assert_eq!(terminal.finish(), code);
        assert_eq!(paused(&store).is_empty(), code != 0);
    }
}

#[test]
fn a_key_of_another_program_hides_no_semaphore() {
    let server = Server::start();
    prepare_tenants(&server);
    server.command(&["SET", "permits:{api/alien}:state", "not ours"]);
    let foreign = "a key of semaphore \"api/alien\"";
    for verb in ["status", "limit"] {
        let shown = call(&server, &[verb, "--under", "api/"]);
        assert_eq!(shown.code, 0, "{}", shown.stderr);
        assert!(shown.stderr.starts_with(&format!("permits: not shown: {foreign}")), "{}", shown.stderr);
        assert!(TENANTS.iter().all(|name| shown.stdout.contains(name)), "{}", shown.stdout);
    }
    let changed = call(&server, &["pause", "--under", "api/", "--yes"]);
    assert_eq!((changed.code, changed.stdout.lines().count()), (69, 3), "{}", changed.stderr);
    assert!(changed.stderr.starts_with(&format!("permits: api/alien: {foreign}")), "{}", changed.stderr);
    let mut watch = permits(&server.url(), ["watch", "--under", "api/"]);
    let watch = Running::until(&mut watch, "  api/tenant-3: 0 of 1 held");
    let reported = || watch.stderr().matches(foreign).count();
    assert!(wait::until(|| reported() > 0), "nothing is reported");
    assert_eq!(reported(), 1, "{}", watch.stderr());
}
