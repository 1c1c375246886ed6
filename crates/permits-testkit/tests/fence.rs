//! The fenced resource refuses stale tokens, in the process and over its socket.

use std::io::{BufRead, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::thread;

use permits_testkit::{FencedClient, FencedResource, FencedServer, Stale};

#[test]
fn a_lower_token_is_refused_and_changes_nothing() {
    let resource = FencedResource::new();
    assert_eq!(resource.highest(3), None);
    assert_eq!(resource.write(3, 10, "a"), Ok(()));
    let stale = resource.write(3, 9, "b").expect_err("10 was seen");
    assert_eq!(stale, Stale { slot: 3, token: 9, highest: 10 });
    assert_eq!(stale.to_string(), "token 9 of slot 3 is stale: 10 was seen");
    assert_eq!(resource.highest(3), Some(10));
    assert_eq!(resource.writes().len(), 1);
    assert_eq!(resource.refused()[0].data, "b");
}

#[test]
fn one_permit_writes_often() {
    let resource = FencedResource::new();
    for data in ["a", "b", "c"] {
        assert_eq!(resource.write(0, 10, data), Ok(()));
    }
    let written: Vec<String> = resource.writes().into_iter().map(|write| write.data).collect();
    assert_eq!(written, ["a", "b", "c"]);
}

#[test]
fn each_slot_has_a_token_of_its_own() {
    let resource = FencedResource::new();
    assert_eq!(resource.write(0, 10, "a"), Ok(()));
    assert_eq!(resource.write(1, 5, "b"), Ok(()), "a lower token is good in another slot");
    assert_eq!((resource.highest(0), resource.highest(1)), (Some(10), Some(5)));
}

#[test]
fn tokens_are_compared_in_full() {
    let resource = FencedResource::new();
    assert_eq!(resource.write(u32::MAX, u64::MAX, ""), Ok(()));
    assert!(resource.write(u32::MAX, u64::MAX - 1, "").is_err());
}

#[test]
fn clients_of_the_service_share_one_resource() {
    let server = FencedServer::start();
    let mut first = FencedClient::connect(server.path()).expect("it listens");
    let mut second = FencedClient::connect(server.path()).expect("it listens");
    assert_eq!(first.write(0, 7, "two words").expect("it answers"), Ok(()));
    assert_eq!(second.write(0, 9, "").expect("it answers"), Ok(()));
    let stale = Stale { slot: 0, token: 7, highest: 9 };
    assert_eq!(first.write(0, 7, "late").expect("it answers"), Err(stale));
    let written: Vec<String> = server.resource().writes().into_iter().map(|write| write.data).collect();
    assert_eq!(written, ["two words", ""]);
}

#[test]
fn of_many_writers_at_once_none_gets_past_a_higher_token() {
    let server = FencedServer::start();
    thread::scope(|scope| {
        for writer in 0..4 {
            let path = server.path();
            scope.spawn(move || {
                let mut client = FencedClient::connect(path).expect("it listens");
                for step in 0..100 {
                    let _ = client.write(0, step * 4 + writer, "").expect("it answers");
                }
            });
        }
    });
    let tokens: Vec<u64> = server.resource().writes().iter().map(|write| write.token).collect();
    assert!(tokens.is_sorted(), "{tokens:?}");
    assert_eq!(tokens.last(), Some(&399));
    assert_eq!(tokens.len() + server.resource().refused().len(), 400);
}

#[test]
fn a_request_that_is_none_is_answered_and_the_connection_stays() {
    let server = FencedServer::start();
    let mut stream = BufReader::new(UnixStream::connect(server.path()).expect("it listens"));
    for (request, expected) in [
        ("READ 0 1 x", "ERROR expected WRITE slot token data\n"),
        ("WRITE 0 1", "ERROR expected WRITE slot token data\n"),
        ("WRITE -1 1 x", "ERROR expected WRITE slot token data\n"),
        ("WRITE 0 9 x", "OK\n"),
        ("WRITE 0 8 x", "STALE 9\n"),
    ] {
        writeln!(stream.get_mut(), "{request}").expect("it is read");
        let mut reply = String::new();
        stream.read_line(&mut reply).expect("it answers");
        assert_eq!(reply, expected, "{request}");
    }
    let mut client = FencedClient::connect(server.path()).expect("it listens");
    client.write(0, 1, "two\nlines").expect_err("a line break would be a second request");
}

#[test]
fn dropping_the_service_ends_its_connections_and_removes_the_socket() {
    let server = FencedServer::start();
    let path = server.path().to_owned();
    let mut client = FencedClient::connect(&path).expect("it listens");
    assert_eq!(client.write(0, 1, "a").expect("it answers"), Ok(()));
    drop(server);
    client.write(0, 1, "b").expect_err("the service is gone");
    assert!(!path.exists());
}
