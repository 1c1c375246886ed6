//! Processes that are killed at each system call of a command.
//!
//! A command is repeated, and its process is killed at the first system call by which the store's thread may
//! change something, then at the second, until the command completes. At whichever call the process dies, the
//! state is that before the command or that after it, and a waiter to which the command granted a permit
//! receives it.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use permits::{AcquireOptions, Client, Inspection, Permit, Semaphore};
use permits_testkit::sound::Named as _;
use permits_testkit::trace::TracedThread;
use permits_testkit::{ChildGuard, HANGS, HOUR, wait};

use crate::local::child_task;
use crate::local::fixture::{Fixture, url};

/// The thread of a session that executes its commands.
const THREAD: &str = "permits-local";

/// A command, and the semaphore on which a process executes it, with its client's end.
struct Case {
    command: &'static str,
    limit: u32,
    /// The lease of the process ends soon. Otherwise it is an hour, and what is held is revoked.
    brief: bool,
    /// Another client holds a unit.
    is_held: bool,
    /// Another client waits, with a lease of an hour: it learns of its grant by a message, no renewal.
    has_waiter: bool,
}

static CASES: [Case; 7] = [
    Case { command: "acquire", limit: 2, brief: true, is_held: false, has_waiter: false },
    Case { command: "renew", limit: 1, brief: true, is_held: false, has_waiter: true },
    Case { command: "release", limit: 1, brief: false, is_held: false, has_waiter: true },
    Case { command: "pin", limit: 1, brief: false, is_held: true, has_waiter: true },
    Case { command: "revoke", limit: 1, brief: false, is_held: true, has_waiter: true },
    Case { command: "unpin", limit: 1, brief: false, is_held: false, has_waiter: false },
    Case { command: "delete", limit: 1, brief: false, is_held: false, has_waiter: false },
];

/// The name by which the other client holds.
const HOLDER: &str = "other";

/// The lease of a process that has a brief one. It covers the time for which the process is traced.
const BRIEF: Duration = Duration::from_millis(200);

/// A child task: prepares a command, says so, and executes it when it reads the next line.
pub(crate) fn one_command() {
    // The test waits for the end of this process without a limit.
    thread::spawn(|| {
        thread::sleep(HANGS);
        std::process::abort();
    });
    let mut lines = std::io::stdin().lines().map_while(Result::ok);
    let (command, name) = (lines.next().expect("a command"), lines.next().expect("a semaphore"));
    let case = CASES.iter().find(|case| case.command == command).expect("there is such a case");
    let client = Client::builder(url(&child_task::place())).lease(if case.brief { BRIEF } else { HOUR });
    let client = client.connect().wait().expect("the store can be used");
    let semaphore = client.named(name, case.limit);
    let holds = matches!(case.command, "renew" | "release");
    let held = holds.then(|| semaphore.acquire().wait().expect("it is free"));
    println!("ready");
    lines.next().expect("the test says when");
    // A slow machine may let a lease end first.
    match (case.command, held) {
        ("acquire", _) => drop(semaphore.acquire().wait()),
        ("renew", Some(permit)) => drop(permit.renew().wait()),
        ("release", Some(permit)) => drop(permit.release().wait()),
        ("pin", _) => drop(semaphore.set_limit(2).wait()),
        ("revoke", _) => drop(semaphore.revoke(HOLDER, "it is replaced").wait()),
        ("unpin", _) => drop(semaphore.unpin().wait()),
        ("delete", _) => drop(semaphore.delete().wait()),
        _ => unreachable!("no such command"),
    }
    let _ = client.close().wait();
}

#[test]
fn a_process_killed_at_any_call_leaves_the_state_before_its_command_or_after() {
    let calls = thread::scope(|scope| {
        let cases = CASES.each_ref().map(|case| scope.spawn(|| kill_at_each_call(case)));
        cases.map(|case| case.join().expect("it holds for each case"))
    });
    println!("killed at {} calls: {calls:?}", calls.iter().sum::<usize>());
    assert!(calls.iter().all(|calls| *calls >= 3), "a command reads, writes and renames: {calls:?}");
}

/// Returns the number of calls.
fn kill_at_each_call(case: &Case) -> usize {
    let fixture = Fixture::new(case.limit, HOUR);
    // The directory is for a group: a file that its maker had not yet given to the group would be of no use
    // to others.
    fs::create_dir(fixture.path()).expect("there is room");
    let shared = fs::Permissions::from_mode(0o2770);
    fs::set_permissions(fixture.path(), shared).expect("it is ours");
    let mut calls = 0;
    while kill_at(&fixture, case, calls) {
        calls += 1;
    }
    let client = fixture.client();
    for call in 0..=calls {
        assert_all_units_can_be_had(&client.named(name(case, call), case.limit), case);
    }
    for file in fs::read_dir(fixture.path()).expect("it is ours").flatten() {
        let (name, mode) = (file.file_name(), file.metadata().expect("it is there").mode() & 0o777);
        assert!(mode == 0o660 || name.as_encoded_bytes().starts_with(b".new-"), "{name:?}: {mode:o}");
    }
    client.close().wait().expect("the store can be used");
    calls
}

fn name(case: &Case, call: usize) -> String {
    format!("{} {call}", case.command)
}

/// Kills a process at this call of its command, and asserts that the others continue. Returns false if the
/// command has no such call.
fn kill_at(fixture: &Fixture, case: &Case, call: usize) -> bool {
    let (other, name) = (fixture.client(), name(case, call));
    let semaphore = other.named(&name, case.limit);
    if ["unpin", "delete"].contains(&case.command) {
        semaphore.set_limit(2).wait().expect("the store can be used");
    }
    let options = AcquireOptions::new().holder(HOLDER);
    let held = case.is_held.then(|| semaphore.acquire_with(options).wait().expect("it is free"));

    let mut process = ChildGuard::spawn(&mut child_task::command("one_command", &fixture.path()));
    let (mut stdin, lines) = (process.stdin(), process.lines());
    writeln!(stdin, "{}\n{name}", case.command).expect("it listens");
    while lines.next_line(HANGS).expect("it gets ready") != "ready" {}
    let waiter = case.has_waiter.then(|| Waiter::start(&semaphore));
    let mut traced = TracedThread::attach(&mut process, THREAD);
    writeln!(stdin, "go").expect("it listens");
    let is_killed = (0..=call).all(|_| traced.next_call());
    drop(traced);

    let fresh = fixture.client();
    let semaphore = fresh.named(&name, case.limit);
    let seen = sound(&semaphore);
    assert!(fresh.list().wait().expect("all can be read").contains(&name) || seen.limit.is_none());
    if seen.waiting > 0 && !case.brief {
        // The command was not executed, so its holder is the obstacle.
        let holder = &seen.holders.first().expect("otherwise the waiter is granted").holder;
        assert!(semaphore.revoke(holder, "it is dead").wait().expect("the store can be used"));
    }
    if let Some(waiter) = waiter {
        let permit = waiter.served();
        let seen = sound(&semaphore);
        let is_stored = seen.holders.iter().any(|holder| holder.token == permit.token());
        // A slow machine may let its lease end.
        assert!(is_stored || !permit.is_held(), "{name}: held, and not in the store: {seen:#?}");
        let _ = permit.release().wait();
    }
    if let Some(held) = held {
        // Lost if it was revoked.
        let _ = held.release().wait();
    }
    for client in [fresh, other] {
        client.close().wait().expect("the store can be used");
    }
    is_killed
}

/// A client that waits in a thread.
struct Waiter(JoinHandle<Permit>);

impl Waiter {
    /// Starts it, and waits until it is in the queue.
    fn start(semaphore: &Semaphore) -> Self {
        let waits = semaphore.clone();
        let options = AcquireOptions::new().timeout(HANGS);
        let acquiring = move || waits.acquire_with(options).wait().expect("it is served");
        let waiter = Self(thread::spawn(acquiring));
        assert!(wait::until(|| sound(semaphore).waiting == 1 || waiter.0.is_finished()));
        waiter
    }

    fn served(self) -> Permit {
        self.0.join().expect("it is served")
    }
}

/// The state: no more is held than the limit, and no slot twice.
#[track_caller]
fn sound(semaphore: &Semaphore) -> Inspection {
    let seen = semaphore.inspect().wait().expect("it can be read");
    let mut slots: Vec<u32> = seen.holders.iter().map(|holder| holder.slot).collect();
    slots.sort_unstable();
    slots.dedup();
    assert!(seen.held <= seen.limit.unwrap_or(0).into() && slots.len() == seen.holders.len(), "{seen:#?}");
    seen
}

/// All units, once the leases of the killed process have ended.
#[track_caller]
fn assert_all_units_can_be_had(semaphore: &Semaphore, case: &Case) {
    let seen = sound(semaphore);
    let units = seen.limit.filter(|_| seen.pinned).unwrap_or(case.limit);
    let options = AcquireOptions::new().timeout(HANGS);
    let all = (0..units).map(|_| semaphore.acquire_with(options.clone()).wait().expect("all leases end"));
    let permits: Vec<Permit> = all.collect();
    assert_eq!(sound(semaphore).held, u64::from(units));
    drop(permits);
}
