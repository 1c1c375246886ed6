//! Arguments that are not valid: a sample of each kind. The rules of requests are a table that the command
//! and the packages walk, too.

use std::time::Duration;

use permits::error::InvalidInput;
use permits::{AcquireError, AcquireOptions, AdminError, ConnectError, Limit, PermitHandle};
use permits_testkit::Server;
use permits_testkit::sound::{Named as _, Succeeds as _};

use crate::{builder, connect, nothing_is_left};

#[tokio::test]
async fn arguments_that_are_not_valid_are_refused() {
    let server = Server::start();
    let client = connect(&server.url()).await;
    let long = "é".repeat(100) + "x";
    for (name, what) in [("", "empty"), (&long, "201 bytes"), ("a\nb", "'\\n'"), ("a\u{0}", "'\\0'")] {
        let invalid = client.semaphore(name, 1).expect_err("it is not valid");
        assert!(invalid.to_string().contains(what), "{invalid}");
        assert_eq!(permits::check::name(name), Err(invalid));
    }
    for limit in [Limit::Declared(0), Limit::Exactly(0)] {
        assert_eq!(client.semaphore("exports", limit).map(drop), Err(InvalidInput::ZeroLimit));
    }
    let semaphore = client.named("exports", 3);
    let error = semaphore.acquire_with(AcquireOptions::new().weight(0)).await.map(drop);
    assert_eq!(error, Err(AcquireError::Invalid(InvalidInput::ZeroWeight)));
    assert_eq!(semaphore.set_limit(0).await, Err(AdminError::Invalid(InvalidInput::ZeroLimit)));
    for (holder, reason) in [("", ""), ("web-3", &*"x".repeat(1001)), ("web-3", "two\nlines")] {
        let error = semaphore.revoke(holder, reason).await;
        assert!(matches!(error, Err(AdminError::Invalid(_))), "{holder:?}: {error:?}");
    }
    for text in ["", "permits11", "exports", "permits11:a:b:c", "permits:exports:h:s.1:1:15000:7:0"] {
        let error = text.parse::<PermitHandle>().expect_err("it is no handle");
        assert!(matches!(error, InvalidInput::Handle { .. }), "{text:?}: {error}");
    }
    nothing_is_left(&server);
}

#[tokio::test]
async fn settings_that_are_not_valid_are_refused() {
    let server = Server::start();
    for prefix in ["", "{", "a}b", "a b", "é", "a\n", &"x".repeat(65)] {
        let error = builder("memory:").prefix(prefix).connect().await;
        let expected = InvalidInput::Prefix { prefix: prefix.into() };
        assert_eq!(error.map(drop), Err(ConnectError::Invalid(expected)));
    }
    let wrong = [builder("memory:").lease(Duration::from_millis(99)), builder("memory:").label("a\u{0}")];
    for builder in wrong.into_iter().chain([builder("memory:").label("x".repeat(121))]) {
        let error = builder.connect().await;
        assert!(matches!(error, Err(ConnectError::Invalid(_))), "{error:?}");
    }
    let (prefix, label) = ("x".repeat(64), "x".repeat(120));
    let client = builder(&server.url()).prefix(prefix).label(label).connect().await.expect("both just fit");
    let longest = client.named("x".repeat(200), 1).acquire().await.expect("it just fits");
    longest.release().succeeds().await;
}
