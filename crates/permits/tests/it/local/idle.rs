//! A client without permits and waiters does nothing.

use std::fs;
use std::time::Duration;

use permits::Client;
use permits_testkit::sound::Named as _;
use permits_testkit::wait;

use crate::local::child_task;
use crate::local::fixture::{Fixture, url};

/// More than a holder's polling interval.
const POLL: Duration = Duration::from_millis(400);

/// The number of times that the store's thread has gone to sleep.
fn wakings() -> u64 {
    let mut status = None;
    // A new thread takes its name when it first runs.
    assert!(wait::until(|| {
        status = store_thread();
        status.is_some()
    }));
    let status = status.expect("it was found");
    let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    count.and_then(|count| count.trim().parse().ok()).expect("the system counts them")
}

/// The status of the store's thread.
fn store_thread() -> Option<String> {
    fs::read_dir("/proc/self/task").expect("the system lists threads").flatten().find_map(|thread| {
        let status = fs::read_to_string(thread.path().join("status")).ok()?;
        status.starts_with("Name:\tpermits-local\n").then_some(status)
    })
}

/// Returns true if the thread stops polling. A command that is running at first may still end.
fn rests() -> bool {
    wait::within(10 * POLL, || {
        let before = wakings();
        std::thread::sleep(POLL);
        wakings() == before
    })
}

#[test]
fn a_client_that_has_handed_its_permits_over_comes_to_rest() {
    let fixture = Fixture::small();
    println!("{:#?}", child_task::done(&mut child_task::command("hand_over", &fixture.path())));
}

/// a child task, because the thread is found by its name, so the process must have one client.
pub(crate) fn hand_over() {
    let client = Client::connect(&url(&child_task::place())).wait().expect("the file can be used");
    let semaphore = client.named("idle", 10);
    assert!(rests());
    let permits: Vec<_> = (0..3).map(|_| semaphore.acquire().wait().expect("it is free")).collect();
    assert!(!rests(), "a holder polls; otherwise this test shows nothing");
    for permit in permits {
        permit.hand_over().wait().expect("it is held");
    }
    assert!(rests());
    client.close().wait().expect("the file can be used");
}
