//! Permits that a session keeps, on one thread. See [`threads`](super::threads) for several.

use std::sync::Arc;
use std::time::Duration;

use super::requested;
use crate::clock::Moment;
use crate::keeping::Notice;
use crate::model::KEPT_TOKENS;
use crate::protocol::{Declaration, Grant};
use crate::session::permit_state::PermitState;
use crate::session::shelf::{Keep, Shelf};
use crate::sys::process::Process;

const LONG: Duration = Duration::from_secs(60);

/// A permit that is granted at this time: the references of the engine and of the holder.
fn granted(at: Moment) -> [Arc<PermitState>; 2] {
    let grant = Grant { token: 7, slot: 0 };
    let (until, granted) = (Moment::now() + LONG, (at, Duration::ZERO));
    let permit = PermitState::new(requested(), grant, until, granted, Process::current());
    let permit = Arc::new(permit);
    [permit.clone(), permit]
}

/// An open shelf, whose permits may be kept for long.
fn open() -> Keep {
    let shelf: Arc<Shelf> = Arc::default();
    assert!(shelf.note(Notice::Reply { keepable: true, limit: 1, in_order: true }).is_empty());
    Keep { shelf, idle: LONG, declaration: Declaration::Stored }
}

fn take(keep: &Keep, clock: impl Fn() -> Moment) -> Option<Arc<PermitState>> {
    keep.shelf.take(Declaration::Stored, |_| true, clock)
}

#[test]
fn tokens_are_not_ahead_of_the_time() {
    let at = Moment::now();
    let (keep, [permit, _engine]) = (open(), granted(at));
    for number in 1..1000 {
        assert!(keep.put_back(&permit, Moment::now()));
        let again = take(&keep, Moment::now).expect("it is kept");
        assert_eq!(again.grant().token, 7 + number);
        assert!(Moment::now().since(at) >= Duration::from_micros(number));
    }
}

#[test]
fn a_permit_that_has_no_token_left_is_not_kept() {
    let (keep, [permit, _engine]) = (open(), granted(Moment::from_micros(0)));
    for _ in 1..KEPT_TOKENS {
        assert!(keep.put_back(&permit, Moment::now()) && take(&keep, Moment::now).is_some());
    }
    assert_eq!(permit.grant().token, 7 + KEPT_TOKENS - 1);
    assert!(!keep.put_back(&permit, Moment::now()));
}

#[test]
fn a_limit_that_is_required_is_the_last_one_that_was_reported() {
    let declaration = Declaration::Require(1);
    let (keep, [permit, _engine]) = (Keep { declaration, ..open() }, granted(Moment::from_micros(0)));
    let take = || keep.shelf.take(declaration, |_| true, Moment::now);
    assert!(keep.put_back(&permit, Moment::now()) && take().is_some());
    assert!(keep.put_back(&permit, Moment::now()));
    assert!(keep.shelf.note(Notice::Reply { keepable: true, limit: 2, in_order: true }).is_empty());
    assert!(take().is_none());
}

#[test]
fn the_permit_that_was_used_last_is_used_next() {
    let at = Moment::from_micros(0);
    let (keep, [first, _engine], [last, _other]) = (open(), granted(at), granted(at));
    assert!(keep.put_back(&first, Moment::now()) && keep.put_back(&last, Moment::now()));
    assert!(Arc::ptr_eq(&take(&keep, Moment::now).expect("it is kept"), &last));
}

#[test]
fn a_permit_that_has_a_token_is_used_before_one_that_has_none_yet() {
    let now = Moment::now();
    let (keep, [early, _engine]) = (open(), granted(Moment::from_micros(0)));
    let [late, _engine] = granted(now);
    assert!(keep.put_back(&early, now) && keep.put_back(&late, now));
    assert!(Arc::ptr_eq(&take(&keep, || now).expect("it is kept"), &early));
    assert!(Arc::ptr_eq(&take(&keep, Moment::now).expect("it is kept"), &late));
    assert!(take(&keep, || now).is_none());
}
