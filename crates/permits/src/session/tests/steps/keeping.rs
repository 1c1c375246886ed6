//! Permits that a session keeps.

use std::sync::Arc;

use super::*;
use crate::session::shelf::{Keep, Shelf};

const IDLE: Duration = Duration::from_secs(1);

/// A request whose permit the session may keep for `idle`, and the permission to do so.
fn request(bench: &mut Bench, idle: Duration) -> (PendingAcquire, Keep) {
    let terms = PermitTerms { keep: true, ..PermitTerms::new(1, millis(LEASE)) };
    let spec = spec(&bench.session, "a", terms, Declaration::Stored);
    let shelf = bench.session.shelf(&spec.semaphore);
    let keep = Keep { shelf, idle, declaration: Declaration::Stored };
    let mut pending = PendingAcquire::new(&bench.session, AcquireSpec { keep: Some(keep.clone()), ..spec });
    pending.send();
    (pending, keep)
}

/// Answers that no request needs units.
pub(super) fn answer_keepable(bench: &mut Bench, call: Call, answers: Answers) {
    let reply = Reply { keepable: true, ..reply(1, answers) };
    bench.engine.on_return(call.sent, Ok(Executed { reply, confirmed: 1 }), bench.now);
    bench.engine.take_outbox().deliver(None);
}

/// A permit that the session may keep, and its shelf.
pub(super) fn keepable(bench: &mut Bench) -> (PermitGuard, Arc<Shelf>) {
    let (mut pending, keep) = request(bench, IDLE);
    let call = bench.call();
    answer_keepable(bench, call, granted());
    (taken(&mut pending), keep.shelf)
}

/// A permit that the session keeps.
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

/// A regression: the next look came too late, after the longest time of any permit in use, or when the kept
/// permit was due.
#[test]
fn a_permit_with_a_short_time_is_released_in_time_beside_one_with_a_long_time() {
    for other_is_kept in [false, true] {
        let mut bench = Bench::new();
        let (mut other, _) = request(&mut bench, 5 * IDLE);
        let call = bench.call();
        answer_keepable(&mut bench, call, granted());
        let mut other = taken(&mut other);
        let (mut short, shelf) = keepable(&mut bench);
        assert!(!other_is_kept || other.put_back(bench.now), "it is kept");
        for _ in 0..5 {
            assert!(bench.calls().is_empty(), "both are in use, or to be kept");
            bench.pass(IDLE / 2);
        }
        assert!(short.put_back(bench.now));
        bench.pass(IDLE / 2);
        assert!(bench.calls().is_empty(), "its time is not up, beside one that is kept: {other_is_kept}");
        bench.pass(IDLE / 2);
        assert_released(&mut bench);
        assert_eq!(shelf.is_empty(), !other_is_kept, "the other one stays");
    }
}

/// A hash slot of a cluster may have moved, for example: a recall may have been missed.
#[test]
fn a_connection_that_comes_up_releases_what_is_kept() {
    let mut bench = Bench::new();
    let shelf = kept(&mut bench);
    bench.engine.on_up(bench.now);
    assert!(shelf.is_empty());
    assert_released(&mut bench);
}

/// Recalls of a semaphore that the session has forgotten do not reach its shelf. The grant is pushed before
/// the reply that says that others wait.
#[test]
fn nothing_is_kept_of_a_semaphore_that_was_forgotten_before_the_next_reply() {
    let mut bench = Bench::new();
    let _shelf = kept(&mut bench);
    bench.pass(IDLE);
    let release = bench.call();
    answer_keepable(&mut bench, release, Answers::Release(vec![ReleaseOutcome::Held]));
    assert!(bench.calls().is_empty(), "it is forgotten");
    let (mut pending, _) = request(&mut bench, IDLE);
    let call = bench.call();
    bench.push(&asked(&call), EventKind::Granted(GRANT));
    assert!(!taken(&mut pending).put_back(bench.now));
}

/// The release tells the token, so that the store's next token is above it.
#[test]
fn the_release_of_a_recalled_permit_has_the_last_token_that_was_used() {
    let mut bench = Bench::new();
    let (mut pending, keep) = request(&mut bench, IDLE);
    let call = bench.call();
    answer_keepable(&mut bench, call, granted());
    assert!(taken(&mut pending).put_back(bench.now));
    bench.pass(Duration::from_millis(1));
    let now = bench.now;
    let again = keep.shelf.take(Declaration::Stored, |_| true, || now).expect("it is kept");
    assert!(keep.put_back(&again, now));
    bench.engine.on_recall(&Name::new("a").expect("valid"), now);
    let call = bench.call();
    let Operation::Release(releases) = &call.command.operation else { panic!("{:?}", call.command) };
    assert_eq!(releases[0].last_token, Some(GRANT.token + 1));
}

/// The confirmation comes by another connection than the recall, which it may have overtaken.
#[test]
fn a_confirmation_by_replicas_allows_to_keep_nothing() {
    let mut bench = Bench::with(Config { replicas: 1, ..config("session", LEASE) });
    let (mut pending, _) = request(&mut bench, IDLE);
    let call = bench.call();
    answer_keepable(&mut bench, call, granted());
    let confirmation = bench.call();
    assert_eq!(confirmation.replicas, 1);
    bench.engine.on_recall(&Name::new("a").expect("valid"), bench.now);
    answer_keepable(&mut bench, confirmation, renewed(RenewOutcome::Held));
    assert!(!taken(&mut pending).put_back(bench.now));
}

#[test]
fn a_kept_permit_that_is_revoked_is_on_the_shelf_no_more() {
    let mut bench = Bench::new();
    let (mut held, shelf) = keepable(&mut bench);
    let holder = (held.state.semaphore.clone(), held.state.holder.clone(), held.state.request.clone());
    assert!(held.put_back(bench.now) && !shelf.is_empty());
    bench.push(&holder, EventKind::Revoked("no".into()));
    assert!(shelf.is_empty() && bench.calls().is_empty());
}

/// The store may count the permit for longer than the session does, and no caller will release it.
#[test]
fn a_kept_permit_whose_lease_ends_is_released() {
    let mut bench = Bench::new();
    let (mut pending, keep) = request(&mut bench, 2 * LEASE);
    let call = bench.call();
    answer_keepable(&mut bench, call, granted());
    assert!(taken(&mut pending).put_back(bench.now));
    bench.pass(LEASE);
    assert!(keep.shelf.is_empty());
    assert_released(&mut bench);
}

/// A kept permit has no holder that could lose it.
#[test]
fn a_session_that_closes_releases_what_it_keeps_and_loses_none_of_it() {
    let mut bench = Bench::new();
    let (mut held, shelf) = keepable(&mut bench);
    assert!(held.put_back(bench.now) && !shelf.is_empty());
    bench.session.send(Message::Close { answer: None });
    assert_released(&mut bench);
    assert!(shelf.is_empty());
    assert_eq!(held.state.reason(), None);
}
