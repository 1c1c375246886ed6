//! The fake server serves a client of the library, and sends garbage on request.

use permits::blocking::Client;
use permits::{AcquireError, ConnectError, StoreError};
use permits_testkit::{FakeServer, Garbage};

fn url(server: &FakeServer, scheme: &str) -> String {
    format!("{scheme}://{}/", server.address())
}

#[test]
fn a_client_acquires_and_releases() {
    for (server, scheme) in
        [(FakeServer::start(), "redis"), (FakeServer::start_in_cluster(), "redis+cluster")]
    {
        let client = Client::connect(&url(&server, scheme)).expect("the server behaves");
        let permit = client.semaphore("exports", 4).expect("valid").acquire().expect("the server behaves");
        assert_eq!((permit.token(), permit.slot()), (7, 0));
        permit.release().expect("the server behaves");
        client.close().expect("the server behaves");
        assert_eq!(server.behave(), 0);
    }
}

#[test]
fn garbage_is_sent_once() {
    let server = FakeServer::start();
    let client = Client::connect(&url(&server, "redis")).expect("the server behaves");
    let connections = server.connections();
    server.send(Garbage { to: "EVALSHA", bytes: b":1\r\n".to_vec(), ends: true });
    let semaphore = client.semaphore("exports", 4).expect("valid");
    let error = semaphore.acquire().expect_err("the reply is no array");
    assert!(matches!(error, AcquireError::Store(StoreError::Malformed { .. })), "{error}");
    semaphore.acquire().expect("the server behaves").release().expect("it is held");
    assert_eq!(server.behave(), 1);
    assert!(server.connections() > connections, "the client has connected again");
}

#[test]
fn the_reply_to_info_can_be_given() {
    let server =
        FakeServer::start_with_info("redis_version:5.0.14\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n");
    match Client::connect(&url(&server, "redis")) {
        Err(ConnectError::Store(StoreError::Unsupported { reason })) => {
            assert!(reason.contains("5.0.14"), "{reason}");
        }
        other => panic!("the server is too old: {other:?}"),
    }
}
