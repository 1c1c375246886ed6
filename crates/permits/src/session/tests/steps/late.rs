//! Callers that have timed out, and the inspection that tells them why.

use std::sync::Arc;

use super::outages::refused;
use super::*;
use crate::inspection::Inspection;
use crate::protocol::{
    Alert, Counts, Inspected, InspectedHolder, InspectedLane, InspectedPause, InspectedWaiter, LaneName,
    Waits,
};
use crate::session::spec::Wait;

const SECOND: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_millis(100);

/// A semaphore of one unit, which is held, and nobody waits.
fn taken_by(holder: &str) -> Inspected {
    Inspected {
        held: 1,
        cooling: 0,
        waiting: 0,
        paused: None,
        closed: None,
        alert: Alert::default(),
        counts: Counts::default(),
        waits: Waits::default(),
        holders: vec![InspectedHolder {
            holder: Holder::new(holder).expect("valid"),
            weight: 1,
            grant: GRANT,
            lease_remaining_ms: 5000,
            cooling: false,
            label: Default::default(),
            keep: false,
            lane: Default::default(),
        }],
        waiters: Vec::new(),
        lanes: Vec::new(),
        changes: Vec::new(),
    }
}

/// The error of a request that has timed out, with the inspection in it.
#[track_caller]
fn timed_out(pending: &mut PendingAcquire) -> (Option<Arc<Inspection>>, AcquireError) {
    let error = refused(pending);
    let AcquireError::TimedOut { waited: SECOND, inspection, .. } = &error else { panic!("{error:?}") };
    (inspection.clone(), error)
}

impl Bench {
    /// Lets a request time out. The store does not say why, so its caller has waited a moment for that.
    #[track_caller]
    pub(super) fn assert_timed_out(&mut self, pending: &mut PendingAcquire, waited: Duration) {
        assert!(pending.try_take().is_none(), "it waits for the reason");
        self.pass(PATIENCE.min(waited / 10));
        let error = AcquireError::TimedOut { waited, inspection: None, retry_after: None };
        assert_eq!(refused(pending), error);
    }

    /// Requests that have waited for a second, and the inspection for them, which comes behind their release.
    fn late<const N: usize>(&mut self) -> ([PendingAcquire; N], [Holder; N], Call) {
        self.late_on(&PermitTerms::new(1, millis(LEASE)))
    }

    /// The same for requests on these terms.
    fn late_on<const N: usize>(&mut self, terms: &PermitTerms) -> ([PendingAcquire; N], [Holder; N], Call) {
        let waiters = [(); N].map(|()| {
            let pending = self.acquire_on(terms.clone(), Wait::AtMost(SECOND));
            let call = self.call();
            let (_, holder, _) = asked(&call);
            self.answer(call, waiting());
            (pending, holder)
        });
        self.pass(SECOND);
        let mut calls = self.calls();
        assert!(matches!(&calls[0].command.operation, Operation::Release(all) if all.len() == N));
        let released = calls.remove(0);
        self.answer(released, Answers::Release(vec![ReleaseOutcome::Waiting; N]));
        assert_eq!(calls.len(), 1);
        assert!(matches!(calls[0].command.operation, Operation::Inspect { .. }), "{:?}", calls[0].command);
        let holders = [0; N].map(|_| None::<Holder>);
        let (mut pending, mut names) = ([0; N].map(|_| None), holders);
        for (index, (waiter, holder)) in waiters.into_iter().enumerate() {
            (pending[index], names[index]) = (Some(waiter), Some(holder));
        }
        let pending = pending.map(|waiter| waiter.expect("it was just set"));
        (pending, names.map(|holder| holder.expect("it was just set")), calls.remove(0))
    }

    fn say(&mut self, inspection: Call, inspected: Inspected) {
        self.say_with(inspection, inspected, |_| ());
    }

    fn say_with(&mut self, inspection: Call, inspected: Inspected, change: impl FnOnce(&mut Reply)) {
        let mut reply = reply(1, Answers::Inspect(Box::new(inspected)));
        change(&mut reply);
        self.engine.on_return(inspection.sent, Ok(Executed { reply, confirmed: 0 }), self.now);
        self.engine.take_outbox().deliver(None);
    }
}

#[test]
fn a_timeout_names_the_holder() {
    let mut bench = Bench::new();
    let ([mut late], _, inspection) = bench.late();
    assert!(late.try_take().is_none(), "it waits for the reason");
    bench.say(inspection, taken_by("web-1"));
    let (inspection, error) = timed_out(&mut late);
    assert_eq!(inspection.expect("the store has answered").holders[0].holder, "web-1");
    assert_eq!(error.to_string(), "no permit within 1s: 1 of 1 held by web-1 for 0 s, 0 waiting");
    assert_eq!((error.retry_after(), error.stands_still()), (None, false));
    assert!(bench.calls().is_empty() && bench.engine.is_idle());
}

#[test]
fn requests_that_time_out_together_share_an_inspection() {
    let mut bench = Bench::new();
    let (late, _, inspection) = bench.late::<3>();
    bench.say(inspection, taken_by("web-1"));
    for mut late in late {
        assert!(timed_out(&mut late).0.is_some());
    }
    assert!(bench.calls().is_empty() && bench.engine.is_idle());
}

/// The inspection in flight was sent before the request left the line.
#[test]
fn a_request_that_times_out_during_an_inspection_is_told_of_by_the_next() {
    let mut bench = Bench::new();
    let ([mut early], _, first) = bench.late();
    let mut late = bench.acquire_within(Wait::AtMost(SECOND));
    let call = bench.call();
    bench.answer(call, waiting());
    bench.pass(SECOND);
    assert!(timed_out(&mut early).0.is_none(), "it has waited for long enough");
    let release = bench.call();
    bench.answer(release, Answers::Release(vec![ReleaseOutcome::Waiting]));
    bench.say(first, taken_by("web-1"));
    assert!(late.try_take().is_none(), "that was not about it");
    let second = bench.call();
    bench.say(second, taken_by("web-2"));
    assert_eq!(timed_out(&mut late).0.expect("it was told").holders[0].holder, "web-2");
}

/// The inspection may be executed before the release.
#[test]
fn a_request_that_has_timed_out_does_not_count_itself() {
    for waits in [true, false] {
        let mut bench = Bench::new();
        let ([mut late], [holder], inspection) = bench.late();
        let other = |name: &str| InspectedWaiter {
            holder: Holder::new(name).expect("valid"),
            weight: 1,
            queued_us: 0,
            label: Default::default(),
            lane: Default::default(),
        };
        let mut inspected = taken_by(if waits { "web-1" } else { holder.as_str() });
        if waits {
            inspected.waiting = 2;
            inspected.waiters = vec![other(holder.as_str()), other("web-2")];
        }
        bench.say(inspection, inspected);
        let (found, error) = timed_out(&mut late);
        let found = found.expect("it was told");
        if waits {
            assert_eq!((found.held, found.waiting, found.waiters[0].position), (1, 1, 0));
            assert_eq!(error.retry_after(), None, "web-1 has to go first");
        } else {
            assert_eq!((found.held, found.waiting, found.holders.len()), (0, 0, 0));
            assert_eq!(error.retry_after(), Some(Duration::ZERO), "the unit was just granted to it");
        }
    }
}

/// The units of an earlier grant of the same name still count.
#[test]
fn a_request_that_has_timed_out_counts_what_cools_under_its_name() {
    let mut bench = Bench::new();
    let ([mut late], [holder], inspection) = bench.late();
    let mut inspected = taken_by(holder.as_str());
    inspected.holders[0].cooling = true;
    bench.say(inspection, inspected);
    let (found, error) = timed_out(&mut late);
    assert_eq!(found.expect("it was told").held, 1);
    assert_eq!(error.retry_after(), Some(5 * SECOND));
}

/// A waiter of another lane may stand before one that is older.
#[test]
fn the_longest_wait_need_not_be_that_of_the_first_in_line() {
    let mut bench = Bench::new();
    let ([mut late], _, inspection) = bench.late();
    let waiter = |(name, queued_us)| InspectedWaiter {
        holder: Holder::new(name).expect("valid"),
        weight: 1,
        queued_us,
        label: Default::default(),
        lane: Default::default(),
    };
    let waiters = [("web-2", 9_000_000), ("web-3", 2_000_000), ("web-4", 5_000_000)].map(waiter);
    let inspected = Inspected { waiting: 3, waiters: waiters.to_vec(), ..taken_by("web-1") };
    bench.say_with(inspection, inspected, |reply| reply.now_us = 10_000_000);
    let found = timed_out(&mut late).0.expect("it was told");
    assert_eq!(found.waiters[0].age, SECOND);
    assert_eq!(found.oldest_waiter_age(), Some(8 * SECOND));
}

#[test]
fn time_alone_frees_a_unit_at_the_end_of_a_pause_or_of_cooling() {
    let end_in = |recovering_ms, change: &dyn Fn(&mut Inspected)| {
        let mut bench = Bench::new();
        let ([mut late], _, inspection) = bench.late();
        let mut inspected = taken_by("web-1");
        inspected.holders[0].cooling = true;
        change(&mut inspected);
        bench.say_with(inspection, inspected, |reply| reply.recovering_ms = recovering_ms);
        let error = timed_out(&mut late).1;
        (error.retry_after(), error.stands_still())
    };
    let end = |change: &dyn Fn(&mut Inspected)| end_in(0, change);
    let pause = |remaining_ms| Some(InspectedPause { remaining_ms, reason: "deploy".into() });
    assert_eq!(end(&|_| {}), (Some(5 * SECOND), false));
    assert_eq!(end(&|of| of.paused = pause(Some(9000))), (Some(9 * SECOND), true));
    assert_eq!(end(&|of| of.paused = pause(Some(1000))), (Some(5 * SECOND), true));
    assert_eq!(end(&|of| of.paused = pause(None)), (None, true));
    assert_eq!(end(&|of| of.waiting = 1), (None, false), "a waiter that is not listed");
    assert_eq!(end(&|of| of.holders[0].cooling = false), (None, false), "it has to leave");
    assert_eq!(end(&|of| of.closed = Some("moved".into())), (None, true));
    assert_eq!(end_in(9000, &|_| {}), (Some(9 * SECOND), true), "a recovery lasts longer");
}

/// The inspection does not say which units count for the limit of the lane: they may be held, while the units
/// that cool belong to another lane.
#[test]
fn a_request_in_a_lane_at_its_limit_knows_no_end() {
    let lane = LaneName::new("tenant").expect("valid");
    let retry_after = |lane_limit, listed: Option<(u32, u64)>| {
        let mut bench = Bench::new();
        let terms = PermitTerms { lane: lane.clone(), lane_limit, ..PermitTerms::new(1, millis(LEASE)) };
        let ([mut late], _, inspection) = bench.late_on(&terms);
        let mut inspected = taken_by("web-1");
        inspected.holders[0].cooling = true;
        inspected.lanes.extend(listed.map(|(limit, held)| InspectedLane {
            lane: lane.clone(),
            waiting: 0,
            held,
            limit,
            floor: 0,
            pinned: true,
        }));
        bench.say(inspection, inspected);
        timed_out(&mut late).1.retry_after()
    };
    assert_eq!(retry_after(0, None), Some(5 * SECOND));
    assert_eq!(retry_after(0, Some((0, 1))), Some(5 * SECOND), "it has no limit");
    assert_eq!(retry_after(0, Some((2, 1))), Some(5 * SECOND), "it is not at its limit");
    assert_eq!(retry_after(0, Some((2, 2))), None);
    assert_eq!(retry_after(2, None), None, "the lane is not listed");
}

/// There is room in the semaphore as soon as the units cool.
#[test]
fn a_request_that_is_too_heavy_for_the_rest_of_its_lane_knows_no_end() {
    let lane = LaneName::new("tenant").expect("valid");
    for (weight, end) in [(1, Some(Duration::ZERO)), (3, None)] {
        let mut bench = Bench::new();
        let terms = PermitTerms { lane: lane.clone(), ..PermitTerms::new(weight, millis(LEASE)) };
        let ([mut late], _, inspection) = bench.late_on(&terms);
        let mut inspected = taken_by("web-1");
        (inspected.held, inspected.holders[0].weight, inspected.holders[0].cooling) = (4, 4, true);
        let lane = lane.clone();
        inspected.lanes = vec![InspectedLane { lane, waiting: 0, held: 4, limit: 5, floor: 0, pinned: true }];
        bench.say_with(inspection, inspected, |reply| reply.limit = 6);
        assert_eq!(timed_out(&mut late).1.retry_after(), end, "{weight} units");
    }
}

#[test]
fn an_inspection_that_fails_is_not_repeated() {
    let mut bench = Bench::new();
    let ([mut late], _, inspection) = bench.late();
    bench.fail(inspection);
    bench.assert_timed_out(&mut late, SECOND);
    bench.pass(SECOND);
    assert!(bench.calls().is_empty());

    // As far as the caller can know, the store has gone meanwhile.
    let mut bench = Bench::new();
    let ([mut late], _, inspection) = bench.late();
    bench.no_answer(inspection);
    bench.engine.on_down(StoreError::Unreachable { reason: "cut".into() }, bench.now);
    bench.pass(PATIENCE);
    assert!(matches!(refused(&mut late), AcquireError::Store(StoreError::Unreachable { .. })));
}

#[test]
fn a_caller_that_cancels_or_closes_waits_for_no_reason() {
    let mut bench = Bench::new();
    let ([mut late], _, _unanswered) = bench.late();
    late.canceller().cancel();
    assert!(bench.calls().is_empty());
    assert_eq!(refused(&mut late), AcquireError::Cancelled);

    let mut bench = Bench::new();
    let ([mut late], _, _unanswered) = bench.late();
    bench.session.send(Message::Close { answer: None });
    bench.calls();
    assert_eq!(refused(&mut late), AcquireError::Ended(Ended::Closed));
    assert!(bench.engine.is_finished(), "the inspection has nothing to give back");
}

#[test]
fn a_caller_that_has_gone_is_forgotten() {
    let mut bench = Bench::new();
    let ([late], _, inspection) = bench.late();
    drop(late);
    assert!(bench.calls().is_empty());
    bench.say(inspection, taken_by("web-1"));
    assert!(bench.calls().is_empty() && bench.engine.is_idle());
}
