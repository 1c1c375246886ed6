//! A long queue under load, without faults: order, and the cost of a grant.

use permits_testkit::history::{ClientEvent, client_checks::check_order};
use permits_testkit::worker::{Worker, WorkerCommand};

use crate::fixture::{Fixture, calls};
use std::time::Duration;

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
    // Each command is recorded by one more message.
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
    let messages = after[1] - before[1] - calls;
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
