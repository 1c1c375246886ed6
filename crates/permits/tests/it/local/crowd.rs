//! Many processes at once.

use std::time::Duration;

use permits_testkit::history::ClientEvent;
use permits_testkit::wait;
use permits_testkit::worker::{Work, Worker};

use crate::local::fixture::Fixture;

/// The lease of the crowd is long, because each of so many processes gets little of a busy machine.
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
