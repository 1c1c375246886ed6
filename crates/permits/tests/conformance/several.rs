//! Several semaphores at once: all or none, in one order, lost and released together.
//!
//! The semaphore of the case is the wide one. [`TENANT`] is a narrow one below it, with one unit.

use std::time::{Duration, Instant};

use permits::{
    AcquireAllError, AcquireError, AcquireOptions, Client, InvalidInput, Lost, Permit, PermitSet,
    ReleaseError, RenewError, Semaphore,
};
use permits_testkit::HANGS;
use permits_testkit::sound::{Named as _, Succeeds as _};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::fixture::Fixture;

/// The narrow semaphore. It comes before the wide one.
const TENANT: &str = "exports/tenant-7";

const SHORT: Duration = Duration::from_millis(250);

/// Longer than any case.
const LONG: Duration = Duration::from_secs(5);

/// The interval between two polls of an acquisition.
const INTERVAL: Duration = Duration::from_millis(2);

/// A client with both semaphores.
struct Program {
    client: Client,
    wide: Semaphore,
    tenant: Semaphore,
}

impl Program {
    async fn new(fixture: &Fixture) -> Self {
        let client = fixture.client().await;
        let (wide, tenant) = (fixture.semaphore(&client, 1), client.named(TENANT, 1));
        Self { client, wide, tenant }
    }

    /// Acquires both, with these options of the wide and of the narrow one.
    async fn acquire_with(
        &self,
        wide: AcquireOptions,
        tenant: AcquireOptions,
    ) -> Result<PermitSet, AcquireAllError> {
        let acquired = self.client.acquire_all([(self.wide.clone(), wide), (self.tenant.clone(), tenant)]);
        timeout(HANGS, acquired).await.expect("it is answered in time")
    }

    async fn acquire(&self) -> PermitSet {
        let options = AcquireOptions::new();
        self.acquire_with(options.clone(), options).succeeds().await
    }

    /// Starts to acquire both, with this holder in the narrow line.
    fn start(self, holder: &str, tenant: AcquireOptions) -> JoinHandle<Result<PermitSet, AcquireAllError>> {
        let tenant = tenant.holder(holder);
        tokio::spawn(async move { self.acquire_with(AcquireOptions::new(), tenant).await })
    }

    async fn full_wide(&self) -> Permit {
        self.wide.acquire().succeeds().await
    }
}

fn refused(semaphore: &str, source: AcquireError) -> AcquireAllError {
    AcquireAllError::Acquire { semaphore: semaphore.into(), source }
}

async fn outcome(
    acquiring: JoinHandle<Result<PermitSet, AcquireAllError>>,
) -> Result<PermitSet, AcquireAllError> {
    acquiring.await.expect("acquiring does not panic")
}

pub(crate) async fn a_set_is_acquired_in_the_order_that_all_programs_share(fixture: &Fixture) {
    let client = fixture.client().await;
    let names = [fixture.name(), "exports/b", "exports/a", "exports/b/c"];
    let [wide, b, a, c] = names.map(|name| client.named(name, fixture.limit(1)));
    let options = AcquireOptions::new;
    let set = client
        .acquire_all([&wide, &b, &a, &c].map(|semaphore| (semaphore.clone(), options())))
        .succeeds()
        .await;
    let order = ["exports/b/c", "exports/a", "exports/b", "exports"];
    assert_eq!(weights(&set), order.map(|name| (name.to_owned(), 1)));
    for semaphore in [&wide, &b, &a, &c] {
        let seen = fixture.inspect(semaphore).await;
        assert_eq!((seen.held, seen.waiting), (1, 0));
        assert_eq!(set.get(&seen.name).map(Permit::token), Some(seen.holders[0].token));
    }
    assert!(set.get("exports/d").is_none());
    assert!(set.is_held() && !set.remaining().is_zero());
    assert_eq!(first_lost(&set, Duration::ZERO).await, None);
    set.release().succeeds().await;
    for semaphore in [&wide, &b, &a, &c] {
        assert_eq!(fixture.inspect(semaphore).await.held, 0);
    }
}

/// The semaphores and weights, in order.
fn weights(set: &PermitSet) -> Vec<(String, u32)> {
    set.permits().iter().map(|permit| (permit.semaphore().to_owned(), permit.weight())).collect()
}

/// The semaphore of the first loss until `limit` has passed, and its reason.
async fn first_lost(set: &PermitSet, limit: Duration) -> Option<(String, Lost)> {
    let (permit, lost) = timeout(limit, set.lost()).await.ok()?;
    Some((permit.semaphore().to_owned(), lost))
}

pub(crate) async fn a_set_is_acquired_completely_or_not_at_all(fixture: &Fixture) {
    let (program, other) = (Program::new(fixture).await, Program::new(fixture).await);
    let permit = other.full_wide().await;
    let error = program
        .acquire_with(AcquireOptions::new().no_wait(), AcquireOptions::new())
        .await
        .expect_err("the wide one is full");
    assert_eq!(error, refused(fixture.name(), AcquireError::NoPermits));
    assert!(error.is_not_now());
    // The release was sent before the error was returned.
    let tenant = program.tenant.try_acquire().await.expect("it was released");
    tenant.release().succeeds().await;
    permit.release().succeeds().await;
    program.acquire().await.release().succeeds().await;
}

pub(crate) async fn a_set_whose_last_semaphore_refuses_for_good_holds_nothing(fixture: &Fixture) {
    let program = Program::new(fixture).await;
    let limit = fixture.limit(1);
    let heavy = AcquireOptions::new().weight(limit + 1);
    let error = program.acquire_with(heavy, AcquireOptions::new()).await.expect_err("it can never fit");
    assert_eq!(error, refused(fixture.name(), AcquireError::ExceedsLimit { weight: limit + 1, limit }));
    assert!(!error.is_not_now());
    drop(program.tenant.try_acquire().await.expect("it was released"));
}

pub(crate) async fn a_request_that_is_not_valid_fails_before_any_is_sent(fixture: &Fixture) {
    let program = Program::new(fixture).await;
    let options = AcquireOptions::new;
    for (wide, tenant, invalid) in [
        (options().weight(0), options(), InvalidInput::ZeroWeight),
        // A request that does not wait makes the whole set not wait.
        (options().supersede("main"), options().no_wait(), InvalidInput::SupersedesNow),
        (options().supersede("main"), options().timeout(Duration::ZERO), InvalidInput::SupersedesNow),
    ] {
        let error = program.acquire_with(wide, tenant).await.expect_err("it is not valid");
        assert_eq!(error, refused(fixture.name(), invalid.into()));
    }
    fixture.has_no_key_of(TENANT);
}

pub(crate) async fn a_semaphore_named_twice_is_refused(fixture: &Fixture) {
    let (program, other) = (Program::new(fixture).await, Program::new(fixture).await);
    for tenant in [&program.tenant, &other.tenant] {
        let all = [&program.tenant, &program.wide, tenant];
        let error =
            program.client.acquire_all(all.map(|semaphore| (semaphore.clone(), AcquireOptions::new())));
        let error = error.await.expect_err("it is named twice");
        assert_eq!(error, AcquireAllError::Twice { semaphore: TENANT.into() });
        assert!(!error.is_not_now());
    }
    fixture.has_no_key_of(TENANT);
}

pub(crate) async fn an_empty_set_is_acquired_at_once(fixture: &Fixture) {
    let set = fixture.client().await.acquire_all([]).await.expect("there is nothing to wait for");
    assert_eq!((weights(&set), set.is_held(), set.remaining()), (vec![], true, Duration::MAX));
    assert_eq!(first_lost(&set, Duration::from_millis(1)).await, None);
    set.release().await.expect("there is nothing to release");
}

pub(crate) async fn a_set_that_waits_in_a_narrow_line_holds_nothing_of_the_wide_one(fixture: &Fixture) {
    let (program, other) = (Program::new(fixture).await, Program::new(fixture).await);
    let tenant = other.tenant.acquire().succeeds().await;
    let acquiring = program.start("web-3", AcquireOptions::new());
    fixture.settles(&other.tenant, 1, 1).await;
    assert_eq!(fixture.inspect(&other.wide).await.waiting, 0);
    other.full_wide().await.release().await.expect("another tenant can have it");
    tenant.release().succeeds().await;
    outcome(acquiring).await.expect("it is its turn").release().succeeds().await;
}

/// If the set had taken the permit of the later line when it began, no recall would reach it. Two programs,
/// each with a set, then wait for each other.
pub(crate) async fn a_set_that_waits_takes_nothing_that_is_kept_of_a_later_line(fixture: &Fixture) {
    let (program, other) = (Program::new(fixture).await, Program::new(fixture).await);
    let keeping = Program {
        wide: program.wide.clone().keep(LONG),
        tenant: program.tenant.clone().keep(LONG),
        client: program.client,
    };
    keeping.wide.acquire().succeeds().await.release().succeeds().await;
    let tenant = other.tenant.acquire().succeeds().await;
    let acquiring = tokio::spawn(acquire_all(&keeping));
    fixture.settles(&other.tenant, 1, 1).await;
    timeout(HANGS, other.full_wide()).await.expect("it was recalled").release().succeeds().await;
    tenant.release().succeeds().await;
    outcome(acquiring).await.expect("it is its turn").release().succeeds().await;
    keeping.client.close().succeeds().await;
}

pub(crate) async fn a_set_that_waits_in_a_wide_line_keeps_its_place_in_the_narrow_one(fixture: &Fixture) {
    let (program, other) = (Program::new(fixture).await, Program::new(fixture).await);
    let wide = other.full_wide().await;
    let acquiring = program.start("web-3", AcquireOptions::new());
    fixture.settles(&other.wide, 1, 1).await;
    assert_eq!(fixture.inspect(&other.tenant).await.held, 1);
    wide.release().succeeds().await;
    let set = outcome(acquiring).await.expect("it is its turn");
    fixture.settles(&other.wide, 1, 0).await;
    set.release().succeeds().await;
}

pub(crate) async fn the_shortest_timeout_is_the_limit_of_the_whole_wait(fixture: &Fixture) {
    let (program, other) = (Program::new(fixture).await, Program::new(fixture).await);
    let wide = other.full_wide().await;
    let (long, short) = (AcquireOptions::new().timeout(HANGS), AcquireOptions::new().timeout(SHORT));
    for (of_wide, of_tenant) in [(&long, &short), (&short, &long), (&AcquireOptions::new(), &short)] {
        let error = program.acquire_with(of_wide.clone(), of_tenant.clone()).await;
        let error = error.expect_err("the wide one is full");
        let AcquireAllError::Acquire { semaphore, source } = &error else { panic!("{error:?}") };
        assert_eq!(semaphore, fixture.name());
        assert!(matches!(source, AcquireError::TimedOut { waited: SHORT, .. }), "{source:?}");
        assert!(error.is_not_now());
        fixture.settles(&other.wide, 1, 0).await;
        fixture.settles(&other.tenant, 0, 0).await;
    }
    wide.release().succeeds().await;
}

pub(crate) async fn a_set_of_which_one_does_not_wait_does_not_wait(fixture: &Fixture) {
    let (program, other) = (Program::new(fixture).await, Program::new(fixture).await);
    let wide = other.full_wide().await;
    for no_wait in [AcquireOptions::new().no_wait(), AcquireOptions::new().timeout(Duration::ZERO)] {
        let error = program.acquire_with(AcquireOptions::new(), no_wait).await.expect_err("it is full");
        assert_eq!(error, refused(fixture.name(), AcquireError::NoPermits));
    }
    wide.release().succeeds().await;
}

pub(crate) async fn a_permit_that_is_lost_while_another_is_waited_for_fails_the_set(fixture: &Fixture) {
    let (program, other) = (Program::new(fixture).await, Program::new(fixture).await);
    let wide = other.full_wide().await;
    let acquiring = program.start("web-3", AcquireOptions::new());
    fixture.settles(&other.wide, 1, 1).await;
    assert!(other.tenant.revoke("web-3", "maintenance").succeeds().await);
    let error = outcome(acquiring).await.expect_err("one of the set is lost");
    let reason = Lost::Revoked { reason: "maintenance".into() };
    assert_eq!(error, AcquireAllError::Lost { semaphore: TENANT.into(), reason });
    assert!(error.is_not_now());
    // The request has left the line in which it waited.
    fixture.settles(&other.wide, 1, 0).await;
    wide.release().succeeds().await;
}

pub(crate) async fn a_permit_that_is_not_renewed_can_end_while_another_is_waited_for(fixture: &Fixture) {
    let (program, other) = (Program::new(fixture).await, Program::new(fixture).await);
    let wide = other.full_wide().await;
    let acquiring = program.start("web-3", AcquireOptions::new().lease(SHORT).auto_renew(false));
    let error = outcome(acquiring).await.expect_err("its lease ends");
    assert_eq!(error, AcquireAllError::Lost { semaphore: TENANT.into(), reason: Lost::Expired });
    fixture.settles(&other.wide, 1, 0).await;
    wide.release().succeeds().await;
}

pub(crate) async fn a_set_is_lost_with_any_of_its_permits(fixture: &Fixture) {
    for lost in [fixture.name(), TENANT] {
        let program = Program::new(fixture).await;
        let named = AcquireOptions::new().holder("web-3");
        let set = program.acquire_with(named.clone(), named).succeeds().await;
        let revoked = if lost == TENANT { &program.tenant } else { &program.wide };
        assert!(revoked.revoke("web-3", "maintenance").succeeds().await);
        let reason = Lost::Revoked { reason: "maintenance".into() };
        assert_eq!(first_lost(&set, HANGS).await, Some((lost.to_owned(), reason.clone())));
        assert!(!set.is_held() && set.remaining().is_zero());
        let left = if lost == TENANT { &program.wide } else { &program.tenant };
        assert_eq!(
            fixture.inspect(left).await.held,
            1,
            "the other stays until the set is dropped or released"
        );
        assert_eq!(set.release().await, Err(ReleaseError::Lost(reason)));
        assert_eq!(fixture.inspect(left).await.held, 0);
    }
}

pub(crate) async fn a_renewal_extends_each_permit_of_a_set(fixture: &Fixture) {
    let program = Program::new(fixture).await;
    let unrenewed = AcquireOptions::new().lease(Duration::from_secs(60)).auto_renew(false);
    let set = program.acquire_with(unrenewed.clone(), unrenewed).succeeds().await;
    let fresh = set.remaining();
    while set.remaining() > fresh - Duration::from_millis(100) {
        sleep(INTERVAL).await;
    }
    // The set's remaining time ends with the permit that ends first.
    let before = set.remaining();
    let ends = Instant::now() + before;
    set.renew().succeeds().await;
    let now = Instant::now();
    assert!(now + set.remaining() > ends, "{:?} after {before:?}", set.remaining());
    assert!(program.tenant.revoke(&holder(fixture, &program.tenant).await, "").succeeds().await);
    assert!(first_lost(&set, HANGS).await.is_some());
    let lost = RenewError::Lost(Lost::Revoked { reason: "".into() });
    assert_eq!(set.renew().await, Err(lost));
}

/// The only holder.
async fn holder(fixture: &Fixture, semaphore: &Semaphore) -> String {
    fixture.inspect(semaphore).await.holders.remove(0).holder
}

pub(crate) async fn a_dropped_set_is_released(fixture: &Fixture) {
    let program = Program::new(fixture).await;
    drop(program.acquire().await);
    for semaphore in [&program.tenant, &program.wide] {
        drop(semaphore.try_acquire().await.expect("the release was sent first"));
    }
}

pub(crate) async fn permits_of_a_set_can_be_released_one_by_one(fixture: &Fixture) {
    let program = Program::new(fixture).await;
    let mut permits = program.acquire().await.into_permits();
    let wide = permits.pop().expect("there are two");
    assert_eq!(wide.semaphore(), fixture.name());
    wide.release().succeeds().await;
    fixture.settles(&program.wide, 0, 0).await;
    assert_eq!(fixture.inspect(&program.tenant).await.held, 1);
}

/// The acquisition of both.
fn acquire_all(program: &Program) -> permits::AcquireAll {
    let both = [&program.wide, &program.tenant].map(|semaphore| semaphore.clone());
    program.client.acquire_all(both.map(|semaphore| (semaphore, AcquireOptions::new())))
}

/// The semaphore that is acquired now, and the position in its line.
fn line(acquiring: &permits::AcquireAll) -> (Option<String>, Option<u64>) {
    (acquiring.semaphore().map(str::to_owned), acquiring.position())
}

/// Waits until the acquisition is the first in the line of `semaphore`.
async fn waits_in(acquiring: &mut permits::AcquireAll, semaphore: &str) {
    let reached = async {
        while line(acquiring) != (Some(semaphore.to_owned()), Some(0)) {
            let granted = timeout(INTERVAL, &mut *acquiring).await;
            assert!(granted.is_err(), "{semaphore} is full");
        }
    };
    timeout(HANGS, reached).await.expect("it gets into the queue");
}

pub(crate) async fn the_line_that_a_set_waits_in_is_known(fixture: &Fixture) {
    let (program, other) = (Program::new(fixture).await, Program::new(fixture).await);
    let (wide, tenant) = (other.full_wide().await, other.tenant.acquire().succeeds().await);
    let mut acquiring = acquire_all(&program);
    assert_eq!(line(&acquiring), (Some(TENANT.to_owned()), None));
    waits_in(&mut acquiring, TENANT).await;
    tenant.release().succeeds().await;
    waits_in(&mut acquiring, fixture.name()).await;
    wide.release().succeeds().await;
    let set = timeout(HANGS, &mut acquiring).await.expect("it is its turn").expect("both are free");
    assert_eq!(line(&acquiring), (None, None));
    set.release().succeeds().await;
}

pub(crate) async fn a_dropped_acquisition_of_a_set_leaves_nothing(fixture: &Fixture) {
    let (program, other) = (Program::new(fixture).await, Program::new(fixture).await);
    let wide = other.full_wide().await;
    let acquiring = tokio::spawn(acquire_all(&program));
    fixture.settles(&other.wide, 1, 1).await;
    acquiring.abort();
    fixture.settles(&other.wide, 1, 0).await;
    fixture.settles(&other.tenant, 0, 0).await;
    wide.release().succeeds().await;
}

pub(crate) async fn a_set_that_is_lost_stops_the_work_it_runs(fixture: &Fixture) {
    let program = Program::new(fixture).await;
    let unrenewed = AcquireOptions::new().lease(SHORT).auto_renew(false);
    for (options, expected) in [(AcquireOptions::new(), Ok(7)), (unrenewed, Err(Lost::Expired))] {
        let set = program.acquire_with(options, AcquireOptions::new()).succeeds().await;
        let held = expected.is_ok();
        let work = async { if held { 7 } else { std::future::pending().await } };
        assert_eq!(timeout(HANGS, set.run(work)).await.expect("it ends"), expected);
    }
}
