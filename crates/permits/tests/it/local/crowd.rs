//! Many processes at once.

use std::time::Duration;

use permits_testkit::history::ClientEvent;
use permits_testkit::sound::{Named as _, Succeeds as _};
use permits_testkit::wait;
use permits_testkit::worker::{SEMAPHORE, Work, Worker};
use tokio::task::JoinSet;

use crate::local::fixture::Fixture;

/// Of the crowd: long, because so many processes may get little of a busy machine.
const LEASE: Duration = Duration::from_secs(30);

/// All processes write at once, all the time, and each is served.
#[test]
fn processes_that_crowd_in_all_get_through() {
    const CROWD: usize = 20;
    let fixture = Fixture::new(3, LEASE);
    let mut crowd: Vec<Worker> =
        (0..CROWD).map(|number| fixture.worker(&format!("worker-{number}"))).collect();
    for worker in &mut crowd {
        worker.work(&Work::brief(1, Duration::from_millis(1)));
    }
    let served = |worker: &Worker| {
        (1..=3).all(|turn| {
            worker.has_reported(&format!("loop0.{turn}"), |what| matches!(what, ClientEvent::Released(_)))
        })
    };
    assert!(wait::until(|| crowd.iter().all(served)), "a process was not served\n{}", fixture.tail());
    for worker in &mut crowd {
        worker.stop();
    }
    for worker in crowd {
        worker.close();
    }
    fixture.assert_safe();
    fixture.assert_at_rest();
}

/// Each of their releases rewrites the whole line. The engine's own tests show that they travel together.
#[tokio::test]
async fn a_permit_outlasts_a_crowd_of_its_own_session_that_leaves_at_once() {
    const WAITERS: u64 = 1_000;
    let fixture = Fixture::small();
    let client = permits::Client::connect(&fixture.url()).succeeds().await;
    let semaphore = client.named(SEMAPHORE, 1);
    let permit = semaphore.acquire().succeeds().await;
    let mut waiters = JoinSet::new();
    for _ in 0..WAITERS {
        waiters.spawn(semaphore.acquire());
    }
    let waiting = async || semaphore.inspect_up_to(0).succeeds().await.waiting;
    while waiting().await < WAITERS {
        tokio::task::yield_now().await;
    }
    waiters.shutdown().await;
    permit.renew().await.expect("it goes ahead");
    permit.release().await.expect("it is still held");
    while waiting().await > 0 {
        tokio::task::yield_now().await;
    }
    client.close().succeeds().await;
}

#[test]
fn a_longer_line_than_a_directory_takes_is_refused() {
    let fixture = Fixture::small();
    let connect = |max| permits::Client::builder(fixture.url()).max_waiters(max).connect().wait();
    connect(10_000).expect("the directory can be used").close().wait().expect("the directory can be used");
    let refused = connect(10_001).expect_err("it is longer");
    assert_eq!(
        refused.to_string(),
        "max_waiters is 10001: this store takes at most 10000 waiters of a semaphore, a server more"
    );
}
