//! Arguments that are not valid.

use std::time::Duration;

use permits::error::InvalidInput;
use permits::{AcquireError, AcquireOptions, AdminError, AdoptError, ConnectError, Limit, PermitHandle};
use permits_testkit::sound::{Named as _, Succeeds as _};
use permits_testkit::{Resp, Server};

use crate::{builder, connect, nothing_is_left, packed};

#[tokio::test]
async fn names_that_are_not_valid_are_refused() {
    let server = Server::start();
    let client = connect(&server.url()).await;
    let long = "é".repeat(100) + "x";
    for (name, what) in [("", "empty"), (&long, "201 bytes"), ("a\nb", "'\\n'"), ("a\u{0}", "'\\0'")] {
        let invalid = client.semaphore(name, 1).expect_err("it is not valid");
        assert!(invalid.to_string().contains(what), "{invalid}");
        assert_eq!(permits::check::name(name), Err(invalid));
    }
    nothing_is_left(&server);
}

/// Wrong options are those of the table of requests, which the command and the packages walk, too.
#[tokio::test]
async fn options_and_changes_that_are_not_valid_are_refused() {
    let server = Server::start();
    let client = connect(&server.url()).await;
    let semaphore = client.named("exports", 3);
    let options = AcquireOptions::new;
    for wrong in [
        options().weight(0),
        options().holder("web\t3"),
        options().lease(Duration::MAX),
        options().at_least(Duration::MAX),
        options().share(2),
        options().supersede("main").no_wait(),
    ] {
        let error = semaphore.acquire_with(wrong.clone()).await;
        assert!(matches!(error, Err(AcquireError::Invalid(_))), "{wrong:?}: {error:?}");
    }
    let error = AcquireError::ExceedsLimit { weight: 4, limit: 3 };
    assert_eq!(semaphore.acquire_with(options().weight(4)).await.map(drop), Err(error));
    for limit in [Limit::Declared(0), Limit::Exactly(0)] {
        assert_eq!(client.semaphore("exports", limit).map(drop), Err(InvalidInput::ZeroLimit));
    }
    assert_eq!(semaphore.set_limit(0).await, Err(AdminError::Invalid(InvalidInput::ZeroLimit)));
    for (holder, reason) in [("", ""), ("web-3", &*"x".repeat(1001)), ("web-3", "two\nlines")] {
        let error = semaphore.revoke(holder, reason).await;
        assert!(matches!(error, Err(AdminError::Invalid(_))), "{holder:?}: {error:?}");
    }
    let error = builder(&server.url()).lease(Duration::from_millis(99)).connect().await;
    assert!(matches!(error, Err(ConnectError::Invalid(InvalidInput::Lease { .. }))), "{error:?}");
    nothing_is_left(&server);
}

#[tokio::test]
async fn prefixes_and_labels_that_are_not_valid_are_refused() {
    let server = Server::start();
    for prefix in ["", "{", "a}b", "a b", "é", "a\n", &"x".repeat(65)] {
        for url in [&*server.url(), "memory:"] {
            let error = builder(url).prefix(prefix).connect().await;
            let expected = InvalidInput::Prefix { prefix: prefix.into() };
            assert_eq!(error.map(drop), Err(ConnectError::Invalid(expected)));
        }
    }
    for label in ["a\u{0}", &"x".repeat(121)] {
        let error = builder(&server.url()).label(label).connect().await;
        assert!(matches!(error, Err(ConnectError::Invalid(_))), "{label:?}: {error:?}");
    }
    let (prefix, label) = ("x".repeat(64), "x".repeat(120));
    let client = builder(&server.url()).prefix(prefix).label(label).connect().await.expect("both just fit");
    let longest = client.named("x".repeat(200), 1).acquire().await.expect("it just fits");
    longest.release().succeeds().await;
}

#[tokio::test]
async fn texts_that_are_no_handles_are_refused() {
    for text in ["", "permits8", "exports", "permits8:a:b:c", "permits:exports:h:s.1:1:15000:7:0"] {
        let error = text.parse::<PermitHandle>().expect_err("it is no handle");
        assert!(matches!(error, InvalidInput::Handle { .. }), "{text:?}: {error}");
    }
    let other = "permits9:exports:h:s.1:1:15000:7:0".parse::<PermitHandle>();
    assert_eq!(other, Err(InvalidInput::HandleLayout { found: 9, supported: 8 }));
}

#[tokio::test]
async fn handles_of_unknown_permits_take_nothing() {
    let server = Server::start();
    let (client, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let permit = client.named("exports", 1).acquire().succeeds().await;
    let (token, text) = (permit.token().to_string(), permit.hand_over().succeeds().await.to_string());
    for (part, instead) in [(":exports:", ":imports:"), (&*token, "7")] {
        assert!(text.contains(part), "{text}");
        let handle: PermitHandle = text.replace(part, instead).parse().expect("it looks like one");
        assert_eq!(other.adopt(&handle).await.map(drop), Err(AdoptError::Gone), "{handle}");
    }
    assert_eq!(server.command(&["KEYS", "*imports*"]).array(), []);
    let adopted = other.adopt(&text.parse().expect("it is a handle")).succeeds().await;
    adopted.release().succeeds().await;
}

#[tokio::test]
async fn a_queue_without_room_refuses_waiters() {
    let server = Server::start();
    let client = builder(&server.url()).max_waiters(0).connect().succeeds().await;
    let semaphore = client.named("exports", 1);
    let permit = semaphore.acquire().await.expect("holders do not count");
    assert_eq!(semaphore.acquire().await.map(drop), Err(AcquireError::QueueFull { max: 0 }));
    assert_eq!(semaphore.try_acquire().await.map(drop), Err(AcquireError::NoPermits));
    permit.release().succeeds().await;
}

#[tokio::test]
async fn a_required_limit_that_is_not_in_force_leaves_nothing() {
    let server = Server::start();
    let client = connect(&server.url()).await;
    let one = client.named("exports", 1);
    one.set_limit(1).succeeds().await;
    let state = packed::reading_state("permits:{exports}:state");
    let before = server.command(&state);
    let error = client.named("exports", Limit::Exactly(2)).acquire().await.map(drop);
    let mismatch = AcquireError::LimitMismatch { semaphore: "exports".into(), required: 2, stored: 1 };
    assert_eq!(error, Err(mismatch));
    let version = |state: &Resp| packed::field(state, "limit_version");
    assert_eq!(version(&server.command(&state)), version(&before));
    assert_eq!(server.command(&["KEYS", "*"]).array().len(), 1, "the state that was there");
    let error = client.named("imports", Limit::Stored).acquire().await.map(drop);
    assert_eq!(error, Err(AcquireError::NoLimit { semaphore: "imports".into() }));
    assert_eq!(server.command(&["KEYS", "*imports*"]).array(), []);
}
