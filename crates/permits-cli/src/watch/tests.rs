//! The differences of two inspections, and their lines.

use std::time::{Duration, SystemTime};

use permits::{ChangeInfo, Counts, HolderInfo, Inspection, OperatorChange, WaiterInfo};

use super::difference::{differences, first};
use super::event::{Cause, WatchEvent};
use super::text;

/// The time between two inspections.
const ELAPSED: Duration = Duration::from_secs(1);

/// A holder granted before the first inspection, or after it.
fn holder(name: &str, token: u64, age: Duration) -> HolderInfo {
    let lease_remaining = Duration::from_secs(10);
    HolderInfo {
        holder: name.into(),
        weight: 1,
        slot: 0,
        token,
        age,
        lease_remaining,
        cooling: false,
        may_be_kept: false,
        label: None,
        lane: None,
    }
}

fn old(name: &str, token: u64) -> HolderInfo {
    holder(name, token, ELAPSED * 9)
}

fn new(name: &str, token: u64) -> HolderInfo {
    holder(name, token, ELAPSED / 2)
}

fn waiter(name: &str, position: u64) -> WaiterInfo {
    WaiterInfo {
        holder: name.into(),
        weight: 2,
        position,
        age: ELAPSED * 9,
        label: Some("nightly".into()),
        lane: None,
    }
}

/// A state in which all holders and waiters are listed.
fn detail(holders: Vec<HolderInfo>, waiters: Vec<WaiterInfo>, counts: Counts) -> Inspection {
    let held = holders.iter().map(|holder| u64::from(holder.weight)).sum();
    let waiting = waiters.len() as u64;
    Inspection { limit: Some(4), held, waiting, counts, holders, waiters, ..Inspection::default() }
}

fn grants(grants: u64) -> Counts {
    Counts { grants, ..Counts::default() }
}

fn left(name: &str, token: u64, cause: Cause) -> WatchEvent {
    WatchEvent::Left { holder: name.into(), weight: 1, token, cause, label: None, held_ms: 10_000 }
}

fn left_queue(name: &str, cause: Cause) -> WatchEvent {
    WatchEvent::LeftQueue {
        holder: name.into(),
        weight: 2,
        cause,
        label: Some("nightly".into()),
        waited_ms: 10_000,
    }
}

fn granted(name: &str, token: u64) -> WatchEvent {
    WatchEvent::Granted { holder: name.into(), weight: 1, slot: 0, token, label: None }
}

fn counts(rise: Counts, unseen: Option<u64>) -> WatchEvent {
    WatchEvent::Counts { rise, unseen }
}

#[test]
fn nothing_has_changed() {
    let same = || detail(vec![old("a", 1)], vec![waiter("b", 0)], grants(1));
    assert_eq!(differences(&same(), &same(), ELAPSED), []);
    assert_eq!(first(&same()), [WatchEvent::State]);
}

#[test]
fn a_permit_goes_to_the_head_of_the_line() {
    let before = detail(vec![old("a", 1)], vec![waiter("b", 0), waiter("c", 1)], grants(1));
    let now = detail(vec![new("b", 2)], vec![waiter("c", 0)], grants(2));
    let expected = [left("a", 1, Cause::Released), granted("b", 2), counts(grants(1), Some(0))];
    assert_eq!(differences(&before, &now, ELAPSED), expected);
}

#[test]
fn a_second_permit_of_one_holder_is_another() {
    let before = detail(vec![old("a", 1)], vec![], grants(1));
    let now = detail(vec![new("a", 3)], vec![], grants(3));
    let expected = [left("a", 1, Cause::Released), granted("a", 3), counts(grants(2), Some(1))];
    assert_eq!(differences(&before, &now, ELAPSED), expected);
}

#[test]
fn a_second_request_of_one_waiter_is_another() {
    let before = detail(vec![], vec![waiter("a", 0)], grants(1));
    let again = WaiterInfo { age: ELAPSED / 2, ..waiter("a", 0) };
    let label = Some("nightly".to_owned());
    let queued = WatchEvent::Queued { holder: "a".into(), weight: 2, position: 0, label };
    let now = detail(vec![], vec![again.clone()], grants(1));
    let expected = [left_queue("a", Cause::Cancelled), queued.clone()];
    assert_eq!(differences(&before, &now, ELAPSED), expected);
    // The first request may have been granted in between.
    let now = detail(vec![], vec![again], grants(2));
    let expected = [left_queue("a", Cause::Unknown), queued, counts(grants(1), Some(1))];
    assert_eq!(differences(&before, &now, ELAPSED), expected);
}

#[test]
fn the_cause_of_an_end_is_known_or_unknown() {
    let ended = HolderInfo { lease_remaining: ELAPSED / 2, ..old("a", 1) };
    let expired = Counts { expired: 1, ..Counts::default() };
    let revoked = Counts { revoked: 1, ..Counts::default() };
    let both = Counts { expired: 1, revoked: 1, ..Counts::default() };
    for (holder, totals, cause) in [
        (old("a", 1), Counts::default(), Cause::Released),
        (old("a", 1), expired, Cause::Released),
        (old("a", 1), revoked, Cause::Revoked),
        (ended.clone(), Counts::default(), Cause::Released),
        (ended.clone(), expired, Cause::Expired),
        (ended.clone(), both, Cause::Unknown),
        (HolderInfo { cooling: true, ..ended.clone() }, expired, Cause::Released),
    ] {
        let before = detail(vec![holder.clone()], vec![], Counts::default());
        let events = differences(&before, &detail(vec![], vec![], totals), ELAPSED);
        assert_eq!(events[0], left("a", 1, cause), "{holder:?} {totals:?}");
    }
    // One counted, two gone.
    let before = detail(vec![ended.clone(), HolderInfo { token: 2, ..ended }], vec![], Counts::default());
    let events = differences(&before, &detail(vec![], vec![], expired), ELAPSED);
    assert_eq!(events[..2], [left("a", 1, Cause::Unknown), left("a", 2, Cause::Unknown)]);
}

/// A change that `admin` has made so long after 1970.
fn change(after: Duration, change: OperatorChange) -> ChangeInfo {
    ChangeInfo { change, by: "admin".into(), at: SystemTime::UNIX_EPOCH + after, age: Duration::ZERO }
}

#[test]
fn a_change_by_an_operator_has_its_author() {
    let paused = || OperatorChange::Paused { time: None, reason: String::new() };
    let of = |changes: &[ChangeInfo]| Inspection { changes: changes.to_vec(), ..Inspection::default() };
    let (first, second) = (change(ELAPSED, paused()), change(ELAPSED * 2, OperatorChange::LimitSet(3)));
    let again = change(ELAPSED * 3, paused());
    let now = of(&[again, second, first.clone()]);
    let events = differences(&of(&[first]), &now, ELAPSED);
    let line = |event| text::line(event, SystemTime::UNIX_EPOCH, None, String::new);
    let lines: Vec<String> = events.iter().map(line).collect();
    let at = "1970-01-01T00:00:00Z";
    assert_eq!(lines, [format!("{at}  admin set the limit to 3"), format!("{at}  admin paused")]);
    assert_eq!(differences(&now, &now, ELAPSED), []);
}

#[test]
fn a_revocation_names_its_holder() {
    let revoked = Counts { revoked: 2, expired: 9, ..Counts::default() };
    let ended = |name, token| HolderInfo { lease_remaining: ELAPSED / 2, ..old(name, token) };
    let before = detail(vec![ended("a", 1), ended("b", 2)], vec![waiter("c", 0)], Counts::default());
    let of = |name: &str| OperatorChange::Revoked { holder: name.into(), waited: false, reason: "".into() };
    let changes = vec![change(ELAPSED * 2, of("c")), change(ELAPSED, of("a"))];
    let now = Inspection { changes, ..detail(vec![], vec![], revoked) };
    let events = differences(&before, &now, ELAPSED);
    let expected =
        [left("a", 1, Cause::Revoked), left("b", 2, Cause::Expired), left_queue("c", Cause::Revoked)];
    assert_eq!(events[2..5], expected);
}

#[test]
fn a_waiter_is_refused_by_a_closed_line_or_a_lower_limit_alone() {
    let refused = Counts { refused: 1, ..Counts::default() };
    let before = detail(vec![], vec![waiter("a", 0)], Counts::default());
    let now = detail(vec![], vec![], refused);
    for (now, cause) in [
        (now.clone(), Cause::Cancelled),
        (Inspection { closed: Some(String::new()), ..now.clone() }, Cause::Refused),
        (Inspection { limit: Some(1), ..now.clone() }, Cause::Refused),
    ] {
        let events = differences(&before, &now, ELAPSED);
        assert!(events.contains(&left_queue("a", cause)), "{events:?}");
    }
}

#[test]
fn a_permit_cools_and_then_ends() {
    let cooling = || detail(vec![HolderInfo { cooling: true, ..old("a", 1) }], vec![], grants(1));
    let before = detail(vec![old("a", 1)], vec![], grants(1));
    let event = WatchEvent::Cooling {
        holder: "a".into(),
        weight: 1,
        token: 1,
        lease_remaining_ms: 10_000,
        label: None,
    };
    assert_eq!(differences(&before, &cooling(), ELAPSED), [event]);
    assert_eq!(differences(&cooling(), &cooling(), ELAPSED), []);
}

#[test]
fn each_setting_has_an_event() {
    let plain = Inspection { limit: Some(4), limit_version: 1, ..Inspection::default() };
    let event = |now: &Inspection| (differences(&plain, now, ELAPSED), differences(now, &plain, ELAPSED));
    let limit = |limit, before, limit_version| WatchEvent::Limit { limit, before, limit_version };
    for (now, on, off) in [
        (
            Inspection { paused: true, pause_reason: Some("429".into()), ..plain.clone() },
            WatchEvent::Paused { reason: "429".into(), pause_remaining_ms: None },
            WatchEvent::Resumed,
        ),
        (
            Inspection { closed: Some("x".into()), ..plain.clone() },
            WatchEvent::Closed { reason: "x".into() },
            WatchEvent::Opened,
        ),
        (
            Inspection { pinned: true, limit_version: 2, ..plain.clone() },
            WatchEvent::Pinned,
            WatchEvent::Unpinned,
        ),
        (
            Inspection { recovering: ELAPSED, ..plain.clone() },
            WatchEvent::Recovering { recovering_ms: 1000 },
            WatchEvent::Recovered,
        ),
        (
            Inspection { limit: Some(9), limit_version: 2, ..plain.clone() },
            limit(Some(9), Some(4), 2),
            limit(Some(4), Some(9), 1),
        ),
    ] {
        assert_eq!(event(&now), (vec![on], vec![off]));
    }
    // Changed and changed back.
    let twice = Inspection { limit_version: 3, ..plain.clone() };
    assert_eq!(event(&twice).0, [limit(Some(4), Some(4), 3)]);
}

#[test]
fn a_list_that_is_not_whole_yields_no_ends() {
    let whole = detail(vec![old("a", 1), old("b", 2)], vec![waiter("c", 0)], grants(2));
    let mut cut = detail(vec![old("x", 9)], vec![], grants(4));
    (cut.held, cut.waiting) = (2000, 1500);
    let partial = WatchEvent::Partial { holders: true, waiters: true };
    assert_eq!(differences(&whole, &cut, ELAPSED), [partial.clone(), counts(grants(2), None)]);
    assert_eq!(first(&cut), [WatchEvent::State, partial]);
    assert_eq!(differences(&cut, &cut, ELAPSED), []);
    let mut fewer = cut.clone();
    (fewer.holders, fewer.held) = (vec![old("y", 10)], 1999);
    assert_eq!(differences(&cut, &fewer, ELAPSED), [counts(Counts::default(), None)]);
    let later = detail(whole.holders.clone(), whole.waiters.clone(), grants(4));
    let again = WatchEvent::Partial { holders: false, waiters: false };
    assert_eq!(
        differences(&cut, &later, ELAPSED),
        [again, counts(Counts::default(), None), WatchEvent::State]
    );
}

#[test]
fn after_a_loss_of_the_state_permits_are_put_back() {
    let before = detail(vec![old("a", 1)], vec![waiter("b", 0)], grants(7));
    let lost = detail(vec![], vec![], Counts::default());
    assert_eq!(differences(&before, &lost, ELAPSED), [WatchEvent::Reset, WatchEvent::State]);
    let back = detail(vec![old("a", 1)], vec![], Counts::default());
    let restored = WatchEvent::Restored { holder: "a".into(), weight: 1, slot: 0, token: 1, label: None };
    assert_eq!(differences(&lost, &back, ELAPSED), [restored]);
}

#[test]
fn a_line_begins_with_the_time() {
    let at = SystemTime::UNIX_EPOCH + Duration::from_millis(1_795_367_655_999);
    let of = |event: &WatchEvent, name| text::line(event, at, name, || "exports: 1 of 4 held".into());
    let line = |event: &WatchEvent| of(event, None);
    for name in [None, Some("exports")] {
        assert_eq!(of(&WatchEvent::State, name), "2026-11-22T17:14:15Z  exports: 1 of 4 held");
    }
    assert_eq!(line(&granted("a", 1)), "2026-11-22T17:14:15Z  a was granted, slot 0");
    assert_eq!(of(&granted("a", 1), Some("exports")), "2026-11-22T17:14:15Z  exports: a was granted, slot 0");
    assert_eq!(line(&left("a", 1, Cause::Released)), "2026-11-22T17:14:15Z  a left after 10 s, released");
    let cancelled = "2026-11-22T17:14:15Z  \"nightly\" (a) left the queue after 10 s, cancelled";
    assert_eq!(line(&left_queue("a", Cause::Cancelled)), cancelled);
    let refused = Counts { refused: 2, grants: 3, ..Counts::default() };
    let expected = "2026-11-22T17:14:15Z  counted: 3 granted, 2 refused, of which 3 ended between two reads";
    assert_eq!(line(&counts(refused, Some(3))), expected);
    assert!(!text::is_worth_a_line(&counts(grants(1), Some(0)), false));
    assert!(text::is_worth_a_line(&counts(grants(1), None), true));
    let closed = WatchEvent::Closed { reason: "moved".into() };
    assert!(text::is_worth_a_line(&closed, false) && !text::is_worth_a_line(&closed, true));
}
