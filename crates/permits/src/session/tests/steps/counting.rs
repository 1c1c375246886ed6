//! Grants that count anew, once a set of permits is held: the renewal that tells the store, and what happens
//! if the store does not answer.

use tokio::sync::oneshot;

use super::*;
use crate::protocol::RenewRequest;
use crate::session::call::CallKind;

const SECOND: Duration = Duration::from_secs(1);

const COUNTED_MS: u64 = 10_000;

type Counted = oneshot::Receiver<Result<(), AcquireError>>;

impl Bench {
    /// A request whose grant counts for [`COUNTED_MS`].
    fn acquire_counted(&mut self) -> PendingAcquire {
        let terms = PermitTerms { at_least_ms: COUNTED_MS, ..PermitTerms::new(1, millis(LEASE)) };
        let spec = spec(&self.session, "a", terms, Declaration::Declare(1));
        let mut pending = PendingAcquire::new(&self.session, spec);
        pending.send();
        pending
    }

    /// A permit whose grant counts for [`COUNTED_MS`]. The store's clock showed the token at its grant.
    fn counted(&mut self) -> PermitGuard {
        let mut pending = self.acquire_counted();
        let call = self.call();
        self.answer_at(call, GRANT.token, granted());
        taken(&mut pending)
    }

    fn count_anew(&mut self, held: &PermitGuard, within: Option<Duration>) -> Counted {
        let (answer, counted) = channel();
        let (semaphore, request) = (held.state.semaphore.clone(), held.state.request.clone());
        self.session.send(Message::CountAnew { semaphore, request, within, answer });
        counted
    }

    /// The call that tells the store that a grant counts anew, found among others.
    #[track_caller]
    fn counting_call(&mut self) -> Call {
        let counts = |call: &Call| matches!(&call.sent.kind, CallKind::Single(call) if call.counts_anew());
        self.calls().into_iter().find(counts).expect("the store is told")
    }

    fn fails(&mut self, call: Call) {
        let lost = StoreError::NoAnswer { reason: "lost".into() };
        self.engine.on_return(call.sent, Err(lost), self.now);
        self.engine.take_outbox().deliver(None);
    }
}

fn at_least_ms(call: &Call) -> u64 {
    let Operation::Renew(renewals) = &call.command.operation else { panic!("{:?}", call.command) };
    let [RenewRequest { terms, .. }] = &renewals[..] else { panic!("{renewals:?}") };
    terms.at_least_ms
}

#[test]
fn a_grant_counts_anew_when_the_store_has_answered() {
    let mut bench = Bench::new();
    let held = bench.counted();
    bench.pass(2 * SECOND);
    let mut counted = bench.count_anew(&held, None);
    let call = bench.counting_call();
    assert_eq!(at_least_ms(&call), COUNTED_MS + 2_000, "the store counts from the grant");
    bench.fails(call);
    assert!(counted.try_recv().is_err(), "the store may not have it");
    bench.pass(SECOND);
    let again = bench.counting_call();
    assert_eq!(at_least_ms(&again), COUNTED_MS + 2_000);
    assert!(counted.try_recv().is_err(), "the store may not have it");
    bench.answer(again, renewed(RenewOutcome::Held));
    assert_eq!(counted.try_recv(), Ok(Ok(())));
    // A renewal that puts the permit back after a loss of state tells the store, too, and so does a handle.
    bench.pass(LEASE / 2);
    assert_eq!(at_least_ms(&bench.call()), COUNTED_MS + 2_000);
    assert_eq!(held.state.terms().at_least_ms, COUNTED_MS + 2_000);
}

/// Any reply shows the server's clock, and a later one shows it more closely: this one was read at most a
/// second before it arrived.
#[test]
fn the_time_since_the_grant_is_that_of_the_servers_clock_and_not_too_short() {
    let mut bench = Bench::new();
    let held = bench.counted();
    let renewal = bench.due_renewal();
    bench.pass(SECOND);
    // The grant was 8.5 s ago here, and 9.2 s on the server.
    bench.answer_at(renewal, GRANT.token + 9_200_000, renewed(RenewOutcome::Held));
    bench.pass(SECOND);
    let _counted = bench.count_anew(&held, None);
    assert_eq!(at_least_ms(&bench.counting_call()), COUNTED_MS + 9_200 + 2_000);
}

#[test]
fn a_millisecond_that_has_begun_since_the_grant_counts_as_a_whole_one() {
    let mut bench = Bench::new();
    let held = bench.counted();
    bench.pass(Duration::from_micros(1));
    let _counted = bench.count_anew(&held, None);
    assert_eq!(at_least_ms(&bench.counting_call()), COUNTED_MS + 1);
}

/// The request was sent two seconds before, and no reply shows how much later the grant was made.
#[test]
fn a_grant_whose_message_comes_before_any_reply_counts_anew() {
    let mut bench = Bench::new();
    let mut pending = bench.acquire_counted();
    let call = bench.call();
    bench.pass(SECOND);
    bench.push(&asked(&call), EventKind::Granted(Grant { token: 77_000_000, slot: 0 }));
    let held = taken(&mut pending);
    bench.pass(SECOND);
    let _counted = bench.count_anew(&held, None);
    assert_eq!(at_least_ms(&bench.counting_call()), COUNTED_MS + 2_000);
}

#[test]
fn a_store_that_does_not_answer_is_asked_for_as_long_as_the_set_may_wait() {
    for (within, tries) in [(Duration::ZERO, 1), (SECOND, 2)] {
        let mut bench = Bench::new();
        let held = bench.counted();
        let mut counted = bench.count_anew(&held, Some(within));
        for _ in 0..tries {
            assert!(counted.try_recv().is_err(), "its time is not up");
            let call = bench.counting_call();
            bench.fails(call);
            bench.pass(SECOND);
        }
        let result = counted.try_recv().expect("its time is up");
        assert!(matches!(result, Err(AcquireError::Store(StoreError::NoAnswer { .. }))), "{result:?}");
    }
    // The same without a connection.
    let mut bench = Bench::new();
    let held = bench.counted();
    bench.engine.on_down(StoreError::Unreachable { reason: "cut".into() }, bench.now);
    let mut counted = bench.count_anew(&held, Some(SECOND));
    assert!(bench.calls().is_empty(), "there is no connection");
    bench.pass(SECOND);
    let result = counted.try_recv().expect("its time is up");
    assert!(matches!(result, Err(AcquireError::Store(StoreError::Unreachable { .. }))), "{result:?}");
}

#[test]
fn replicas_confirm_that_a_grant_counts_anew() {
    for (confirmed, result) in
        [(1, Ok(())), (0, Err(AcquireError::NotReplicated { confirmed: 0, wanted: 1 }))]
    {
        let mut bench = Bench::with(Config { replicas: 1, ..config("session", LEASE) });
        let mut pending = bench.acquire_counted();
        let call = bench.call();
        bench.answer_at(call, GRANT.token, granted());
        let confirmation = bench.call();
        bench.confirm(confirmation, 1);
        let held = taken(&mut pending);
        let mut counted = bench.count_anew(&held, None);
        let call = bench.counting_call();
        assert_eq!(call.replicas, 1);
        bench.confirm(call, confirmed);
        assert_eq!(counted.try_recv(), Ok(result));
    }
}

impl Bench {
    /// Answers a renewal. `confirmed` replicas have it.
    pub(super) fn confirm(&mut self, call: Call, confirmed: u32) {
        let reply = reply(1, renewed(RenewOutcome::Held));
        self.engine.on_return(call.sent, Ok(Executed { reply, confirmed }), self.now);
        self.engine.take_outbox().deliver(None);
    }
}

#[test]
fn a_permit_that_is_lost_does_not_count_anew() {
    let mut bench = Bench::new();
    let held = bench.counted();
    let mut counted = bench.count_anew(&held, None);
    let call = bench.counting_call();
    bench.answer(call, renewed(RenewOutcome::Lost));
    assert!(matches!(counted.try_recv(), Err(oneshot::error::TryRecvError::Closed)));
    assert_eq!(held.state.loss(), Some(Lost::Gone));
    let mut later = bench.count_anew(&held, None);
    assert!(bench.calls().is_empty(), "the engine has forgotten it");
    assert!(matches!(later.try_recv(), Err(oneshot::error::TryRecvError::Closed)));
}

/// The call goes by the connection that asks replicas. A recall may come between the moment at which the
/// store answers and the arrival of the answer.
#[test]
fn a_reply_that_a_recall_may_have_overtaken_lets_the_session_keep_nothing() {
    for recalled in [false, true] {
        let mut bench = Bench::new();
        let (mut kept, _) = keeping::keepable(&mut bench);
        let held = bench.counted();
        let _counted = bench.count_anew(&held, None);
        let call = bench.counting_call();
        // A recall cannot overtake this reply.
        bench.pass(LEASE / 2);
        let renewal = bench.call();
        let both = Answers::Renew(vec![RenewOutcome::Held; 2]);
        keeping::answer_keepable(&mut bench, renewal, both);
        if recalled {
            bench.engine.on_recall(&held.state.semaphore, bench.now);
        }
        keeping::answer_keepable(&mut bench, call, renewed(RenewOutcome::Held));
        assert_eq!(kept.put_back(bench.now), !recalled, "recalled: {recalled}");
    }
}
