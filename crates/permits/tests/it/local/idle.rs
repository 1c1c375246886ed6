//! A client with permits and waiters sleeps until something happens to them.

use std::fs;
use std::time::Duration;

use permits::Client;
use permits_testkit::sound::Named as _;
use permits_testkit::{HOUR, wait};

use crate::local::child_task;
use crate::local::fixture::{Fixture, url};

/// The number of times that this process's threads have gone to sleep.
fn sleeps() -> u64 {
    let threads = fs::read_dir("/proc/self/task").expect("the system lists threads").flatten();
    let of_thread = |path: std::path::PathBuf| -> Option<u64> {
        let status = fs::read_to_string(path.join("status")).ok()?;
        // The threads of the test itself measure.
        let store = status.starts_with("Name:\tpermits");
        let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        store.then(|| count.trim().parse().ok())?
    };
    threads.filter_map(|thread| of_thread(thread.path())).sum()
}

#[test]
fn a_client_with_permits_and_waiters_sleeps() {
    let fixture = Fixture::small();
    println!("{:#?}", child_task::done(&mut child_task::command("sleep", &fixture.path())));
}

/// A child task, because threads are found by their names.
pub(crate) fn sleep() {
    let client = Client::builder(url(&child_task::place())).lease(HOUR);
    let client = client.connect().wait().expect("the directory can be used");
    let semaphore = client.named("idle", 1);
    let permit = semaphore.acquire().wait().expect("it is free");
    let waiter = semaphore.acquire();
    let waiter = std::thread::spawn(move || waiter.wait());
    assert!(wait::until(|| semaphore.inspect_up_to(0).wait().is_ok_and(|seen| seen.waiting == 1)));
    // A thread of what has just ended may still run. Of one that polled each millisecond no half second would
    // be quiet.
    assert!(wait::until(|| {
        let before = sleeps();
        std::thread::sleep(Duration::from_millis(500));
        sleeps() == before
    }));
    permit.release().wait().expect("it is held");
    let next = waiter.join().expect("it ends").expect("its turn has come");
    next.release().wait().expect("it is held");
    client.close().wait().expect("the directory can be used");
}
