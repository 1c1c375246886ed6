//! Permits that a session keeps.

use std::sync::Arc;

use super::*;
use crate::session::shelf::{Keep, Shelf};
use crate::session::spec::AcquireSpec;

const IDLE: Duration = Duration::from_secs(1);

/// A permit that the session may keep. Its shelf.
fn keepable(bench: &mut Bench) -> (PermitGuard, Arc<Shelf>) {
    let terms = PermitTerms { keep: true, ..PermitTerms::new(1, millis(LEASE)) };
    let spec = spec(&bench.session, "a", terms, Declaration::Stored);
    let shelf = bench.session.shelf(&spec.semaphore);
    let keep = Some(Keep { shelf: shelf.clone(), idle: IDLE, declaration: Declaration::Stored });
    let mut pending = PendingAcquire::new(&bench.session, AcquireSpec { keep, ..spec });
    pending.send();
    let call = bench.call();
    let reply = Reply { keepable: true, ..reply(1, granted()) };
    bench.engine.on_return(call.sent, Ok(Executed { reply, confirmed: 0 }), bench.now);
    bench.engine.take_outbox().deliver(None);
    (taken(&mut pending), shelf)
}

/// One that it keeps.
fn kept(bench: &mut Bench) -> Arc<Shelf> {
    let (mut held, shelf) = keepable(bench);
    assert!(held.put_back(bench.now) && !shelf.is_empty(), "it is kept");
    assert!(bench.calls().is_empty(), "the store is not asked");
    shelf
}

#[track_caller]
fn assert_released(bench: &mut Bench) {
    let call = bench.call();
    assert!(matches!(call.command.operation, Operation::Release(_)), "{:?}", call.command);
}

#[test]
fn a_recall_releases_what_is_kept() {
    let mut bench = Bench::new();
    let shelf = kept(&mut bench);
    bench.engine.on_recall(&Name::new("a").expect("valid"), bench.now);
    assert!(shelf.is_empty());
    assert_released(&mut bench);
}

#[test]
fn nothing_is_kept_while_the_store_cannot_be_reached() {
    let mut bench = Bench::new();
    let shelf = kept(&mut bench);
    bench.engine.on_down(StoreError::Unreachable { reason: "cut".into() }, bench.now);
    assert!(shelf.is_empty(), "a recall would not arrive");

    let mut bench = Bench::new();
    let (mut held, _) = keepable(&mut bench);
    bench.engine.on_down(StoreError::Unreachable { reason: "cut".into() }, bench.now);
    assert!(!held.put_back(bench.now));
}

#[test]
fn a_call_without_an_answer_releases_what_is_kept() {
    let mut bench = Bench::new();
    let shelf = kept(&mut bench);
    let _other = bench.acquire("a", LEASE);
    let call = bench.call();
    bench.engine.on_return(call.sent, Err(StoreError::NoAnswer { reason: "lost".into() }), bench.now);
    assert!(shelf.is_empty());
}

#[test]
fn what_no_request_takes_is_released_in_time() {
    let mut bench = Bench::new();
    let shelf = kept(&mut bench);
    bench.pass(IDLE - Duration::from_millis(1));
    assert!(!shelf.is_empty());
    bench.pass(Duration::from_millis(1));
    assert!(shelf.is_empty());
    assert_released(&mut bench);
}
