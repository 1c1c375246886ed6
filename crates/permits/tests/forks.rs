//! Programs that fork: a master that has closed its client before it forks workers, and one that forks with a
//! client open.
//!
//! A forked child has a copy of the master's memory. So each test starts its own executable again as the
//! master, which forks real children. All of them write their observations to the shared standard output,
//! line by line.

use std::env;
use std::future::Future as _;
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::process::{Command, Stdio};
use std::task::{Context, Waker};
use std::time::Duration;

use permits::{
    AcquireError, AdminError, AdoptError, Client, CloseError, ConnectError, Ended, Lost, Permit,
    PermitStatus, Recovery, ReleaseError, RenewError, Semaphore,
};
use permits_testkit::history::now;
use permits_testkit::real_time::always_counts;
use permits_testkit::sound::{Named as _, Succeeds as _};
use permits_testkit::{ChildGuard, HANGS, HOUR, Server, fork, in_real_time, wait};

const SCENARIO: &str = "PERMITS_FORKS_SCENARIO";
const URL: &str = "PERMITS_FORKS_URL";

const LEASE: Duration = Duration::from_millis(1500);

/// The tests start this executable again with this name, as a master.
#[test]
#[ignore = "the other tests start it, as a process of its own"]
fn master_process() {
    let Ok(scenario) = env::var(SCENARIO) else { return };
    let url = env::var(URL).expect("the test sets both");
    match scenario.as_str() {
        "workers" => workers(&url, None),
        "workers of one label" => workers(&url, Some("worker")),
        "open" => open(&url),
        "open, asynchronous" => open_async(&url),
        #[cfg(target_os = "linux")]
        "open, with one pid" => open_with_one_pid(&url),
        "kept" => kept(&url),
        "a client of the child" => client_of_the_child(&url),
        "the memory of a child" => memory_of_the_child(&url),
        other => panic!("no scenario {other:?}"),
    }
}

/// Runs a scenario to its end, and returns the records that its processes wrote.
#[track_caller]
fn master(scenario: &str, url: &str) -> Vec<Vec<String>> {
    master_of(Command::new(env::current_exe().expect("a test knows its executable")), scenario, url)
}

/// Runs a scenario as [`master`] does, by a command that begins with the executable.
#[track_caller]
fn master_of(mut command: Command, scenario: &str, url: &str) -> Vec<Vec<String>> {
    command
        .args(["master_process", "--exact", "--ignored", "--nocapture", "--test-threads=1"])
        .env(SCENARIO, scenario)
        .env(URL, url)
        .stdout(Stdio::piped());
    let mut process = ChildGuard::spawn(&mut command);
    let lines = process.lines();
    let mut records = Vec::new();
    while let Some(line) = lines.next_line(HANGS) {
        match line.strip_prefix("forks ") {
            Some(fields) => records.push(fields.split(' ').map(str::to_owned).collect()),
            None => println!("{line}"),
        }
    }
    let status = process.wait_timeout(HANGS).expect("the master ends");
    assert!(status.success(), "{scenario}: {status}; its records: {records:?}");
    records
}

/// Writes a line without the lock of standard output, which a thread of the parent may have locked at the
/// fork.
fn tell(line: &str) {
    let output = std::io::stdout().as_fd().try_clone_to_owned().expect("standard output is open");
    std::fs::File::from(output).write_all(format!("\nforks {line}\n").as_bytes()).expect("the test reads it");
}

fn connect(url: &str, label: Option<&str>) -> Result<Client, ConnectError> {
    let builder = Client::builder(url).lease(LEASE).recovery(Recovery::Off);
    match label {
        Some(label) => builder.label(label),
        None => builder,
    }
    .connect()
    .wait()
}

/// Connects, closes, and forks three workers, each of which connects.
fn workers(url: &str, label: Option<&str>) {
    let client = connect(url, label).expect("the store is there");
    client.named("forked", 1).acquire().wait().expect("it is free").release().wait().expect("it is held");
    client.close().wait().expect("the store is up");
    let mut workers: Vec<_> = (0..3).map(|_| fork::fork(|| worker(url, label))).collect();
    for worker in &mut workers {
        assert_eq!(worker.wait(HANGS), Some(0), "a worker");
    }
}

fn worker(url: &str, label: Option<&str>) {
    let client = connect(url, label).expect("the store is there");
    let permit = client.named("forked", 1).acquire().wait().expect("its turn comes");
    let began = now();
    // Longer than a renewal interval, so that every event has arrived.
    assert_eq!(permit.lost_within(LEASE * 2 / 3), None, "it holds");
    tell(&format!("{began} {} {} {}", now(), permit.token(), permit.holder()));
    permit.release().wait().expect("it is held");
    client.close().wait().expect("the store is up");
}

#[track_caller]
fn assert_one_at_a_time(mut records: Vec<Vec<String>>) {
    assert_eq!(records.len(), 3, "{records:?}");
    records.sort();
    always_counts(|| {
        for pair in records.windows(2) {
            assert!(pair[0][1] <= pair[1][0], "two held at once: {records:?}");
            assert!(pair[0][2] < pair[1][2], "tokens rise: {records:?}");
            assert_ne!(pair[0][3], pair[1][3], "holders differ: {records:?}");
        }
    });
}

#[test]
fn workers_forked_after_the_masters_client_was_closed_hold_one_at_a_time() {
    in_real_time(|| {
        let server = Server::start();
        assert_one_at_a_time(master("workers", &server.url()));
    });
}

#[test]
fn workers_forked_with_one_label_hold_one_at_a_time() {
    in_real_time(|| {
        let server = Server::start();
        assert_one_at_a_time(master("workers of one label", &server.url()));
    });
}

#[test]
fn workers_forked_after_a_local_client_was_closed_hold_one_at_a_time() {
    in_real_time(|| {
        let directory = tempfile::tempdir().expect("there is room");
        assert_one_at_a_time(master("workers", &format!("local:{}/permits", directory.path().display())));
    });
}

/// Forks with a client open and a permit held. In the child every operation fails at once; the parent keeps
/// its permit.
fn open(url: &str) {
    let client = connect(url, None).expect("the store is there");
    let semaphore = client.named("open", 1);
    let permit = semaphore.acquire().wait().expect("it is free");
    let mut child = fork::fork(|| assert_forked(&client, &permit));
    assert_eq!(child.wait(HANGS), Some(0), "the child neither hangs nor fails");

    assert_eq!(permit.lost_within(LEASE * 2), None, "it is renewed");
    let seen = semaphore.inspect().wait().expect("the client works");
    assert_eq!(seen.holders.len(), 1, "{seen:?}");
    assert_eq!(seen.holders[0].token, permit.token());
    permit.release().wait().expect("it is held");
    semaphore.acquire().wait().expect("it is free").release().wait().expect("it is held");
    client.close().wait().expect("the store is up");
}

/// As [`open`], in the first process of a pid namespace. Its child is the first of another one. In the end
/// the child drops its copies, which must not release the parent's permit.
#[cfg(target_os = "linux")]
fn open_with_one_pid(url: &str) {
    let client = connect(url, None).expect("the store is there");
    let semaphore = client.named("open", 1);
    let mut held = Some(semaphore.acquire().wait().expect("it is free"));
    let pid = std::process::id();
    let mut child = fork::fork_into_namespace(|| {
        assert_eq!(std::process::id(), pid);
        let permit = held.take().expect("the child has a copy");
        assert_forked(&client, &permit);
        assert_eq!(permit.release().wait(), Err(ReleaseError::Lost(Lost::Forked)));
    });
    assert_eq!(child.wait(HANGS), Some(0), "the child neither hangs nor fails");
    let permit = held.take().expect("the parent has its own");
    assert_eq!(permit.lost_within(LEASE * 2), None, "it is renewed");
    permit.release().wait().expect("it is held");
}

fn assert_forked(client: &Client, permit: &Permit) {
    let semaphore = client.named("open", 1);
    assert_eq!(semaphore.acquire().wait().err(), Some(AcquireError::Ended(Ended::Forked)));
    assert_eq!(semaphore.try_acquire().wait().err(), Some(AcquireError::Ended(Ended::Forked)));
    assert_eq!(semaphore.set_limit(2).wait(), Err(AdminError::Ended(Ended::Forked)));
    assert_eq!(
        semaphore.revoke(permit.holder(), "by the child").wait(),
        Err(AdminError::Ended(Ended::Forked))
    );
    assert_eq!(semaphore.inspect().wait(), Err(AdminError::Ended(Ended::Forked)));
    assert_eq!(client.list().wait(), Err(AdminError::Ended(Ended::Forked)));
    let handle = "permits11:open:h:s.1:1:1500:5:0".parse().expect("it is a handle");
    assert_eq!(client.adopt(&handle).wait().err(), Some(AdoptError::Ended(Ended::Forked)));
    assert_eq!(client.clone().close().wait(), Err(CloseError::Ended(Ended::Forked)));

    assert!(!permit.is_held());
    assert_eq!((permit.status(), permit.remaining()), (PermitStatus::Lost, Duration::ZERO));
    assert_eq!(permit.renew().wait(), Err(RenewError::Lost(Lost::Forked)));
    assert_eq!(permit.lost_within(HANGS), Some(Lost::Forked));
}

/// As [`open`], in tasks, and with operations that consume a permit. Then the child drops all parts
/// of the session.
fn open_async(url: &str) {
    let runtime =
        || tokio::runtime::Builder::new_current_thread().enable_all().build().expect("there is one");
    let master = runtime();
    let builder = Client::builder(url).lease(LEASE).recovery(Recovery::Off);
    let client = master.block_on(builder.connect()).expect("the store is there");
    let semaphore = client.named("several", 4);
    let permits = [(); 4].map(|()| master.block_on(semaphore.acquire()).expect("it is free"));
    let waiting = semaphore.clone();
    let mut waiting = Box::pin(async move { waiting.acquire().await });
    assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let mut renewing = Some(Box::pin(permits[0].renew()));
    let mut inspecting = Some(Box::pin(semaphore.inspect()));
    let context = &mut Context::from_waker(Waker::noop());
    renewing.take_if(|renewing| renewing.as_mut().poll(context).is_ready());
    inspecting.take_if(|inspecting| inspecting.as_mut().poll(context).is_ready());
    // Each process has its own copy after the fork.
    let mut session = Some((client, semaphore, permits, waiting, renewing, inspecting));
    let mut child = fork::fork(|| {
        let (client, semaphore, [lost, released, handed_over, dropped], waiting, renewing, inspecting) =
            session.take().expect("the child has a copy");
        runtime().block_on(async {
            if let Some(renewing) = renewing {
                assert_eq!(renewing.await, Err(RenewError::Lost(Lost::Forked)));
            }
            if let Some(inspecting) = inspecting {
                assert_eq!(inspecting.await.err(), Some(AdminError::Ended(Ended::Forked)));
            }
            assert_eq!(
                waiting.await.err(),
                Some(AcquireError::Ended(Ended::Forked)),
                "begun before the fork"
            );
            assert_eq!(lost.lost().await, Lost::Forked);
            assert_eq!(lost.run(std::future::pending::<()>()).await, Err(Lost::Forked));
            assert!(lost.cancellation_token().is_cancelled());
            assert_eq!(released.release().await, Err(ReleaseError::Lost(Lost::Forked)));
            assert_eq!(handed_over.hand_over().await, Err(RenewError::Lost(Lost::Forked)));
        });
        drop((lost, dropped, semaphore, client));
    });
    assert_eq!(child.wait(HANGS), Some(0), "the child neither hangs nor fails");
    let (_client, semaphore, permits, waiting, renewing, inspecting) =
        session.take().expect("the parent has its own");
    assert!(permits.iter().all(Permit::is_held));
    master.block_on(async {
        if let Some(renewing) = renewing {
            renewing.succeeds().await;
        }
        if let Some(inspecting) = inspecting {
            inspecting.succeeds().await;
        }
        let seen = semaphore.inspect().await.expect("the client works");
        assert_eq!((seen.held, seen.waiting), (4, 1));
        let [released, ..] = permits;
        released.release().succeeds().await;
        drop(waiting.succeeds().await);
    });
}

#[test]
fn with_an_open_client_every_operation_fails_in_a_child() {
    in_real_time(|| {
        let server = Server::start();
        master("open", &server.url());
    });
}

#[test]
fn with_an_open_memory_every_operation_fails_in_a_child() {
    in_real_time(|| {
        master("open", "memory:");
        master("open, asynchronous", "memory:");
    });
}

#[test]
fn with_an_open_file_every_operation_fails_in_a_child() {
    in_real_time(|| {
        let directory = tempfile::tempdir().expect("there is room");
        let url = format!("local:{}/permits", directory.path().display());
        master("open", &url);
        master("open, asynchronous", &url);
    });
}

/// Linux gives the first process of each pid namespace the pid 1.
#[cfg(target_os = "linux")]
#[test]
fn with_an_open_client_every_operation_fails_in_a_child_with_the_pid_of_its_parent() {
    in_real_time(|| {
        if permits_testkit::skip::without_namespaces() {
            return;
        }
        let [program, arguments @ ..] = permits_testkit::skip::IN_NAMESPACE;
        let directory = tempfile::tempdir().expect("there is room");
        let server = Server::start();
        for url in [server.url(), format!("local:{}/permits", directory.path().display())] {
            let mut command = Command::new(program);
            command.args(arguments).arg(env::current_exe().expect("a test knows its executable"));
            master_of(command, "open, with one pid", &url);
        }
    });
}

#[test]
fn with_an_open_client_every_future_fails_in_a_child() {
    in_real_time(|| {
        let server = Server::start();
        master("open, asynchronous", &server.url());
    });
}

/// Forks with a permit kept and another one in use, which may be kept, too. The child gets neither, and drops
/// its copies. The parent uses what it has kept, and keeps the other one.
fn kept(url: &str) {
    // A third of the lease is longer than the test.
    let lease = HANGS * 6;
    let client = Client::builder(url).lease(lease).recovery(Recovery::Off).connect().wait();
    let client = client.expect("the store is there");
    let semaphore = client.named("kept", 2).keep(lease);
    let [used, kept] = [(); 2].map(|()| semaphore.acquire().wait().expect("it is free"));
    let (token, holder) = (kept.token(), kept.holder().to_owned());
    drop(kept);
    let seen = semaphore.inspect().wait().expect("the client works").counts;
    let mut session = Some((client, semaphore, used));
    let mut child = fork::fork(|| {
        let (client, semaphore, used) = session.take().expect("the child has a copy");
        assert_eq!(semaphore.try_acquire().wait().err(), Some(AcquireError::Ended(Ended::Forked)));
        let again = client.named("kept", 2).keep(HANGS);
        assert_eq!(again.acquire().wait().err(), Some(AcquireError::Ended(Ended::Forked)));
        assert_eq!(used.release().wait(), Err(ReleaseError::Lost(Lost::Forked)));
        drop((client, semaphore, again));
    });
    assert_eq!(child.wait(HANGS), Some(0), "the child neither hangs nor fails");

    let (client, semaphore, used) = session.take().expect("the parent has its own");
    let again = semaphore.try_acquire().wait().expect("it is kept");
    assert_eq!((again.token(), again.holder()), (token + 1, holder.as_str()));
    let (token, holder) = (used.token(), used.holder().to_owned());
    used.release().wait().expect("it is held");
    let used = semaphore.try_acquire().wait().expect("it is kept");
    assert_eq!((used.token(), used.holder()), (token + 1, holder.as_str()));
    assert_eq!(semaphore.inspect().wait().expect("the client works").counts, seen, "the store was not asked");
    drop((again, used));
    client.close().wait().expect("the store is up");
}

#[test]
fn a_child_gets_nothing_of_what_its_parent_keeps() {
    let server = Server::start();
    master("kept", &server.url());
    master("kept", "memory:");
    let directory = tempfile::tempdir().expect("there is room");
    master("kept", &format!("local:{}/permits", directory.path().display()));
}

/// Connects in a child while the parent's client is open. The child waits for the parent's permit, and then
/// the parent for the child's.
fn client_of_the_child(url: &str) {
    let connected = || {
        let client = Client::builder(url).lease(HOUR).recovery(Recovery::Off).connect().wait();
        client.expect("the store is there")
    };
    let client = connected();
    let semaphore = client.named("shared", 1);
    let permit = semaphore.acquire().wait().expect("it is free");
    let has_a_waiter = |semaphore: &Semaphore| {
        wait::until(|| semaphore.inspect().wait().expect("the client works").waiting == 1)
    };
    let mut child = fork::fork(|| {
        let own = connected();
        let semaphore = own.named("shared", 1);
        assert_eq!(semaphore.try_acquire().wait().err(), Some(AcquireError::NoPermits));
        let permit = semaphore.acquire().wait().expect("its turn comes");
        tell("child");
        assert!(has_a_waiter(&semaphore), "the parent waits");
        permit.release().wait().expect("it is held");
        own.close().wait().expect("the store is up");
    });
    assert!(has_a_waiter(&semaphore), "the child waits");
    assert!(permit.is_held());
    permit.release().wait().expect("it is held");
    let again = semaphore.acquire().wait().expect("its turn comes");
    tell("parent");
    again.release().wait().expect("it is held");
    assert_eq!(child.wait(HANGS), Some(0), "the child neither hangs nor fails");
}

#[test]
fn a_client_connected_in_a_child_is_independent_of_the_parents() {
    let server = Server::start();
    let directory = tempfile::tempdir().expect("there is room");
    for url in [server.url(), format!("local:{}/permits", directory.path().display())] {
        assert_eq!(master("a client of the child", &url), [["child"], ["parent"]], "{url}");
    }
}

/// Holds in a child what the parent holds.
fn memory_of_the_child(url: &str) {
    let client = connect(url, None).expect("it needs nothing");
    let permit = client.named("shared", 1).acquire().wait().expect("it is free");
    let mut child = fork::fork(|| {
        let own = connect(url, None).expect("it needs nothing");
        drop(own.named("shared", 1).try_acquire().wait().expect("it is free here"));
    });
    assert_eq!(child.wait(HANGS), Some(0), "the child neither hangs nor fails");
    drop(permit);
}

#[test]
fn the_memory_of_a_child_is_its_own() {
    master("the memory of a child", "memory:");
}
