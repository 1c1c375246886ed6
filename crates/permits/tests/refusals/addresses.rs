//! Addresses of a silent server, and of a database. Those that are not valid are in `deployments::urls`, and
//! in the unit tests of their parser.

use std::net::TcpListener;

use permits::{ConnectError, StoreError};
use permits_testkit::Server;
use permits_testkit::sound::{Named as _, Succeeds as _};

use crate::{PASSWORD, attempt_error, connect, connect_error, in_time, keeps_the_secret, packed};

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
    // Waiters in another database are woken, too, since channels belong to no database.
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
