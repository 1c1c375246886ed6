//! An acquisition whose thread is blocked is cancelled by another thread.

use std::thread;
use std::time::Duration;

use permits::{AcquireError, Recovery};
use permits::{Canceller, Client, Permit};
use permits_testkit::sound::Named as _;

use crate::cancellation::fixture::Fixture;
use crate::cancellation::{LEASE, UNITS};

type Waiting = thread::JoinHandle<Result<Permit, AcquireError>>;

/// A client that reaches the server through the proxy.
fn client(fixture: &Fixture) -> Client {
    let builder = Client::builder(fixture.proxy.url()).recovery(Recovery::Off).lease(LEASE);
    builder.connect().wait().expect("the server is up")
}

/// A thread that acquires, and what cancels it.
fn start(client: &Client) -> (Waiting, Canceller) {
    let semaphore = client.named("exports", UNITS);
    let acquire = semaphore.acquire();
    let canceller = acquire.canceller();
    (thread::spawn(move || acquire.wait()), canceller)
}

fn result(waiting: Waiting) -> Result<Permit, AcquireError> {
    waiting.join().expect("it does not panic")
}

#[test]
fn one_that_has_not_begun_does_not_wait() {
    let fixture = Fixture::new();
    let client = client(&fixture);
    fixture.block();
    let semaphore = client.named("exports", UNITS);
    let acquire = semaphore.acquire();
    acquire.canceller().cancel();
    assert_eq!(acquire.wait().err(), Some(AcquireError::Cancelled));
    fixture.settles(UNITS.into(), 0);
    fixture.unblock();
    fixture.all_units_come_back();
}

#[test]
fn one_whose_reply_is_on_its_way_is_released() {
    let fixture = Fixture::new();
    let client = client(&fixture);
    fixture.proxy.delay_replies(Duration::MAX / 4);
    let (waiting, canceller) = start(&client);
    fixture.settles(1, 0);
    canceller.cancel();
    assert_eq!(result(waiting).err(), Some(AcquireError::Cancelled));
    fixture.heal();
    fixture.all_units_come_back();
}

#[test]
fn one_that_was_granted_has_its_permit() {
    let fixture = Fixture::new();
    let client = client(&fixture);
    let (waiting, canceller) = start(&client);
    let permit = result(waiting).expect("it is free");
    canceller.cancel();
    assert!(permit.is_held());
    permit.release().wait().expect("it is held");
    fixture.all_units_come_back();
}

#[test]
fn a_canceller_keeps_no_client_open() {
    let fixture = Fixture::new();
    let client = client(&fixture);
    let (waiting, canceller) = start(&client);
    drop(result(waiting).expect("it is free"));
    client.close().wait().expect("the server is up");
    canceller.cancel();
    fixture.all_units_come_back();
}

#[test]
fn many_that_are_cancelled_while_units_are_handed_on_leave_nothing() {
    let fixture = Fixture::new();
    let client = client(&fixture);
    for _ in 0..50 {
        fixture.block();
        let started: Vec<_> = (0..8).map(|_| start(&client)).collect();
        let (threads, cancellers): (Vec<_>, Vec<_>) = started.into_iter().unzip();
        let cancelling = thread::spawn(move || cancellers.iter().for_each(Canceller::cancel));
        fixture.unblock();
        for result in threads.into_iter().map(result) {
            assert!(matches!(result, Ok(_) | Err(AcquireError::Cancelled)), "{result:?}");
        }
        cancelling.join().expect("it does not panic");
    }
    fixture.all_units_come_back();
}
