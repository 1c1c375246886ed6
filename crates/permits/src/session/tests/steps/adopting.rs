//! Adoptions that no caller gets. The store may have executed them, and then their units are given back.

use tokio::sync::oneshot::Receiver;

use super::*;

const STORE_TIMEOUT: Duration = LEASE.saturating_mul(2);

type Adopted = Receiver<Result<PermitGuard, AdoptError>>;

impl Bench {
    fn impatient() -> Self {
        Self::with(Config { store_timeout: STORE_TIMEOUT, ..config("session", LEASE) })
    }

    /// Adopts the permit of a handle, always the same one. Its grant counts for a minute.
    fn adopt(&mut self) -> (Adopted, (Name, Holder, RequestId)) {
        let handle: PermitHandle =
            "permits11:simulated:h:other.1:1:6000:7:0:60000".parse().expect("it is a handle");
        let (answer, adopted) = channel();
        let new_request = self.session.new_request();
        let PermitHandle { semaphore, holder, request, terms, grant, .. } = handle;
        let asked = (semaphore.clone(), holder.clone(), new_request.clone());
        let adopt = Box::new(AdoptRequest { holder, request, terms, grant, new_request, last_token: None });
        self.session.send(Message::Adopt { semaphore, adopt, answer });
        (adopted, asked)
    }

    /// Fails each try of an adoption with this error, until its caller gets the error.
    fn fail_adoption(&mut self, adopted: &mut Adopted, error: &StoreError) {
        let began = self.now;
        loop {
            for call in self.adoptions() {
                self.engine.on_return(call.sent, Err(error.clone()), self.now);
            }
            self.pass(Duration::from_millis(100));
            if let Ok(result) = adopted.try_recv() {
                assert!(matches!(&result, Err(AdoptError::Store(_))), "{result:?}");
                return assert!(self.now >= began + STORE_TIMEOUT, "after {:?}", self.now.since(began));
            }
            assert!(self.now < began + 2 * STORE_TIMEOUT, "it hangs");
        }
    }

    /// The calls to make, which must all be adoptions.
    #[track_caller]
    fn adoptions(&mut self) -> Vec<Call> {
        let calls = self.calls();
        for call in &calls {
            assert!(matches!(call.command.operation, Operation::Adopt(_)), "{:?}", call.command);
        }
        calls
    }
}

/// Asserts that this call gives the permit back, and that the grant still counts: the process that handed the
/// permit over has worked with it.
#[track_caller]
fn assert_given_back(call: &Call, asked: &(Name, Holder, RequestId)) {
    assert_releases(call, asked);
    let Operation::Release(releases) = &call.command.operation else { panic!("{:?}", call.command) };
    assert_eq!(releases[0].counted, None, "the grant counts for all its units");
}

fn no_answer() -> StoreError {
    StoreError::NoAnswer { reason: "lost".into() }
}

/// The store may have executed the adoption. Before this was fixed, nobody held its unit until the end of the
/// lease, and nobody could use the handle.
#[test]
fn an_adoption_that_was_never_answered_is_given_back() {
    let mut bench = Bench::impatient();
    let (mut adopted, first) = bench.adopt();
    bench.fail_adoption(&mut adopted, &no_answer());
    // The caller tries again with the same handle. The call goes after the release, and has a request that
    // the release does not name.
    let (_again, second) = bench.adopt();
    let [release, again] = <[Call; 2]>::try_from(bench.calls()).ok().expect("a release and an adoption");
    assert_given_back(&release, &first);
    let Operation::Adopt(adopt) = &again.command.operation else { panic!("{:?}", again.command) };
    assert_eq!(adopt.new_request, second.2);
    assert_ne!(first.2, second.2, "a release that comes late must not end it");
}

#[test]
fn an_adoption_that_was_never_sent_leaves_its_handle_alone() {
    let mut bench = Bench::impatient();
    let (mut adopted, _) = bench.adopt();
    bench.fail_adoption(&mut adopted, &StoreError::Unreachable { reason: "busy".into() });
    assert!(bench.calls().is_empty(), "there is nothing to give back");
}

#[test]
fn an_adoption_whose_reply_makes_no_sense_is_given_back() {
    let mut bench = Bench::impatient();
    let (mut adopted, asked) = bench.adopt();
    let call = bench.call();
    bench.answer(call, granted());
    assert!(matches!(adopted.try_recv(), Ok(Err(AdoptError::Store(StoreError::Malformed { .. })))));
    assert_given_back(&bench.call(), &asked);
}

/// The caller would hold the permit for no time at all.
#[test]
fn an_adoption_whose_reply_took_longer_than_the_lease_is_given_back() {
    let mut bench = Bench::impatient();
    let (mut adopted, asked) = bench.adopt();
    let call = bench.call();
    bench.pass(LEASE);
    bench.answer(call, Answers::Adopt(true));
    assert!(matches!(adopted.try_recv(), Ok(Err(AdoptError::Gone))));
    assert_given_back(&bench.call(), &asked);
}

#[test]
fn an_adoption_that_waits_for_its_next_try_is_given_back_when_the_client_closes() {
    let mut bench = Bench::impatient();
    let (mut adopted, asked) = bench.adopt();
    let call = bench.call();
    bench.no_answer(call);
    let (answer, mut closed) = channel();
    bench.engine.on_message(Message::Close { answer: Some(answer) }, bench.now);
    let release = bench.call();
    assert!(matches!(adopted.try_recv(), Ok(Err(AdoptError::Ended(Ended::Closed)))));
    assert_given_back(&release, &asked);
    bench.answer(release, Answers::Release(vec![ReleaseOutcome::Held]));
    assert!(bench.calls().is_empty());
    bench.answer_closed();
    assert!(matches!(closed.try_recv(), Ok(Ok(()))));
}

/// The store answers an adoption when the client is already closing. Before this was fixed, the engine handed
/// out the permit all the same, and then ended and renewed nothing.
#[test]
fn an_adoption_answered_while_closing_is_given_back() {
    let mut bench = Bench::new();
    let (mut adopted, asked) = bench.adopt();
    let call = bench.call();

    let (answer, mut closed) = channel();
    bench.engine.on_message(Message::Close { answer: Some(answer) }, bench.now);
    bench.answer(call, Answers::Adopt(true));
    assert!(matches!(adopted.try_recv(), Ok(Err(AdoptError::Ended(Ended::Closed)))));
    let release = bench.call();
    assert_given_back(&release, &asked);
    bench.answer_closed();
    assert!(closed.try_recv().is_err(), "it is not closed before the store has been told");
    bench.answer(release, Answers::Release(vec![ReleaseOutcome::Held]));
    assert!(bench.calls().is_empty());
    bench.answer_closed();
    assert!(matches!(closed.try_recv(), Ok(Ok(()))));
}
