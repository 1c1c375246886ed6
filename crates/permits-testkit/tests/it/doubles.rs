//! The servers that stand in for others do what tests ask of them.

use permits::{AcquireError, Client, StoreError};
use permits_testkit::sound::Named as _;
use permits_testkit::{FakeServer, FencedClient, FencedServer, Garbage, Stale};

/// Without it, a client that never sees garbage would pass the tests of what garbage does.
#[test]
fn a_fake_server_sends_garbage_once() {
    let server = FakeServer::start();
    let client =
        Client::connect(&format!("redis://{}/", server.address())).wait().expect("the server behaves");
    let connections = server.connections();
    server.send(Garbage { to: "EVALSHA", bytes: b":1\r\n".to_vec(), ends: true });
    let semaphore = client.named("exports", 4);
    let error = semaphore.acquire().wait().expect_err("the reply is no array");
    assert!(matches!(error, AcquireError::Store(StoreError::Malformed { .. })), "{error}");
    semaphore.acquire().wait().expect("the server behaves").release().wait().expect("it is held");
    assert_eq!(server.behave(), 1);
    assert!(server.connections() > connections, "the client has connected again");
}

/// Without it, the fault matrix would accept late writes.
#[test]
fn the_fenced_service_refuses_a_stale_token_of_any_client() {
    let server = FencedServer::start();
    let mut first = FencedClient::connect(server.path()).expect("it listens");
    let mut second = FencedClient::connect(server.path()).expect("it listens");
    assert_eq!(first.write(0, 7, "two words").expect("it answers"), Ok(()));
    assert_eq!(second.write(0, 9, "").expect("it answers"), Ok(()));
    assert_eq!(second.write(1, 5, "of another slot").expect("it answers"), Ok(()));
    let stale = Stale { slot: 0, token: 7, highest: 9 };
    assert_eq!(first.write(0, 7, "late").expect("it answers"), Err(stale));
    assert_eq!((server.resource().writes().len(), server.resource().refused().len()), (3, 1));
}
