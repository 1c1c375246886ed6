//! `permits serve --textfile`.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::time::{SystemTime, UNIX_EPOCH};

use permits_testkit::Server;

use super::metrics::Metrics;
use crate::support::{Holder, Local, Running, Store, output, permits, run, until_counts};

/// The times before and after a call, in seconds since 1970, to the millisecond.
fn seconds_around(call: impl FnOnce()) -> (f64, f64) {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs_f64();
    let before = now() - 0.001;
    call();
    (before, now())
}

#[test]
fn the_file_is_replaced_as_a_whole() {
    let store = Local::new();
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("permits.prom");
    let write = |path: &std::path::Path| output(permits(&store.url(), ["serve", "--textfile"]).arg(path));
    let first = write(&path);
    assert_eq!((first.code, first.stdout.as_str(), first.stderr.as_str()), (0, "", ""));
    let reader = fs::File::open(&path).expect("it is there");
    output(&mut permits(&store.url(), ["limit", "exports", "3"])).ends(0);
    let between = seconds_around(|| write(&path).ends(0));
    let text = fs::read_to_string(&path).expect("it is there");
    let limit = ("permits_semaphore_limit".to_owned(), Some("exports".to_owned()));
    let metrics = Metrics::parse(&text, "");
    assert_eq!(metrics.samples[&limit], 3.0);
    let read_at = metrics.samples[&("permits_store_scrape_timestamp_seconds".to_owned(), None)];
    assert!(between.0 <= read_at && read_at <= between.1, "{read_at} in {between:?}");
    let before = std::io::read_to_string(reader).expect("it can be read");
    assert!(!before.contains("exports"), "a reader of the old file sees the old one: {before}");
    let names = || fs::read_dir(directory.path()).expect("ours").count();
    assert_eq!(names(), 1, "no temporary file is left");

    let failed = write(&directory.path().join("missing/permits.prom"));
    assert!(failed.code == 71 && failed.stderr.contains("cannot write "), "{}", failed.stderr);
    fs::create_dir(directory.path().join("directory")).expect("ours");
    write(&directory.path().join("directory")).ends(71);
    assert_eq!(names(), 2, "no temporary file is left");
}

#[test]
fn a_line_that_moves_does_not_stall_and_one_may_wait_by_design() {
    let store = Local::new();
    let first = Holder::start(&store, "batch", "--limit 1");
    let _waiters = [1, 2].map(|place| {
        let waiter = Running::start(&mut run(&store, "batch", "", "exec sleep 1000"));
        until_counts(&store, "batch", (1, place));
        waiter
    });
    first.release();
    until_counts(&store, "batch", (1, 1));
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("permits.prom");
    let stall_and_wait = || {
        output(permits(&store.url(), ["serve", "--textfile"]).arg(&path)).ends(0);
        let metrics = Metrics::parse(&fs::read_to_string(&path).expect("it is there"), "");
        let wait = metrics.of("oldest_waiter_age_seconds", "batch").expect("one waits");
        (metrics.store("longest_stall_seconds"), wait)
    };
    let (stall, wait) = stall_and_wait();
    assert!(0.0 < stall && stall < wait, "the first grant came after the second waiter: {stall}, {wait}");
    output(&mut permits(&store.url(), ["alert", "batch", "--wait", "8h"])).ends(0);
    assert_eq!(stall_and_wait().0, 0.0);
}

#[test]
fn only_a_regular_file_is_replaced() {
    let store = Local::new();
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name);
    let write = |name: &str| output(permits(&store.url(), ["serve", "--textfile"]).arg(path(name)));
    symlink("real.prom", path("link.prom")).expect("ours");
    let to_nothing = write("link.prom");
    assert_eq!(to_nothing.code, 71, "{}", to_nothing.stderr);
    fs::write(path("real.prom"), "old").expect("ours");
    write("link.prom").ends(0);
    assert!(fs::read_to_string(path("real.prom")).expect("it is there").contains("permits_store_up 1"));
    assert!(fs::symlink_metadata(path("link.prom")).expect("it is there").is_symlink(), "the link stays");
    let _socket = UnixListener::bind(path("socket")).expect("ours");
    symlink("socket", path("to-socket")).expect("ours");
    for name in ["socket", "to-socket"] {
        let refused = write(name);
        assert_eq!(refused.code, 71, "{name}");
        assert!(refused.stderr.contains("it is no regular file"), "{}", refused.stderr);
    }
    assert!(fs::metadata(path("socket")).expect("it is there").file_type().is_socket());
}

#[test]
fn a_store_that_cannot_be_reached_is_in_the_file_and_in_the_exit_code() {
    let server = Server::start();
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("permits.prom");
    let write =
        || output(permits(&server.url(), ["serve", "--store-timeout", "0s", "--textfile"]).arg(&path)).code;
    output(&mut permits(&server.url(), ["limit", "exports", "3"])).ends(0);
    assert_eq!(write(), 0);
    server.kill();
    assert_eq!(write(), 69);
    let metrics = Metrics::parse(&fs::read_to_string(&path).expect("it is there"), "");
    let samples: Vec<_> = metrics.samples.into_iter().collect();
    assert_eq!(samples, [(("permits_store_up".to_owned(), None), 0.0)]);
}

#[test]
fn a_semaphore_that_cannot_be_read_leaves_the_metrics_of_the_others() {
    let server = Server::start();
    server.command(&["HSET", "permits:{bad}:state", "\tstate", "abc"]);
    output(&mut permits(&server.url(), ["limit", "exports", "3"])).ends(0);
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("permits.prom");
    let written = output(permits(&server.url(), ["serve", "--textfile"]).arg(&path));
    written.ends(0);
    assert!(written.stderr.starts_with("permits: \"bad\" is UNREADABLE: "), "{}", written.stderr);
    let metrics = Metrics::parse(&fs::read_to_string(&path).expect("it is there"), "");
    assert_eq!((metrics.store("up"), metrics.store("semaphores_unreadable")), (1.0, 1.0));
    assert_eq!((metrics.of("limit", "exports"), metrics.of("limit", "bad")), (Some(3.0), None));
}
