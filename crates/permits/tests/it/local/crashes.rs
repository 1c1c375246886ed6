//! Processes that die or stop while they use a semaphore, at any moment. `killed` has each moment of a
//! command.

use std::fs::File;
use std::io::{BufRead as _, Write as _};
use std::time::Duration;

use permits::{AcquireError, AcquireOptions, StoreError};
use permits_testkit::history::ClientEvent;
use permits_testkit::worker::{Work, Worker};
use permits_testkit::{ChildGuard, HANGS, HOUR, in_real_time};
use rustix::fs::{FlockOperation, flock};

use crate::local::child_task;
use crate::local::fixture::Fixture;

/// Enough kills meet all moments: while a worker waits, holds, reads, or is in the middle of writing.
#[test]
fn workers_killed_at_random_moments_leave_a_sound_state_and_never_admit_too_many() {
    in_real_time(|| {
        const WORKERS: usize = 5;
        const KILLS: usize = 120;
        let fixture = Fixture::new(3, Duration::from_millis(150));
        let mut random = permits_testkit::random::rng();
        let start = |number: usize| -> Worker {
            let mut worker = fixture.worker(&format!("worker-{number}"));
            worker.work(&Work::brief(1, Duration::from_millis(40)));
            worker
        };
        let mut workers: Vec<Worker> = (0..WORKERS).map(start).collect();
        for number in 0..KILLS {
            let victim = random.usize(..WORKERS);
            let pause = Duration::from_micros(random.u64(..100_000));
            // The moment of the fault is random.
            std::thread::sleep(pause);
            if random.u8(..4) == 0 {
                workers[victim].pause();
                std::thread::sleep(pause);
            }
            workers[victim].kill();
            fixture.waiting();
            workers[victim] = start(WORKERS + number);
        }
        let dead_holders =
            fixture.grants().iter().filter(|grant| grant.releasing.or(grant.lost).is_none()).count();
        for mut worker in workers {
            worker.stop();
            worker.close();
        }
        let grants = fixture.grants().len();
        println!("{KILLS} kills, {grants} grants, {dead_holders} of them to workers killed while they held");
        assert!(
            dead_holders > KILLS / 20 && grants > KILLS,
            "{dead_holders} of {grants}: too quiet to show anything"
        );
        fixture.assert_safe();
        fixture.assert_at_rest();
    });
}

/// A child task: locks a file as a command does, and stays in the middle of that until it reads a line.
pub(crate) fn lock_until_told() {
    let file = File::open(child_task::place()).expect("it is there");
    flock(&file, FlockOperation::LockExclusive).expect("it can be locked");
    println!("locked");
    let _ = std::io::stdin().lock().read_line(&mut String::new());
    // The end unlocks. The harness would write to a pipe that the test no longer reads.
    std::process::exit(0);
}

fn writer(fixture: &Fixture) -> (ChildGuard, std::process::ChildStdin) {
    let mut child = child_task::command("lock", &fixture.state()).spawn().expect("a test can start itself");
    let stdin = child.stdin.take().expect("it is piped");
    let mut process = ChildGuard::new(child);
    let lines = process.lines();
    while lines.next_line(HANGS).expect("it writes").trim() != "locked" {}
    // The rest of its output fits the pipe.
    drop(lines);
    (process, stdin)
}

#[test]
fn a_process_stopped_in_a_command_holds_the_others_up_until_it_goes_on() {
    let fixture = Fixture::new(1, HOUR);
    let client = fixture.client();
    let held = fixture.semaphore(&client).acquire().wait().expect("it is free");
    let (mut writer, mut stdin) = writer(&fixture);
    writer.pause();
    let hasty = permits::Client::builder(fixture.url()).store_timeout(Duration::from_millis(500));
    let hasty = hasty.connect().wait().expect("to look needs no lock");
    let seen = fixture.semaphore(&client).inspect().wait().expect("to look needs no lock");
    assert_eq!((seen.held, seen.holders[0].token), (1, held.token()));
    match fixture.semaphore(&hasty).try_acquire().wait() {
        Err(AcquireError::Store(StoreError::Unreachable { reason })) => {
            assert!(reason.contains("locked by another process"), "{reason}");
        }
        other => panic!("another process has the lock: {other:?}"),
    }
    let mut other = fixture.worker("other");
    other.ask("next");
    assert!(held.is_held());
    // A waiter for the locked file costs no permit of another semaphore.
    let mut waiting = fixture.semaphore(&client).acquire();
    let begun = futures_util::FutureExt::now_or_never(&mut waiting);
    assert!(begun.is_none());
    in_real_time(|| {
        let beside = client.semaphore("beside", 1).expect("valid");
        let beside = beside.acquire_with(AcquireOptions::new().lease(Duration::from_secs(1)));
        let beside = beside.wait().expect("it is free");
        std::thread::sleep(Duration::from_secs(2));
        assert!(beside.is_held(), "{:?}", beside.status());
    });
    drop(waiting);
    writer.resume();
    writeln!(stdin, "go on").expect("it listens");
    fixture.await_waiting(1);
    held.release().wait().expect("no other process has the lock");
    other.acquired("next");
    other.release("next");
    other.close();
    assert!(!other_failed(&fixture), "it has waited, and that is all");
    hasty.close().wait().expect("no other process has the lock");
    client.close().wait().expect("no other process has the lock");
    fixture.assert_at_rest();
}

fn other_failed(fixture: &Fixture) -> bool {
    fixture.count(|what| matches!(what, ClientEvent::Failed(_) | ClientEvent::Lost(_))) > 0
}
