//! The words of each command, its reply and its messages, as `docs/inside/protocol/vectors.jsonl` has them
//! for clients in other languages.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;

use permits_core::model::EntryState;
use permits_core::protocol::{
    AcquireRequest, AdoptRequest, Grant, Operation, OperationKind, PermitTerms, ReleaseRequest, SessionId,
    SupersedeKey,
};
use permits_redis::testing::{call_with_fixed_clock, decode_message, decode_reply};
use permits_testkit::Connection;
use serde_json::json;

use crate::fixture::{
    Both, Scene, acquire, close_line, every_operation, holder, id, in_lane, renew, request,
};
use crate::operations::name;

const PREFIX: &str = "permits-test";
const CHANNEL: &str = "permits-test:wake:session";

/// A published text after which no more messages come.
const END: &str = "end";

/// Each kind of operation on a full semaphore, and several forms of the operations that clients send most.
fn operations(held: Grant) -> Vec<Operation> {
    let terms = || PermitTerms::new(1, 3_000);
    let keyed = PermitTerms { supersede: SupersedeKey::new("main").expect("it is valid"), ..terms() };
    let acquire_one = |request| Operation::Acquire { queue_max: 10, requests: vec![request] };
    let refused = AcquireRequest { wait: false, ..request("try") };
    let counted = AcquireRequest { terms: PermitTerms { at_least_ms: 60_000, ..terms() }, ..request("rate") };
    let corrected =
        ReleaseRequest { holder: holder("a"), request: id("a"), last_token: None, counted: Some(0) };
    let mut operations = vec![
        acquire(&["e", "f"]),
        acquire_one(refused),
        acquire_one(counted),
        acquire_one(in_lane("lane", "tenant-7", 2)),
        acquire_one(AcquireRequest { supersedes: true, terms: keyed, ..request("key") }),
        Operation::Release(vec![corrected]),
        renew("a", Some(held)),
        close_line("c2", None),
    ];
    operations.extend(every_operation());
    for operation in &mut operations {
        if let Operation::Adopt(adopt) = operation {
            *adopt = AdoptRequest { holder: holder("a"), request: id("a"), grant: held, ..adopt.clone() };
        }
    }
    operations.sort_by_key(|operation| operation.kind() as usize);
    operations
}

/// Sends a command, and returns the bytes of its reply.
fn exchange(server: &mut TcpStream, words: &[Vec<u8>]) -> Vec<u8> {
    // The reply to this one is the end.
    const LAST: &[u8] = b"$4\r\nlast\r\n";
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n", word.len()).bytes());
        bytes.extend([word, &b"\r\n"[..]].concat());
    }
    bytes.extend(b"*2\r\n$4\r\nECHO\r\n");
    bytes.extend(LAST);
    server.write_all(&bytes).expect("the server runs");
    let mut reply = Vec::new();
    while !reply.ends_with(LAST) {
        let mut part = [0; 4096];
        let length = server.read(&mut part).expect("the server replies");
        assert!(length > 0, "the server has closed the connection");
        reply.extend(&part[..length]);
    }
    reply.truncate(reply.len() - LAST.len());
    reply
}

/// Bytes as text. Bytes that are not printable ASCII are written as `\t`, `\r`, `\n` or `\x01`.
fn text(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

/// The messages that have been published before [`END`].
fn messages(both: &mut Both, subscribed: &mut Connection) -> Vec<String> {
    both.call(&["PUBLISH", CHANNEL, END]);
    let mut messages = Vec::new();
    loop {
        let published = subscribed.receive().expect("the server runs");
        match published.array()[2].text() {
            END => return messages,
            text => messages.push(text.to_owned()),
        }
    }
}

fn made() -> String {
    let mut both = Both::start();
    let mut subscribed = both.new_connection();
    let mut server = TcpStream::connect(both.address()).expect("the server runs");
    subscribed.call(&["SUBSCRIBE", CHANNEL]).expect("the server runs");
    let session = SessionId::new("session").expect("it is plain");
    let mut vectors = String::new();
    // The scene is the same each time, with other times.
    let now_us = both.now_us;
    for number in 0..operations(Grant { token: 1, slot: 0 }).len() {
        both.call(&["FLUSHALL"]);
        both.state = None;
        both.set_time(now_us);
        both.play(Scene::Full);
        messages(&mut both, &mut subscribed);
        let state = both.state.as_ref().expect("it is used");
        let EntryState::Holding(held) = state.entries[&holder("a")].place else {
            panic!("it holds: {state:?}")
        };
        let operation = operations(held).swap_remove(number);
        if matches!(operation, Operation::Inspect { .. }) {
            let mut bounded = in_lane("lane", "tenant-7", 2);
            (bounded.terms.lane_limit, bounded.terms.lane_floor) = (5, 2);
            both.acquired(vec![bounded]);
            messages(&mut both, &mut subscribed);
        }
        let words = call_with_fixed_clock(PREFIX, &both.command(&operation));
        let reply = exchange(&mut server, &words);
        assert!(decode_reply(&reply, &operation, &name()).is_ok(), "{operation:?}: {}", text(&reply));
        let messages = messages(&mut both, &mut subscribed);
        for message in &messages {
            decode_message(&session, message.as_bytes()).expect("the codec reads it");
        }
        let kind = format!("{:?}", operation.kind());
        let mut request = vec!["EVALSHA".to_owned(), "SCRIPT".to_owned()];
        request.extend(words[2..].iter().map(|word| text(word)));
        let messages: Vec<_> = messages.iter().map(|message| text(message.as_bytes())).collect();
        let vector =
            json!({"command": kind, "request": request, "reply": text(&reply), "messages": messages});
        vectors += &format!("{vector}\n");
    }
    for kind in OperationKind::ALL {
        assert!(vectors.contains(&format!("\"command\":\"{kind:?}\"")), "{kind:?} has no vector");
    }
    vectors
}

#[test]
fn the_vectors_in_the_documents_are_those_of_the_codec() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/inside/protocol/vectors.jsonl");
    let made = made();
    if std::fs::read_to_string(&path).unwrap_or_default() != made {
        let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join("vectors.jsonl");
        std::fs::write(&copy, made).expect("the build has a directory");
        panic!(
            "the protocol has changed: look at the difference, and cp {} {}",
            copy.display(),
            path.display()
        );
    }
}
