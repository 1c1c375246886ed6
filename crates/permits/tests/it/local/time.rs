//! The machine restarts, its wall clock is wrong, or a process is in a time namespace.
//!
//! A test cannot restart the machine or set its clock. But the headers of the files have all that the store
//! knows of them: the boot in which a file was last written, and the store's time then and at its start.

use std::fs;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use permits::{AcquireError, Alert, Client, RenewError, StoreError};
use permits_testkit::sound::Named as _;
use permits_testkit::worker::{SEMAPHORE, micros};
use permits_testkit::{HOUR, in_real_time, skip, wait};

use crate::local::child_task;
use crate::local::fixture::{Fixture, from_an_earlier_boot, from_another_boot, refusal, url};

const HOUR_US: i64 = 3_600_000_000;

#[test]
fn a_restart_of_the_machine_ends_all_leases() {
    let fixture = Fixture::new(2, HOUR);
    let mut workers = [fixture.worker("one"), fixture.worker("two"), fixture.worker("waiter")];
    workers[0].acquire("first");
    workers[1].acquire("second");
    workers[2].ask("third");
    fixture.await_waiting(1);
    workers.iter_mut().for_each(|worker| worker.kill());
    fixture.restart(0);
    // Otherwise after an hour.
    fixture.assert_at_rest();
}

/// The token of a permit that this fixture grants.
fn token(fixture: &Fixture, semaphore: &str) -> u64 {
    let client = fixture.client();
    let permit = client.named(semaphore, 1).acquire().wait().expect("it is free");
    let token = permit.token();
    permit.release().wait().expect("it is held");
    client.close().wait().expect("the directory can be used");
    token
}

#[test]
fn tokens_rise_over_restarts_whatever_the_wall_clock_says() {
    for ahead_us in [-HOUR_US, HOUR_US] {
        let fixture = Fixture::small();
        let mut tokens = vec![token(&fixture, SEMAPHORE)];
        for _ in 0..2 {
            fixture.restart(ahead_us);
            tokens.push(token(&fixture, SEMAPHORE));
        }
        let least = u64::try_from(ahead_us).unwrap_or(1);
        assert!(tokens.is_sorted_by(|one, next| one + least <= *next), "{tokens:?}");
    }
}

/// The first client after a boot may belong to a user who cannot read another user's file. The time of that
/// file counts when its semaphore is used.
#[test]
fn tokens_rise_if_a_file_could_not_be_read_when_the_boot_began() {
    for (left, gone) in [("state", "lasting"), ("lasting", "state")] {
        let fixture = Fixture::small();
        let client = fixture.client();
        client.named(SEMAPHORE, 1).set_limit(7).wait().expect("the directory can be used");
        client.close().wait().expect("the directory can be used");
        let before = token(&fixture, SEMAPHORE);
        fixture.restart(0);
        let [left, gone] = [left, gone].map(|end| fixture.state().with_extension(end));
        fs::remove_file(gone).expect("it is there");
        from_an_earlier_boot(&left, HOUR_US);
        let aside = left.with_extension("aside");
        fs::rename(&left, &aside).expect("it is there");
        fixture.client().close().wait().expect("the directory can be used");
        fs::rename(&aside, &left).expect("it is there");
        let after = token(&fixture, SEMAPHORE);
        assert!(before + HOUR_US as u64 / 2 < after, "{before} and {after}, with {}", left.display());
    }
}

/// Also if the restart has deleted the states, which were not on the disk.
#[test]
fn what_operators_have_set_outlasts_a_restart() {
    for are_deleted in [false, true] {
        let fixture = Fixture::small();
        let used = [token(&fixture, "used"), token(&fixture, "pinned")];
        let client = fixture.client();
        client.named("pinned", 1).set_limit(7).wait().expect("the directory can be used");
        client.named("paused", 1).pause("night").wait().expect("the directory can be used");
        client.named("brief", 1).pause_for(3 * HOUR, "lunch").wait().expect("the directory can be used");
        client.named("closed", 1).close_line("sold out").wait().expect("the directory can be used");
        let alert = Alert::new(Some(HOUR), Some(9)).expect("it is in range");
        client.named("watched", 1).set_alert(alert).wait().expect("the directory can be used");
        let laned = client.named("laned", 1);
        laned.set_lane("tenant-7", Some(2), Some(1)).wait().expect("the directory can be used");
        client.close().wait().expect("the directory can be used");

        fixture.restart(HOUR_US);
        if are_deleted {
            for entry in fs::read_dir(fixture.path()).expect("it is there").flatten() {
                if entry.path().extension().is_some_and(|end| end == "state") {
                    fs::remove_file(entry.path()).expect("it is there");
                }
            }
        }
        let client = fixture.client();
        let listed = client.list().wait().expect("the directory can be used");
        assert_eq!(listed, ["brief", "closed", "laned", "paused", "pinned", "watched"]);
        let seen = |name| client.named(name, 1).inspect().wait().expect("the directory can be used");
        assert_eq!((seen("pinned").limit, seen("pinned").pinned), (Some(7), true));
        assert_eq!(
            (seen("paused").pause_reason, seen("paused").pause_remaining),
            (Some("night".into()), None)
        );
        let left = seen("brief").pause_remaining.expect("it has an end");
        assert!(HOUR < left && left <= 2 * HOUR, "it goes on from the time of the files: {left:?}");
        assert_eq!(seen("closed").closed.as_deref(), Some("sold out"));
        assert_eq!(seen("watched").alert, alert);
        let lanes = seen("laned").lanes;
        assert!(matches!(&lanes[..], [lane] if lane.pinned && lane.floor == 1), "{lanes:?}");

        assert!(token(&fixture, "pinned") > used[1] + HOUR_US as u64);
        // A semaphore without a file has the clock of the marker.
        assert!(token(&fixture, "used") > used[0] + HOUR_US as u64);
        client.close().wait().expect("the directory can be used");
    }
}

/// The store never reads the wall clock while the machine is up. Otherwise a difference of an hour would end
/// every lease at once, or let no lease end for an hour.
#[test]
fn a_wrong_wall_clock_changes_no_lease() {
    in_real_time(|| {
        let fixture = Fixture::new(1, Duration::from_secs(1));
        fixture.client().close().wait().expect("the directory can be used");
        fixture.restart(HOUR_US);
        let (mut holder, mut waiter) = (fixture.worker("holder"), fixture.worker("waiter"));
        let first = holder.acquire("first");
        waiter.ask("next");
        fixture.await_waiting(1);
        holder.renewed("first");
        holder.kill();
        let next = waiter.acquired("next");
        assert!(holder.granted("first").until <= next.acquired && first.token < next.token);
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later");
        assert!(next.token > micros(wall) + HOUR_US as u64 / 2, "tokens are on the clock of the directory");
        waiter.release("next");
        waiter.close();
        fixture.assert_safe();
        fixture.assert_at_rest();
    });
}

/// Two machines can share a directory by a file system that the store does not recognize. Neither sees the
/// other's locks, but each sees that files were written in another boot.
#[test]
fn another_machine_that_uses_the_directory_is_noticed() {
    let fixture = Fixture::small();
    let client = fixture.client();
    let held = fixture.semaphore(&client).acquire().wait().expect("it is free");
    fixture.use_elsewhere();
    match held.renew().wait() {
        Err(RenewError::Store(error)) => assert_elsewhere(&error, "it was the last that began to use it"),
        other => panic!("it is another's now: {other:?}"),
    }
    drop((held, client));
    fixture.restart(0);
    fixture.assert_at_rest();
}

/// Asserts that the store refuses because of another machine.
#[track_caller]
fn assert_elsewhere(error: &StoreError, sign: &str) {
    let StoreError::Unsupported { reason } = error else { panic!("it is another's: {error:?}") };
    assert!(reason.contains("another machine") && reason.contains(sign), "{reason}");
}

/// A machine that begins to use the directory later, or a container with a boot of its own.
#[test]
fn a_directory_with_holders_of_another_machine_is_refused() {
    let fixture = Fixture::new(1, HOUR);
    let mut worker = fixture.worker("elsewhere");
    worker.acquire("held");
    worker.kill();
    fixture.use_elsewhere();
    let marker = fs::read(fixture.path().join(".permits")).expect("it is there");
    assert_elsewhere(&refusal(fixture.connect()), "try again in");
    let unchanged = fs::read(fixture.path().join(".permits")).expect("it is there") == marker;
    assert!(unchanged, "the other machine goes on");
    fixture.restart(0);
    fixture.assert_at_rest();
}

/// Within a lease whoever is alive there has written again: it was a container that has restarted, or the
/// wall clock of this machine was behind when it started.
#[test]
fn a_directory_of_another_boot_is_used_when_its_leases_are_over() {
    let fixture = Fixture::new(1, Duration::from_secs(2));
    let mut worker = fixture.worker("elsewhere");
    worker.acquire("held");
    worker.kill();
    fixture.use_elsewhere();
    let mut refused = 0;
    let connected = wait::until(|| match fixture.connect() {
        Ok(_) => true,
        Err(_) => {
            refused += 1;
            false
        }
    });
    assert!(connected && refused > 0, "refused {refused} times, and then: {:?}", fixture.connect());
    fixture.assert_at_rest();
}

/// As of a container: its kernel is this one.
#[test]
fn a_directory_in_which_a_session_of_another_boot_is_open_is_refused() {
    let fixture = Fixture::small();
    let client = fixture.client();
    fixture.use_elsewhere();
    assert_elsewhere(&refusal(fixture.connect()), "has a session open");
    client.close().wait().expect("it has nothing");
    fixture.restart(0);
    fixture.assert_at_rest();
}

/// Both began to use the directory before either had holders.
#[test]
fn a_semaphore_that_another_machine_uses_is_refused() {
    let fixture = Fixture::new(1, HOUR);
    let client = fixture.client();
    let mut worker = fixture.worker("elsewhere");
    worker.acquire("held");
    worker.kill();
    from_another_boot(&fixture.state(), 0);
    match fixture.semaphore(&client).try_acquire().wait() {
        Err(AcquireError::Store(error)) => assert_elsewhere(&error, "try again in"),
        other => panic!("it is held elsewhere: {other:?}"),
    }
    client.named("other", 1).acquire().wait().expect("it is free").release().wait().expect("it is held");
    client.close().wait().expect("the directory can be used");
}

/// A time namespace, which a container may have, has the same boot and another time since the boot. A process
/// with another offset of the time that includes sleep believes that the machine has slept while the permit
/// was held.
#[test]
fn a_time_namespace_and_a_sleep_of_the_machine_change_no_lease() {
    let fixture = Fixture::small();
    for (clock, offset) in [("--monotonic", "100000"), ("--monotonic", "-10"), ("--boottime", "100000")] {
        let unshare = |script: &str| {
            let mut command = Command::new("unshare");
            command.args(["--user", "--map-root-user", "--time", clock, offset, "sh", "-c", script]);
            command
        };
        if skip::unless_it_runs(&mut unshare("true")) {
            return;
        }
        let client = fixture.client();
        let held = fixture.semaphore(&client).acquire().wait().expect("it is free");
        let mut command = unshare("exec \"$0\" \"$@\"");
        command.arg(std::env::current_exe().expect("a test knows its executable"));
        command.args(child_task::ARGUMENTS);
        child_task::done(child_task::send(&mut command, "in_another_time", &fixture.path()));
        held.renew().wait().expect("it is held all the while");
        let before = held.token();
        held.release().wait().expect("it is held");
        let after = token(&fixture, SEMAPHORE);
        assert!(after - before < HOUR_US as u64, "tokens are on the clock of the machine");
        client.close().wait().expect("the directory can be used");
    }
    fixture.assert_at_rest();
}

/// A child task: inspects permits from outside of the namespace, and acquires one.
pub(crate) fn in_another_time() {
    let client = Client::connect(&url(&child_task::place())).wait().expect("the directory can be used");
    match client.named(SEMAPHORE, 1).try_acquire().wait() {
        Err(AcquireError::NoPermits) => {}
        other => panic!("it is held outside: {other:?}"),
    }
    client.named("inside", 1).acquire().wait().expect("it is free").release().wait().expect("it is held");
    client.close().wait().expect("the directory can be used");
}
