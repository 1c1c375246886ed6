//! Load without faults: order in a long queue and the cost of a grant; and processes that keep permits.

use std::time::Duration;

use permits_testkit::history::{ClientEvent, client_checks::check_order};
use permits_testkit::worker::{Mix, Work, Worker, WorkerCommand, WorkerSettings, micros};
use permits_testkit::{random, wait};

use crate::fixture::{Fixture, calls};

#[test]
fn two_hundred_waiters_of_four_processes_are_served_in_order() {
    const PROCESSES: usize = 4;
    const EACH: usize = 50;
    let fixture = Fixture::new(2, Duration::from_secs(6));
    let mut gate = fixture.worker("gate");
    gate.acquire("left");
    gate.acquire("right");
    let mut workers: Vec<Worker> =
        (0..PROCESSES).map(|number| fixture.worker(&format!("worker-{number}"))).collect();
    // Ten waiters of one process, then ten of the next, so that the queue changes between processes.
    let mut enqueued = 0;
    for turn in 0..EACH / 10 {
        for worker in &mut workers {
            for number in 0..10 {
                let (tag, hold) = (format!("w{turn}.{number}"), Some(Duration::from_millis(3)));
                worker.send(&WorkerCommand::Acquire { tag, hold });
            }
            enqueued += 10;
            fixture.await_waiting(enqueued);
            (0..10).for_each(|number| worker.note_queued(&format!("w{turn}.{number}")));
        }
    }
    let sums = || ["evalsha", "publish"].map(|command| calls(&fixture.server, command));
    let before = sums();
    gate.release("left");
    gate.release("right");
    for (turn, number) in (0..EACH / 10).flat_map(|turn| (0..10).map(move |number| (turn, number))) {
        for worker in &workers {
            worker.released(&format!("w{turn}.{number}"));
        }
    }
    let after = sums();

    let grants = fixture.grants();
    let waiters = &grants[2..];
    assert_eq!(waiters.len(), PROCESSES * EACH, "every waiter was served");
    check_order(waiters).unwrap_or_else(|violation| panic!("{violation}"));
    assert_eq!(fixture.count(|what| matches!(what, ClientEvent::Lost(_) | ClientEvent::Failed(_))), 0);
    // A release hands over, so a grant costs one call; renewals of whole processes and rechecks are few.
    // Waking all waiters, or confirming each grant, would take more.
    let calls = after[0] - before[0];
    let messages = after[1] - before[1];
    let granted = waiters.len() as u64;
    eprintln!("{calls} calls and {messages} messages for {granted} grants");
    assert!(calls * 10 <= granted * 15, "{calls} calls for {granted} grants");
    assert!(messages <= granted, "{messages} messages for {granted} grants");

    gate.close();
    for worker in workers {
        worker.close();
    }
    fixture.assert_safe();
    fixture.assert_at_rest();
}

/// A fifth of the units are in use on average: often there is something to keep, and often a waiter.
#[test]
fn processes_of_which_half_keep_permits_serve_every_waiter() {
    const PROCESSES: usize = 6;
    const GRANTS: usize = 1200;
    /// More than anything should take on a busy machine.
    const LONGEST: Duration = Duration::from_secs(20);
    let seed = random::seed();
    let fixture = Fixture::new(3, Duration::from_secs(3)).seed(seed);
    let mut random = fastrand::Rng::with_seed(seed);
    let mut workers: Vec<Worker> = (0..PROCESSES)
        .map(|number| {
            let keep = number.is_multiple_of(2).then(|| Duration::from_millis(random.u64(1..1000)));
            let url = fixture.server.url();
            fixture.start(WorkerSettings { url, keep, ..fixture.settings.clone() })
        })
        .collect();
    let rest = |most| Duration::ZERO..Duration::from_millis(most);
    let rest = Mix(vec![(1, rest(5)), (1, rest(800))]);
    let work = Work { rest, ..Work::brief(4, Duration::from_millis(10)) };
    workers.iter_mut().for_each(|worker| worker.work(&work));
    let granted = || fixture.count(|event| matches!(event, ClientEvent::Acquired { .. }));
    assert!(wait::until(|| granted() >= GRANTS), "{} grants", granted());
    let counts = fixture.close(workers).unwrap_or_else(|open| panic!("{open}"));

    let longest = fixture.grants().iter().map(|granted| granted.acquired - granted.asked).max();
    eprintln!("{counts:?}; the longest wait took {longest:?} us");
    assert_eq!((counts.asked, counts.failed, counts.lost), (counts.granted, 0, 0));
    assert!(longest < Some(micros(LONGEST)));
    assert!(counts.granted_again > 0, "nothing that was kept was used");
    fixture.assert_safe();
    fixture.assert_at_rest();
}
