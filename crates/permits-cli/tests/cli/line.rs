//! The line: never more than the limit, first come, first served, and its display.

use std::collections::BTreeMap;
use std::fs;

use permits_testkit::{Server, in_real_time, wait};
use regex::Regex;
use tempfile::TempDir;

use crate::support::{
    Holder, Local, Output, Running, Store, ageless, assert_own_lines, counts, on_a_server, on_both_stores,
    output, prepare, run, status, until_counts,
};

on_both_stores! {
    forty_in_line_are_granted_in_their_order,
}

on_a_server! {
    a_short_wait_is_silent_without_a_terminal,
    of_three_pushes_to_a_branch_the_second_is_not_built,
}

/// Works for a moment in its slot and keeps a log: `+ PLACE TOKEN` after its start, `-` before its end, so
/// that the log never shows more holders than there were. Two holders of one slot would fail.
const WORK: &str = r#"
    set -C
    : > "$DIR/slot.$PERMITS_SLOT" || exit 99
    echo + "$PLACE" "$PERMITS_TOKEN" >> "$DIR/log"; sleep 0.05; echo - >> "$DIR/log"
    rm "$DIR/slot.$PERMITS_SLOT""#;

/// Starts the worker with this place in line.
fn work(store: &dyn Store, name: &str, directory: &TempDir, place: usize) -> Running {
    let mut command = run(store, name, "--limit 3", WORK);
    Running::start(command.env("DIR", directory.path()).env("PLACE", place.to_string()))
}

/// Waits for all workers. Demands that all have run, never more than three at once. Returns their places in
/// the order of their grants.
#[track_caller]
fn finish_all(all: Vec<Running>, directory: &TempDir) -> Vec<usize> {
    let count = all.len();
    for running in all {
        let Output { code, stderr, .. } = running.finish();
        assert_eq!(code, 0, "{stderr}");
    }
    let log = fs::read_to_string(directory.path().join("log")).expect("it was written");
    let (mut at_once, mut grants) = (0, BTreeMap::new());
    for line in log.lines() {
        let begins = line.strip_prefix("+ ").and_then(|line| line.split_once(' '));
        at_once += if begins.is_some() { 1 } else { -1 };
        assert!((0..=3).contains(&at_once), "{log}");
        if let Some((place, token)) = begins {
            let number = "a number";
            grants.insert(token.parse::<u64>().expect(number), place.parse::<usize>().expect(number));
        }
    }
    assert_eq!((at_once, grants.len()), (0, count), "{log}");
    grants.into_values().collect()
}

fn forty_in_line_are_granted_in_their_order(store: &dyn Store, name: &str) {
    let directory = tempfile::tempdir().expect("a directory");
    let first = Holder::start(store, name, "--limit 3 --weight 3");
    let line = (0..40).map(|place| {
        let waiter = work(store, name, &directory, place);
        until_counts(store, name, (1, place + 1));
        waiter
    });
    let line: Vec<Running> = line.collect();
    first.release();
    assert!(finish_all(line, &directory).into_iter().eq(0..40));
    assert_eq!(counts(store, name), (0, 0));
}

fn a_short_wait_is_silent_without_a_terminal(store: &dyn Store, name: &str) {
    let first = Holder::start(store, name, "--limit 1");
    let silent = Running::start(&mut run(store, name, "", "true"));
    let verbose = Running::start(&mut run(store, name, "-v", "true"));
    assert!(wait::until(|| verbose.stderr().contains("1 of 1 held by")), "{}", verbose.stderr());
    first.release();
    assert_eq!(silent.finish().stderr, "");
    let Output { code, stderr, .. } = verbose.finish();
    assert_eq!(code, 0);
    assert_own_lines(&stderr);
    assert!(stderr.contains(" granted to "), "{stderr}");
    assert!(!stderr.contains('\x1b'), "{stderr}");
}

#[test]
fn a_long_wait_is_reported_without_a_terminal() {
    in_real_time(|| {
        let store = Local::new();
        let first = Holder::start(&store, "x", "--limit 1 --holder first");
        let waiter = Running::start(&mut run(&store, "x", "", "true"));
        assert!(wait::until(|| !waiter.stderr().is_empty()));
        first.release();
        let stderr = waiter.finish().stderr;
        // 10 seconds, and on a busy machine a few more.
        let expected = Regex::new(r"^permits: waiting 1\d s for .x.: first in line, 1 of 1 held by first\n$");
        assert!(expected.expect("it is valid").is_match(&ageless(&stderr)), "{stderr}");
    });
}

#[test]
fn a_try_waits_for_the_end_of_a_recovery_that_is_near() {
    for options in ["--no-wait", "--wait 0"] {
        let server = Server::start();
        let options = format!("--limit 1 --at-least 1h {options} -q -E 0");
        // As cron starts a job on three hosts.
        let hosts = [0; 3].map(|_| Running::start(&mut run(&server, "nightly", &options, "echo ran")));
        let ended = hosts.map(Running::finish);
        let of = |text: &str| ended.iter().filter(|host| host.code == 0 && host.stdout == text).count();
        assert_eq!((of("ran\n"), of("")), (1, 2), "{ended:?}");
    }
    let strict = "--limit 1 --lease 1h --recovery strict --no-wait -q -E 0";
    let refused = output(&mut run(&Server::start(), "nightly", strict, "echo ran"));
    refused.prints(75, "");
    let says = "permits: no permit now: nothing is granted yet";
    assert!(refused.stderr.starts_with(says), "{}", refused.stderr);
}

#[test]
fn a_recovering_server_is_the_reason_until_its_window_ends() {
    in_real_time(|| {
        let server = Server::start();
        let reason = "nothing is granted yet: the store started or lost its state a moment ago";
        let waiter = Running::start(&mut run(&server, "new", "--limit 1 -v", "echo ran"));
        assert!(wait::until(|| waiter.stderr().contains(reason)), "{}", waiter.stderr());
        waiter.finish().prints(0, "ran\n");
    });
    let at_once = output(&mut run(&Server::start(), "new", "--limit 1 --no-wait --recovery off", "echo ran"));
    assert_eq!((at_once.code, at_once.stdout.as_str(), at_once.stderr.as_str()), (0, "ran\n", ""));
}

/// The example of the guide.
fn of_three_pushes_to_a_branch_the_second_is_not_built(store: &dyn Store, name: &str) {
    // A build that never ran is no success, also for one who asks for silence when others are at it.
    let options = "--limit 1 --supersede main -q -E 0";
    let push = |build: &str| run(store, name, options, &format!("echo {build}"));
    let first = Holder::start(store, name, "--limit 1 --supersede main");
    let second = Running::start(&mut push("second"));
    until_counts(store, name, (1, 1));
    let third = Running::start(&mut push("third"));
    let Output { code, stdout, stderr } = second.finish();
    assert_eq!((code, &*stdout), (75, ""), "{stderr}");
    assert!(stderr.contains("a later request with the key \"main\" has superseded it"), "{stderr}");
    first.release();
    let Output { code, stdout, stderr } = third.finish();
    assert_eq!((code, &*stdout), (0, "third\n"), "{stderr}");
    assert_eq!(counts(store, name), (0, 0));
}

#[test]
fn a_wait_that_shows_nothing_asks_the_store_nothing() {
    let server = Server::start();
    prepare(&server, "x");
    let lasting = "--limit 1 --lease 1h";
    let _holder = Holder::start(&server, "x", lasting);
    assert_eq!(status(&server, "x")["held"], 1);
    let inspections = || {
        let stats = server.command(&["INFO", "commandstats"]);
        // Only the script of an inspection uses this command.
        let calls = stats.text().split("cmdstat_zrangebyscore:calls=").nth(1).map(str::to_owned);
        let calls = calls.expect("there were some");
        calls.split(',').next().and_then(|calls| calls.parse::<u64>().ok()).expect("a number")
    };
    let before = inspections();
    let _silent = Running::start(&mut run(&server, "x", lasting, "true"));
    let queued = || server.command(&["ZCARD", "permits:{x}:queue"]).int();
    assert!(wait::until(|| queued() == 1));
    let quiet = Running::start(&mut run(&server, "x", &format!("{lasting} -v -q"), "true"));
    assert!(wait::until(|| queued() == 2));
    // The verbose run shows its wait at a time by which the others would have shown their own.
    let verbose = Running::start(&mut run(&server, "x", &format!("{lasting} -v"), "true"));
    assert!(wait::until(|| verbose.stderr().contains("2 before you")), "{}", verbose.stderr());
    assert!(!quiet.stderr().contains("before you"), "{}", quiet.stderr());
    assert_eq!(inspections() - before, 1);
    until_counts(&server, "x", (1, 3));
}
