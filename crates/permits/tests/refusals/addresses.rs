//! Addresses that are not valid, or without a server.

use std::net::TcpListener;

use permits::{ConnectError, StoreError};
use permits_testkit::Server;
use permits_testkit::sound::{Named as _, Succeeds as _};

use crate::{PASSWORD, attempt_error, connect, connect_error, in_time, keeps_the_secret, packed};

#[tokio::test]
async fn unknown_schemes_are_named_with_those_that_are_known() {
    for scheme in ["http", "postgres", "redis+http", "memcached", "rediss+unix"] {
        let error = connect_error(&format!("{scheme}://user:{PASSWORD}@127.0.0.1:6379/")).await;
        let ConnectError::UnknownScheme { scheme: named, known } = &error else { panic!("{error:?}") };
        assert_eq!(named, scheme);
        assert!(known.contains("redis://") && known.contains("memory:"), "{known}");
        keeps_the_secret(&error);
    }
}

#[tokio::test]
async fn a_url_that_is_mistyped_is_not_repeated() {
    for url in [
        "",
        PASSWORD,
        "127.0.0.1:6379",
        "memory",
        "redis",
        "redis:",
        "redis://",
        "redis:///0",
        &format!("{PASSWORD}@127.0.0.1:6379"),
        &format!("redis//:{PASSWORD}@127.0.0.1"),
        &format!("redis://:{PASSWORD}@127.0.0.1:port/"),
        &format!("redis://:{PASSWORD}@127.0.0.1:99999/"),
        &format!("redis://:{PASSWORD}@127.0.0.1/first"),
        &format!("redis://:{PASSWORD}@/0"),
        &format!("redis://:{PASSWORD}%FF@127.0.0.1/"),
        &format!("redis://:{PASSWORD}@[::1/"),
        &format!("redis://:{PASSWORD}@127.0.0.1 :6379/"),
        &format!("redis+unix://?pass={PASSWORD}"),
        &format!("redis://:{PASSWORD}@127.0.0.1/?protocol=resp9"),
    ] {
        let error = connect_error(url).await;
        let about_the_url = matches!(error, ConnectError::Url { .. } | ConnectError::UnknownScheme { .. });
        assert!(about_the_url, "{url:?}: {error:?}");
        keeps_the_secret(&error);
    }
}

#[tokio::test]
async fn an_attempt_without_a_server_says_where() {
    let port =
        TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("it is bound").port();
    let error = attempt_error(&format!("redis://:{PASSWORD}@127.0.0.1:{port}/")).await;
    let ConnectError::Store(StoreError::Unreachable { reason }) = &error else { panic!("{error:?}") };
    assert!(reason.contains(&port.to_string()), "it says where: {reason}");
    assert!(reason.contains("refused"), "it says what: {reason}");
    keeps_the_secret(&error);

    let error = attempt_error("redis+unix:///nowhere/at/all.sock").await;
    let ConnectError::Store(StoreError::Unreachable { reason }) = &error else { panic!("{error:?}") };
    assert!(reason.contains("/nowhere/at/all.sock"), "it says where: {reason}");
}

#[tokio::test]
async fn a_server_that_never_answers_is_given_up() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = silent.local_addr().expect("it is bound");
    let urls = ["redis", "rediss"].map(|scheme| format!("{scheme}://:{PASSWORD}@{address}/"));
    let (plain, tls) = tokio::join!(attempt_error(&urls[0]), attempt_error(&urls[1]));
    for error in [plain, tls] {
        let ConnectError::Store(StoreError::Unreachable { reason }) = &error else { panic!("{error:?}") };
        assert!(reason.contains(&address.to_string()), "it says where: {reason}");
        assert!(reason.contains("no connection within"), "it says what: {reason}");
        keeps_the_secret(&error);
    }
}

#[tokio::test]
async fn a_unix_socket_is_an_address() {
    let server = Server::builder().unix_socket().password(PASSWORD).start();
    let path = server.url().replace("redis+unix://", "");
    for scheme in ["redis+unix", "valkey+unix", "unix"] {
        let client = connect(&format!("{scheme}://{path}")).await;
        let permit = client.named("exports", 1).acquire().succeeds().await;
        permit.release().succeeds().await;
        client.close().succeeds().await;
    }
}

#[tokio::test]
async fn the_database_of_the_address_is_used() {
    let server = Server::start();
    let third = connect(&format!("{}3", server.url())).await;
    let permit = third.named("exports", 1).acquire().succeeds().await;
    let first = connect(&server.url()).await;
    drop(first.named("exports", 1).try_acquire().await.expect("it is another database"));
    let mut connection = server.connect().expect("the server is up");
    assert_eq!(connection.call(&["SELECT", "3"]).expect("the server is up").text(), "OK");
    let state = connection.call(&packed::reading_state("permits:{exports}:state")).expect("the server is up");
    assert_eq!(packed::field(&state, "held"), Some(1));
    // Its waiters are woken too, since channels belong to no database.
    let waiter = tokio::spawn({
        let semaphore = third.named("exports", 1);
        async move { semaphore.acquire().await }
    });
    let semaphore = third.named("exports", 1);
    while semaphore.inspect().succeeds().await.waiting == 0 {}
    permit.release().succeeds().await;
    let permit = in_time(waiter).await.expect("no panic").expect("it is granted");
    permit.release().succeeds().await;

    let error = connect_error(&format!("{}99", server.url())).await;
    assert!(error.to_string().contains("out of range"), "{error}");
}
