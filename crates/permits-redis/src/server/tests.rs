//! Tests of a connection over a pipe in memory. The test is the server.

use std::io;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::connection::Connection;
use super::state::{Arrival, NoReceiver, Receiver, Times};
use crate::call::{Call, Wire};
use crate::error;
use crate::protocol::{Command, Declaration, Name, Operation, Recovery, SessionId};
use crate::resp::{Cmd, RespResult, Value, cmd};
use crate::script::Scripts;
use permits_store::{Report, Request};

/// A timeout that no step reaches on a busy machine.
const LIMIT: Duration = Duration::from_secs(20);

/// The arrivals, as they were handed over: all of one read together.
struct Collector {
    read: Mutex<Vec<Arrival>>,
    sender: mpsc::UnboundedSender<Vec<Arrival>>,
}

impl Receiver for Collector {
    fn receive(&self, arrival: Arrival, reports: &mut Vec<Report>) {
        self.read.lock().expect("no panic").push(arrival);
        reports.push(Report::Up);
    }

    fn hand_on(&self, _: &mut Vec<Report>) {
        // The receiver of the test may be gone.
        let _ = self.sender.send(std::mem::take(&mut *self.read.lock().expect("no panic")));
    }
}

/// A connection over a pipe of this capacity, the other end of the pipe, and the arrivals.
fn connect(
    capacity: usize,
    times: Times,
) -> (Connection, DuplexStream, mpsc::UnboundedReceiver<Vec<Arrival>>) {
    let (ours, server) = tokio::io::duplex(capacity);
    let (readable, writable) = tokio::io::split(ours);
    let (sender, arrivals) = mpsc::unbounded_channel();
    let halves = (Box::new(readable) as _, Box::new(writable) as _);
    (Connection::start(halves, times, Collector { read: Mutex::default(), sender }), server, arrivals)
}

/// The encoding of calls, made once.
fn wire() -> &'static Wire {
    static WIRE: LazyLock<Wire> =
        LazyLock::new(|| Wire { scripts: Scripts::new(false), prefix: "p".into(), sharded: false });
    &WIRE
}

fn call(id: u64, within: Duration) -> Box<Call> {
    let command = Command {
        semaphore: Name::new("s").expect("valid"),
        session: SessionId::new("session").expect("valid"),
        lease_ms: 1000,
        recovery: Recovery::Off,
        declaration: Declaration::Stored,
        operation: Operation::Inspect { max: 0 },
    };
    Call::new(Request { id, command, timeout: within, replicas: 0 })
}

async fn next(arrivals: &mut mpsc::UnboundedReceiver<Vec<Arrival>>) -> Vec<Arrival> {
    timeout(LIMIT, arrivals.recv()).await.expect("it does not hang").expect("the connection is there")
}

/// The numbers of the calls that have an outcome, and their results.
fn outcomes(arrivals: Vec<Arrival>) -> Vec<(u64, Result<Value, String>)> {
    let outcome = |arrival| match arrival {
        Arrival::Outcome(call, result) => Some((call.request.id, plain(result))),
        _ => None,
    };
    arrivals.into_iter().filter_map(outcome).collect()
}

/// A result with the message of its error.
fn plain<T>(result: RespResult<T>) -> Result<T, String> {
    result.map_err(|failed| error::text(&failed))
}

fn echo(number: usize) -> Cmd {
    let mut echo = cmd("ECHO");
    echo.arg(number);
    echo
}

/// Lets the connection's task take all that it can.
async fn let_it_read() {
    for _ in 0..4 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn replies_that_arrive_in_parts_are_those_that_arrive_whole() {
    let big = "x".repeat(300);
    let replies = [
        "+OK\r\n".to_owned(),
        "-ERR no such thing\r\n".to_owned(),
        format!("${}\r\n{big}\r\n", big.len()),
        "*3\r\n:1\r\n*2\r\n$4\r\na\r\nb\r\n_\r\n*0\r\n".to_owned(),
        "%1\r\n+proto\r\n:3\r\n".to_owned(),
        "=7\r\ntxt:a:b\r\n".to_owned(),
    ];
    let message = ">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$4\r\ntext\r\n";
    let text = |text: &str| Value::BulkString(text.into());
    let expected = [
        Ok(Value::SimpleString("OK".into())),
        Err("ERR no such thing".to_owned()),
        Ok(text(&big)),
        Ok(Value::Array(vec![
            Value::Int(1),
            Value::Array(vec![text("a\r\nb"), Value::Nil]),
            Value::Array(vec![]),
        ])),
        Ok(Value::Map(vec![(Value::SimpleString("proto".into()), Value::Int(3))])),
        Ok(text("a:b")),
    ];
    let all = [&replies[..3].concat(), message, &replies[3..].concat()].concat().into_bytes();
    let commands: Vec<Cmd> = (0..replies.len()).map(echo).collect();
    // Cut in two at each byte; the last time, at all bytes.
    for cut in 0..=all.len() {
        let (connection, mut server, mut arrivals) = connect(4096, Times::default());
        let sending = async {
            let parts: Vec<&[u8]> = match cut {
                cut if cut == all.len() => all.chunks(1).collect(),
                cut => vec![&all[..cut], &all[cut..]],
            };
            for part in parts {
                server.write_all(part).await.expect("there is room");
                let_it_read().await;
            }
        };
        let (received, ()) = tokio::join!(connection.query_all(&commands), sending);
        assert_eq!(received.into_iter().map(plain).collect::<Vec<_>>(), expected, "cut at {cut}");
        let [Arrival::Message(payload)] = &next(&mut arrivals).await[..] else { panic!("cut at {cut}") };
        assert_eq!(payload, b"text");
    }
}

#[tokio::test]
async fn a_reply_larger_than_a_read_is_one_reply() {
    let (connection, mut server, _arrivals) = connect(1 << 20, Times::default());
    let text = "0123456789".repeat(100_000);
    let sending = async {
        server.write_all(format!("${}\r\n{text}\r\n:7\r\n", text.len()).as_bytes()).await.expect("it reads");
    };
    let commands = [echo(0), echo(1)];
    let (received, ()) = tokio::join!(connection.query_all(&commands), sending);
    let received: Vec<_> = received.into_iter().map(plain).collect();
    assert_eq!(received, [Ok(Value::BulkString(text.into_bytes())), Ok(Value::Int(7))]);
}

#[tokio::test]
async fn all_replies_of_a_read_are_handed_over_together_and_in_order() {
    let (connection, mut server, mut arrivals) = connect(1 << 20, Times::default());
    for id in 0..100 {
        connection.call(call(id, LIMIT), wire()).expect("it is open");
    }
    let replies: String = (0..100).map(|number| format!(":{number}\r\n")).collect();
    server.write_all(replies.as_bytes()).await.expect("there is room");
    let arrived = outcomes(next(&mut arrivals).await);
    let expected: Vec<_> = (0..100_u64).map(|id| (id, Ok(Value::Int(id.cast_signed())))).collect();
    assert_eq!(arrived, expected);
}

#[tokio::test]
async fn every_call_gets_its_outcome_once_when_the_connection_ends() {
    let (connection, mut server, mut arrivals) = connect(1 << 20, Times::default());
    let mut sent: Vec<u64> = Vec::new();
    let send = |id: u64| connection.call(call(id, LIMIT), wire()).is_ok();
    sent.extend((0..50).filter(|id| send(*id)));
    server.write_all(b":0\r\n:1\r\n").await.expect("there is room");
    drop(server);
    // Calls that are sent while the connection ends either fail at once, or have an outcome.
    for id in 50.. {
        if !send(id) {
            break;
        }
        sent.push(id);
        tokio::task::yield_now().await;
    }
    let mut outcome_of = Vec::new();
    let ended = loop {
        let arrived = next(&mut arrivals).await;
        let ended = arrived.iter().any(|arrival| matches!(arrival, Arrival::Ended(_)));
        outcome_of.extend(outcomes(arrived));
        if ended {
            break connection.ended().await;
        }
    };
    assert!(ended.io().is_some(), "{ended:?}");
    assert_eq!(outcome_of.iter().map(|(id, _)| *id).collect::<Vec<_>>(), sent);
    assert!(outcome_of[..2].iter().all(|(_, result)| result.is_ok()), "their replies came");
    assert!(outcome_of[2..].iter().all(|(_, result)| result.is_err()));
    assert!(connection.query::<Value>(&echo(0)).await.is_err());
}

#[tokio::test]
async fn a_call_without_a_reply_in_time_ends_the_connection() {
    let (connection, _server, mut arrivals) = connect(1 << 20, Times::default());
    connection.call(call(0, LIMIT), wire()).expect("it is open");
    connection.call(call(1, Duration::from_millis(20)), wire()).expect("it is open");
    let arrived = outcomes(next(&mut arrivals).await);
    let expected = [(0, "the connection was closed"), (1, "no answer within 20ms")];
    assert_eq!(arrived, expected.map(|(id, text)| (id, Err(text.to_owned()))));
}

/// A slow server with a long line of calls: another connection would only send all of them again.
#[tokio::test(start_paused = true)]
async fn a_connection_whose_replies_keep_arriving_bears_calls_longer_than_their_timeout() {
    const TIMEOUT: Duration = Duration::from_secs(3);
    let (connection, mut server, mut arrivals) = connect(1 << 20, Times::default());
    for id in 0..10 {
        connection.call(call(id, TIMEOUT), wire()).expect("it is open");
    }
    for id in 0..9 {
        tokio::time::sleep(TIMEOUT * 9 / 10).await;
        server.write_all(b":0\r\n").await.expect("it is open");
        assert_eq!(outcomes(next(&mut arrivals).await), [(id, Ok(Value::Int(0)))]);
    }
    let arrived = outcomes(next(&mut arrivals).await);
    assert_eq!(arrived, [(9, Err("no answer within 3s".to_owned()))]);
}

#[tokio::test]
async fn an_idle_connection_is_pinged_and_ends_without_a_reply() {
    let ping = Some((Duration::from_millis(20), Duration::from_millis(50)));
    let (connection, mut server, _arrivals) = connect(4096, Times { ping, query: None });
    let mut ping = [0; 14];
    server.read_exact(&mut ping).await.expect("it is open");
    assert_eq!(&ping, b"*1\r\n$4\r\nPING\r\n");
    server.write_all(b"+PONG\r\n").await.expect("it is open");
    server.read_exact(&mut ping).await.expect("it is open");
    let ended = timeout(LIMIT, connection.ended()).await.expect("it ends");
    assert_eq!(error::text(&ended), "the server does not answer a ping");
}

#[tokio::test]
async fn a_server_that_reads_nothing_fills_the_connection_and_queries_wait() {
    let (connection, mut server, mut arrivals) = connect(1024, Times::default());
    let mut calls = 0;
    while !connection.is_full() {
        connection.call(call(calls, LIMIT), wire()).expect("it is open");
        calls += 1;
    }
    let query = tokio::spawn({
        let connection = connection.clone();
        async move { connection.query::<String>(&echo(7)).await }
    });
    let_it_read().await;
    assert!(!query.is_finished());

    // The server reads everything, and replies.
    let reading = tokio::spawn(async move {
        let mut received = Vec::new();
        while !received.ends_with(b"ECHO\r\n$1\r\n7\r\n") {
            server.read_buf(&mut received).await.expect("it is open");
        }
        let replies = ":0\r\n".repeat(usize::try_from(calls).expect("they fit")) + "+seven\r\n";
        server.write_all(replies.as_bytes()).await.expect("it reads");
        (received, server)
    });
    let mut had_room = false;
    let mut replied = Vec::new();
    while replied.len() < usize::try_from(calls).expect("they fit") {
        let arrived = next(&mut arrivals).await;
        had_room |= arrived.iter().any(|arrival| matches!(arrival, Arrival::Room));
        replied.extend(outcomes(arrived).into_iter().map(|(id, _)| id));
    }
    assert!(had_room && !connection.is_full());
    assert_eq!(plain(query.await.expect("no panic")), Ok("seven".to_owned()));
    assert_eq!(replied, (0..calls).collect::<Vec<_>>());
    let (received, _server) = reading.await.expect("no panic");
    let starts = received.windows(7).filter(|window| *window == b"EVALSHA").count();
    assert_eq!(starts, replied.len(), "all was written, in order and once");
}

#[tokio::test]
async fn subscriptions_are_confirmed_refused_and_ended_by_pushes() {
    let (connection, mut server, mut arrivals) = connect(4096, Times::default());
    let subscription = |channel: &str| {
        let mut subscribe = cmd("SSUBSCRIBE");
        subscribe.arg(channel);
        subscribe
    };
    connection.subscribe(&subscription("a"), "a");
    connection.subscribe(&subscription("b"), "b");
    connection.unsubscribe(cmd("SUNSUBSCRIBE").arg("c"));
    let pushed =
        |kind: &str, channel: &str| format!(">3\r\n${}\r\n{kind}\r\n$1\r\n{channel}\r\n:1\r\n", kind.len());
    let replies = [
        // The hash slot of d has moved before the first command was executed.
        pushed("sunsubscribe", "d"),
        pushed("ssubscribe", "a"),
        "-NOPERM no channel\r\n".to_owned(),
        pushed("sunsubscribe", "c"),
        // The server removes this subscription without a command of the client.
        pushed("sunsubscribe", "a"),
        ":7\r\n".to_owned(),
    ]
    .concat();
    let asked = echo(0);
    let (reply, written) =
        tokio::join!(connection.query::<u32>(&asked), server.write_all(replies.as_bytes()));
    written.expect("there is room");
    assert_eq!(plain(reply), Ok(7), "no reply was taken for another's");
    let arrived = next(&mut arrivals).await;
    let [Arrival::Unsubscribed(d), Arrival::NotSubscribed(b, refusal), Arrival::Unsubscribed(a)] =
        &arrived[..]
    else {
        panic!("{} arrivals", arrived.len());
    };
    assert_eq!((&**d, &**b, &**a), ("d", "b", "a"));
    assert_eq!(refusal.code(), Some("NOPERM"));
}

#[tokio::test]
async fn a_reply_without_a_command_ends_the_connection() {
    let (connection, mut server, _arrivals) = connect(4096, Times::default());
    server.write_all(b"+OK\r\n").await.expect("there is room");
    timeout(LIMIT, connection.ended()).await.expect("it ends");
}

#[tokio::test]
async fn a_dropped_connection_closes_the_stream() {
    let (ours, mut server) = tokio::io::duplex(64);
    let (readable, writable) = tokio::io::split(ours);
    let halves = (Box::new(readable) as _, Box::new(writable) as _);
    drop(Connection::start(halves, Times::default(), NoReceiver));
    let end = timeout(LIMIT, server.read_u8()).await.expect("it ends");
    assert_eq!(end.expect_err("nothing was sent").kind(), io::ErrorKind::UnexpectedEof);
}

/// A stream that takes one byte at a time, and keeps it until it is flushed, as TLS may.
struct Slow {
    inner: DuplexStream,
    kept: Arc<Mutex<Option<u8>>>,
}

impl tokio::io::AsyncWrite for Slow {
    fn poll_write(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        bytes: &[u8],
    ) -> std::task::Poll<io::Result<usize>> {
        std::task::ready!(self.as_mut().poll_flush(cx))?;
        *self.kept.lock().expect("no panic") = bytes.first().copied();
        std::task::Poll::Ready(Ok(bytes.len().min(1)))
    }

    fn poll_flush(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        let kept = *self.kept.lock().expect("no panic");
        if let Some(byte) = kept {
            std::task::ready!(std::pin::Pin::new(&mut self.inner).poll_write(cx, &[byte]))?;
            *self.kept.lock().expect("no panic") = None;
        }
        std::task::Poll::Ready(Ok(()))
    }

    fn poll_shutdown(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        std::task::Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn bytes_that_the_stream_keeps_are_flushed() {
    let (inner, mut server) = tokio::io::duplex(3);
    let slow = Slow { inner, kept: Arc::default() };
    let (silent, _unused) = tokio::io::duplex(1);
    let connection = Connection::start((Box::new(silent), Box::new(slow)), Times::default(), NoReceiver);
    let query = tokio::spawn(async move { connection.query::<Value>(&echo(5)).await });
    let mut received = [0; 21];
    timeout(LIMIT, server.read_exact(&mut received)).await.expect("all is written").expect("it is open");
    assert_eq!(&received, b"*2\r\n$4\r\nECHO\r\n$1\r\n5\r\n");
    query.abort();
}
