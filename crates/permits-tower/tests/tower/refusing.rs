//! The refusals, each with an error of its own.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::time::Duration;

use permits::{AcquireError, AcquireOptions, Client, Ended, InvalidInput, Semaphore};
use permits_testkit::Server;
use permits_testkit::sound::{Named as _, Succeeds as _};
use permits_tower::{Keyed, PermitError, PermitLayer};
use tower::{Layer as _, ServiceExt as _};

use crate::fixture::{semaphore, settles, within};

/// Makes a request with these options, and returns its refusal.
async fn refusal(exports: &Semaphore, options: AcquireOptions) -> AcquireError {
    let called = |(): ()| -> Ready<Result<(), Infallible>> { unreachable!("no permit, so it is not called") };
    let service = tower::service_fn(called);
    let service = PermitLayer::until_response(exports.clone()).options(options).layer(service);
    let result = within(service.clone().oneshot(())).await;
    assert_eq!(service.in_flight(), 0);
    match result {
        Err(PermitError::Acquire { semaphore, source }) => {
            assert_eq!(semaphore, exports.name());
            source
        }
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test]
async fn not_now_never_and_closed_are_told_apart() {
    let (client, exports) = semaphore("told-apart", 1).await;
    let soon = AcquireOptions::new().timeout(Duration::from_millis(20));

    let error = refusal(&exports, soon.clone().weight(2)).await;
    assert_eq!(error, AcquireError::ExceedsLimit { weight: 2, limit: 1 });
    assert!(!error.is_not_now());

    let held = exports.acquire().succeeds().await;
    assert_eq!(refusal(&exports, soon.clone().no_wait()).await, AcquireError::NoPermits);
    let error = refusal(&exports, soon.clone()).await;
    assert!(matches!(error, AcquireError::TimedOut { .. }) && error.is_not_now(), "{error:?}");

    exports.close_line("moved to the archive").succeeds().await;
    let error = refusal(&exports, soon.clone()).await;
    assert!(matches!(&error, AcquireError::LineClosed { reason } if &**reason == "moved to the archive"));
    exports.open_line().succeeds().await;
    held.release().succeeds().await;
    settles(&exports, 0, 0).await;

    client.close().await.expect("all is released");
    assert_eq!(refusal(&exports, soon).await, AcquireError::Ended(Ended::Closed));
}

#[tokio::test]
async fn a_line_that_is_full_refuses() {
    let builder = Client::builder("memory:full").max_waiters(1);
    let client = builder.connect().succeeds().await;
    let exports = client.named("exports", 1);
    let held = exports.acquire().succeeds().await;
    let waiting = tokio::spawn(exports.acquire());
    settles(&exports, 1, 1).await;

    assert_eq!(
        refusal(&exports, AcquireOptions::new()).await,
        AcquireError::QueueFull { max: 1, lane: None }
    );
    waiting.abort();
    held.release().succeeds().await;
    settles(&exports, 0, 0).await;
}

#[tokio::test]
async fn a_name_that_is_not_valid_fails_its_request_alone() {
    let (client, _) = semaphore("names", 1).await;
    let lines = Keyed::new(&client, 1, |tenant: &&'static str| Some(*tenant));
    let service = tower::service_fn(|tenant: &'static str| ready(Ok::<_, Infallible>(tenant)));
    let service = PermitLayer::until_response(lines).layer(service);

    for (name, empty) in [("", true), ("two\nlines", false)] {
        let error = within(service.clone().oneshot(name)).await.expect_err("it is not valid");
        let PermitError::Acquire { semaphore, source: AcquireError::Invalid(invalid) } = error else {
            panic!("not refused as invalid: {error:?}");
        };
        assert_eq!((semaphore.as_str(), matches!(invalid, InvalidInput::Empty { .. })), (name, empty));
    }
    assert_eq!(within(service.clone().oneshot("acme")).succeeds().await, "acme");
    assert_eq!(service.in_flight(), 0);
    settles(&client.named("acme", 1), 0, 0).await;
}

#[tokio::test]
async fn a_store_that_is_down_is_no_lack_of_permits() {
    let server = Server::start();
    let builder = Client::builder(server.url()).store_timeout(Duration::ZERO);
    let client = builder.connect().succeeds().await;
    let exports = client.named("exports", 1);
    server.kill();
    let error = refusal(&exports, AcquireOptions::new()).await;
    assert!(matches!(error, AcquireError::Store(_)) && !error.is_not_now(), "{error:?}");
}
