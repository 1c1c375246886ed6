//! `--under PREFIX` of `watch`, and on a terminal.

use crate::support::{Local, Output, Running, Store, on_a_server, output, permits, prepare, status};
use crate::terminal::Terminal;
use permits_testkit::{Server, wait};

on_a_server! {
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

fn semaphores_are_watched_from_their_beginning(store: &dyn Store, _: &str) {
    prepare_tenants(store);
    let mut watch = permits(&store.url(), ["watch", "--under", "api/", "--interval", "100ms"]);
    let watch = Running::until(&mut watch, "Z  api/tenant-3: 0 of 1 held, 0 waiting\n");
    call(store, &["pause", "api/tenant-2"]).ends(0);
    watch.prints("Z  api/tenant-2: ");
    watch.prints(" paused\n");
    call(store, &["limit", "api/tenant-4", "2", "--declare"]).ends(0);
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
fn a_key_of_another_program_hides_no_semaphore_from_a_watch() {
    let server = Server::start();
    prepare_tenants(&server);
    server.command(&["SET", "permits:{api/alien}:state", "not ours"]);
    let foreign = "a key of semaphore \"api/alien\"";
    let mut watch = permits(&server.url(), ["watch", "--under", "api/"]);
    let watch = Running::until(&mut watch, "  api/tenant-3: 0 of 1 held");
    let reported = || watch.stderr().matches(foreign).count();
    assert!(wait::until(|| reported() > 0), "nothing is reported");
    assert_eq!(reported(), 1, "{}", watch.stderr());
}

#[test]
fn a_semaphore_that_can_be_read_again_is_watched_again() {
    let server = Server::start();
    prepare_tenants(&server);
    let (state, aside) = ("permits:{api/tenant-2}:state", "aside");
    let mut watch = permits(&server.url(), ["watch", "--under", "api/", "--interval", "100ms"]);
    let watch = Running::until(&mut watch, "  api/tenant-2: 0 of 1 held, 0 waiting\n");
    for times in 1..=2 {
        server.command(&["RENAME", state, aside]);
        server.command(&["SET", state, "not ours"]);
        let reported = || watch.stderr().matches("not watched: a key of semaphore \"api/tenant-2\"").count();
        assert!(wait::until(|| reported() == times), "{}", watch.stderr());
        server.command(&["RENAME", aside, state]);
        let lines = || watch.stdout().matches("  api/tenant-2: 0 of 1 held, 0 waiting\n").count();
        assert!(wait::until(|| lines() > times), "{}", watch.stdout());
        assert_eq!(reported(), times, "{}", watch.stderr());
    }
}
