//! A semaphore of a store of its own, and a service that a test answers by hand.

use std::time::Instant;

use permits::{Client, Semaphore};
use permits_testkit::HANGS;
use permits_testkit::sound::{Named as _, Succeeds as _};
use tower_test::mock::{self, Handle, Mock, SendResponse};

/// A client of a store that no other test uses, and its semaphore.
pub(crate) async fn semaphore(test: &str, limit: u32) -> (Client, Semaphore) {
    let client = Client::connect(&format!("memory:{test}")).succeeds().await;
    let semaphore = client.named("exports", limit);
    semaphore.declare().succeeds().await;
    (client, semaphore)
}

/// A service of numbers, and the side that answers.
pub(crate) fn inner() -> (Mock<u32, u32>, Handle<u32, u32>) {
    mock::pair()
}

/// The next request that reaches the inner service.
pub(crate) async fn next(handle: &mut Handle<u32, u32>) -> (u32, SendResponse<u32>) {
    let next = within(handle.next_request()).await;
    next.expect("the service is alive")
}

/// Awaits the future, within the time limit of the tests.
#[track_caller]
pub(crate) fn within<F: Future>(future: F) -> impl Future<Output = F::Output> {
    let caller = std::panic::Location::caller();
    async move {
        let result = tokio::time::timeout(HANGS, future).await;
        result.unwrap_or_else(|_| panic!("not ready within {HANGS:?}: {caller}"))
    }
}

/// Waits until this many units are held, and this many requests wait.
#[track_caller]
pub(crate) fn settles(semaphore: &Semaphore, held: u64, waiting: u64) -> impl Future<Output = ()> {
    let caller = std::panic::Location::caller();
    async move {
        let began = Instant::now();
        loop {
            let now = semaphore.inspect().succeeds().await;
            if (now.held, now.waiting) == (held, waiting) {
                return;
            }
            assert!(
                began.elapsed() < HANGS,
                "{caller}: {} held, {} waiting, and not {held} and {waiting}",
                now.held,
                now.waiting
            );
        }
    }
}
