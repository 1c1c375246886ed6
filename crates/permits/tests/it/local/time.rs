//! The machine restarts, its wall clock is wrong, or a process is in a time namespace.
//!
//! A test cannot restart the machine or set its clock. But the table `meta` has all that the store knows of
//! them: the boot in which the file was last used, and the store's time at its start.

use std::process::Command;
use std::time::Duration;

use permits::Client;
use permits::{AcquireError, RenewError, StoreError};
use permits_testkit::in_real_time;
use permits_testkit::sound::Named as _;
use permits_testkit::worker::{SEMAPHORE, micros};

use crate::local::child_task;
use crate::local::fixture::{Fixture, url};

const HOUR_US: i64 = 3_600_000_000;

/// Makes the file look last used in another boot of the machine, when the wall clock was an hour ahead.
fn restart(fixture: &Fixture) {
    let sql = "UPDATE meta SET boot = 'an earlier one'";
    assert_eq!(fixture.sqlite().execute(sql, []).expect("it has the table"), 1);
}

/// Makes the file look made when the wall clock was ahead by `ahead_us`.
fn made_with_clock_ahead(fixture: &Fixture, ahead_us: i64) {
    fixture.client().close().wait().expect("the file can be used");
    let sql = "UPDATE meta SET base_us = base_us + ?1";
    assert_eq!(fixture.sqlite().execute(sql, [ahead_us]).expect("it has the table"), 1);
}

#[test]
fn a_restart_of_the_machine_ends_all_leases() {
    let fixture = Fixture::new(2, Duration::from_secs(3600));
    let mut workers = [fixture.worker("one"), fixture.worker("two"), fixture.worker("waiter")];
    workers[0].acquire("first");
    workers[1].acquire("second");
    workers[2].ask("third");
    fixture.await_waiting(1);
    for worker in &mut workers {
        worker.kill();
    }
    restart(&fixture);
    // At once, although the leases last an hour.
    fixture.assert_at_rest();
}

#[test]
fn tokens_rise_over_a_restart_after_which_the_wall_clock_is_behind() {
    let fixture = Fixture::small();
    made_with_clock_ahead(&fixture, HOUR_US);
    let client = fixture.client();
    let before = fixture.semaphore(&client).acquire().wait().expect("it is free").token();
    client.close().wait().expect("the file can be used");
    restart(&fixture);
    let client = fixture.client();
    let after = fixture.semaphore(&client).acquire().wait().expect("all leases have ended").token();
    assert!(before < after, "{before} {after}");
    client.close().wait().expect("the file can be used");
    fixture.assert_at_rest();
}

#[test]
fn pinned_limits_and_pauses_outlast_a_restart() {
    let fixture = Fixture::small();
    let client = fixture.client();
    let semaphore = fixture.semaphore(&client);
    semaphore.set_limit(7).wait().expect("the file can be used");
    semaphore.pause("").wait().expect("the file can be used");
    client.close().wait().expect("the file can be used");
    restart(&fixture);
    let client = fixture.client();
    let seen = fixture.semaphore(&client).inspect().wait().expect("the file can be used");
    assert_eq!((seen.limit, seen.pinned, seen.paused), (Some(7), true, true));
    client.close().wait().expect("the file can be used");
}

/// The store never reads the wall clock once there is a file. Otherwise a difference of an hour would end
/// every lease at once, or none for an hour.
#[test]
fn a_wrong_wall_clock_changes_nothing() {
    in_real_time(|| {
        for ahead_us in [-HOUR_US, HOUR_US] {
            let fixture = Fixture::new(1, Duration::from_secs(1));
            made_with_clock_ahead(&fixture, ahead_us);
            let (mut holder, mut waiter) = (fixture.worker("holder"), fixture.worker("waiter"));
            let first = holder.acquire("first");
            waiter.ask("next");
            fixture.await_waiting(1);
            holder.renewed("first");
            holder.kill();
            let next = waiter.acquired("next");
            let until = holder.granted("first").until;
            assert!(until <= next.acquired && next.acquired < until + 10 * micros(fixture.settings.lease));
            let wall =
                std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("it is later");
            let off = i64::try_from(next.token).expect("it is small")
                - i64::try_from(micros(wall)).expect("it is small");
            assert!((off - ahead_us).abs() < HOUR_US / 2, "tokens are on the clock of the file: {off}");
            assert!(first.token < next.token);
            waiter.release("next");
            waiter.close();
            fixture.assert_safe();
            fixture.assert_at_rest();
        }
    });
}

/// Two machines can share one file by a file system that the store does not recognize. Neither sees the
/// other's locks, but each sees that the file was used in another boot.
#[test]
fn another_machine_that_uses_the_file_is_noticed() {
    let fixture = Fixture::small();
    let client = fixture.client();
    let held = fixture.semaphore(&client).acquire().wait().expect("it is free");
    restart(&fixture);
    match held.renew().wait() {
        Err(RenewError::Store(StoreError::Unsupported { reason })) => {
            assert!(reason.contains("another machine"), "{reason}");
        }
        other => panic!("it is another's now: {other:?}"),
    }
    drop(held);
    drop(client);
    fixture.assert_at_rest();
}

/// In a time namespace, which a container may have, the boot is the same and the time since it is another.
#[test]
fn a_process_in_a_time_namespace_keeps_the_same_leases() {
    let fixture = Fixture::small();
    for offset in ["100000", "-10"] {
        let unshare = |script: &str| {
            let mut command = Command::new("unshare");
            command.args(["--user", "--map-root-user", "--time", "--boottime", offset, "sh", "-c", script]);
            command
        };
        if !unshare("true").output().is_ok_and(|output| output.status.success()) {
            return println!("skipped: this system does not let its users make time namespaces");
        }
        let client = fixture.client();
        let held = fixture.semaphore(&client).acquire().wait().expect("it is free");
        let mut command = unshare("exec \"$0\" \"$@\"");
        command.arg(std::env::current_exe().expect("a test knows its executable"));
        let said = child_task::done(child_task::send(
            command.args(child_task::ARGUMENTS),
            "in_another_time",
            &fixture.path(),
        ));
        println!("{said:#?}");
        held.renew().wait().expect("it is held all the while");
        let token = held.token();
        held.release().wait().expect("it is held");
        let next = fixture.semaphore(&client).acquire().wait().expect("it is free");
        assert!(next.token() - token < 3_600_000_000, "tokens are on the clock of the machine");
        next.release().wait().expect("it is held");
        client.close().wait().expect("the file can be used");
    }
    fixture.assert_at_rest();
}

/// a child task: inspects permits from outside of the namespace, and acquires one.
pub(crate) fn in_another_time() {
    let client = Client::connect(&url(&child_task::place())).wait().expect("the file can be used");
    match client.named(SEMAPHORE, 1).try_acquire().wait() {
        Err(AcquireError::NoPermits) => {}
        other => panic!("it is held outside: {other:?}"),
    }
    client.named("inside", 1).acquire().wait().expect("it is free").release().wait().expect("it is held");
    client.close().wait().expect("the file can be used");
}
