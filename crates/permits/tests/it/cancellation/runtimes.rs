//! Permits do not depend on the runtime that acquired them.

use std::thread;
use std::time::Duration;

use permits::Permit;
use permits_testkit::in_real_time;
use permits_testkit::sound::{Named as _, Succeeds as _};
use tokio::runtime::Runtime;

use crate::cancellation::UNITS;
use crate::cancellation::fixture::Fixture;

#[test]
fn permits_outlive_the_runtime_that_acquired_them() {
    in_real_time(|| {
        let fixture = Fixture::new();
        let lease = Duration::from_millis(600);
        let runtime = Runtime::new().expect("a runtime");
        let permits: Vec<Permit> = runtime.block_on(async {
            let semaphore = fixture.client(lease).await.named("exports", UNITS);
            let both = tokio::join!(semaphore.acquire(), semaphore.acquire());
            vec![both.0.expect("it is free"), both.1.expect("it is free")]
        });
        drop(runtime);
        thread::sleep(lease + lease / 10);
        assert!(permits.iter().all(Permit::is_held), "they are renewed without it: {permits:?}");
        fixture.settles(2, 0);
        // The new thread has no runtime either.
        thread::spawn(move || drop(permits)).join().expect("dropping does not panic");
        fixture.all_units_come_back();
    });
}

#[test]
fn a_blocked_runtime_loses_no_permit() {
    in_real_time(|| {
        let fixture = Fixture::new();
        let lease = Duration::from_millis(500);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(async {
            let semaphore = fixture.client(lease).await.named("exports", UNITS);
            let permit = semaphore.acquire().succeeds().await;
            let lost = permit.cancellation_token();
            thread::sleep(3 * lease);
            assert!(permit.is_held() && !lost.is_cancelled());
            let seen = semaphore.inspect().succeeds().await;
            assert_eq!(seen.holders.iter().map(|holder| holder.token).collect::<Vec<_>>(), [permit.token()]);
            permit.release().succeeds().await;
        });
        fixture.all_units_come_back();
    });
}
