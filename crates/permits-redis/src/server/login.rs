//! Opens a connection and logs in, with the first commands sent along.
//!
//! The login is sent together with the commands that follow it, in one round trip. If the server refuses the
//! login, their replies do not count.
//!
//! A client that speaks TLS and a server that does not (or the other way round) cannot read each other's
//! bytes, or wait for each other. Then the other protocol is tried, to find the cause: with a PING, or with
//! the first message of a handshake, never with a password.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{sleep, timeout};

use super::connection::Connection;
use super::info::check_version;
use super::relogin::stay_logged_in;
use super::state::{NoReceiver, Receiver, Times};
use super::stream;
use crate::address::{Login, Server};
use crate::error;
use crate::resp::{Cmd, RespError, RespResult, Value, cmd};
use permits_store::StoreError;

/// The time after which a TLS handshake without a reply leads to a test without TLS, and the timeout of such
/// tests. Together they are shorter than the timeout for a sentinel or a node of a cluster.
const DOUBT: Duration = Duration::from_millis(400);

/// A handshake's first message (TLS 1.2, one cipher). Any TLS server replies to it, if only with an alert.
const CLIENT_HELLO: [u8; 50] = {
    let mut hello = [0x2a; 50];
    // A handshake record with a ClientHello: its version, and 32 random bytes.
    let head = [0x16, 0x03, 0x01, 0x00, 45, 0x01, 0x00, 0x00, 41, 0x03, 0x03];
    // An empty session id; the cipher ECDHE-RSA-AES128-GCM-SHA256; no compression.
    let tail = [0x00, 0x00, 0x02, 0xc0, 0x2f, 0x01, 0x00];
    let mut at = 0;
    while at < head.len() {
        hello[at] = head[at];
        at += 1;
    }
    at = 0;
    while at < tail.len() {
        hello[43 + at] = tail[at];
        at += 1;
    }
    hello
};

/// A connection without subscriptions, that the server has let in.
pub(crate) async fn connect(server: &Server, login: Login, times: Times) -> Result<Connection, StoreError> {
    let (connection, _) = connect_with(server, login, times, NoReceiver, Vec::new()).await?;
    Ok(connection)
}

/// A connection that the server has let in with `login`, and the replies to `commands`, which are sent along.
///
/// The login is an argument, so that a slow source of credentials uses up no time limit of the server: its
/// caller asks for [`Server::login`] before.
pub(crate) async fn connect_with(
    server: &Server,
    login: Login,
    times: Times,
    receiver: impl Receiver,
    commands: Vec<Cmd>,
) -> Result<(Connection, Vec<RespResult<Value>>), StoreError> {
    let secured = server.secured()?;
    let doubting = async {
        sleep(DOUBT).await;
        if !(server.has_tls() && answers_without_tls(server).await) {
            std::future::pending::<()>().await;
        }
    };
    let stream = tokio::select! {
        opened = stream::open(server, secured) => opened,
        () = doubting => return Err(mismatch(server)),
    };
    let opening = async {
        let connection = Connection::start(stream?, times, receiver);
        let refused_or_replies = log_in(&login, &connection, commands).await?;
        Ok::<_, RespError>(refused_or_replies.map(|replies| (connection, replies)))
    };
    match opening.await {
        Ok(Ok((connection, replies))) => {
            if server.has_source() {
                // The task gets the state alone, because a connection ends only when its last clone is
                // dropped.
                tokio::spawn(stay_logged_in(connection.state(), server.clone(), login));
            }
            Ok((connection, replies))
        }
        Ok(Err(refused)) => Err(server.refused(refused)),
        Err(failed) if error::is_speechless(&failed) && answers_the_other_way(server).await => {
            Err(mismatch(server))
        }
        Err(failed) => Err(error::of_connecting(&failed)),
    }
}

/// The error when one side speaks TLS and the other does not.
fn mismatch(server: &Server) -> StoreError {
    let reason = match server.has_tls() {
        true => "the server does not speak TLS: write redis:// instead of rediss://",
        false => "the server speaks TLS: write rediss:// instead of redis://",
    };
    StoreError::Mismatch { reason: reason.into() }
}

/// Returns true if the server replies to TLS if the URL is without, and the other way round.
async fn answers_the_other_way(server: &Server) -> bool {
    if server.has_tls() { answers_without_tls(server).await } else { answers_tls(server).await }
}

/// Logs in, changes to RESP3, selects the database, and sends `commands`, all together. Returns the replies
/// to the commands, or the server's refusal. Fails if the connection does.
async fn log_in(
    login: &Login,
    connection: &Connection,
    commands: Vec<Cmd>,
) -> RespResult<Result<Vec<RespResult<Value>>, StoreError>> {
    let authenticate = login.command();
    let select = (login.database != 0).then(|| {
        let mut select = cmd("SELECT");
        select.arg(login.database);
        select
    });
    let mut hello = cmd("HELLO");
    hello.arg(3);
    let steps = [(authenticate, Step::Authenticate), (Some(hello), Step::Hello), (select, Step::Select)];
    let steps: Vec<(Cmd, Step)> =
        steps.into_iter().filter_map(|(command, step)| Some((command?, step))).collect();
    let all: Vec<Cmd> = steps.iter().map(|(command, _)| command.clone()).chain(commands).collect();
    let mut replies = connection.query_all(&all).await.into_iter();
    for (_, step) in steps {
        match replies.next().unwrap_or(Ok(Value::Nil)) {
            Ok(_) => {}
            Err(refusal) if refusal.code().is_some() => {
                return Ok(Err(match step {
                    Step::Authenticate => error::of_login(&refusal),
                    Step::Hello => of_hello(&refusal, connection).await,
                    Step::Select => of_database(&refusal, login.database),
                }));
            }
            Err(broken) => return Err(broken),
        }
    }
    Ok(Ok(replies.collect()))
}

/// The commands of a login.
enum Step {
    Authenticate,
    Hello,
    Select,
}

/// The meaning of a refused HELLO. It is the first command that a server with a password refuses.
async fn of_hello(refusal: &RespError, connection: &Connection) -> StoreError {
    let is_unknown = || refusal.detail().is_some_and(|text| text.contains("unknown command"));
    if refusal.code() != Some("NOPROTO") && !is_unknown() {
        return error::of_connecting(refusal);
    }
    // A server that is too old to know it has a clearer error.
    if let Ok(info) = connection.query::<String>(cmd("INFO").arg("server")).await
        && let Err(too_old) = check_version(&info, false)
    {
        return too_old;
    }
    StoreError::Unsupported { reason: "it does not speak RESP3: is a proxy before it?".into() }
}

/// The meaning of a refused database.
fn of_database(refusal: &RespError, database: u32) -> StoreError {
    match error::of_connecting(refusal) {
        StoreError::Unreachable { reason } if error::is_refusal(refusal, &reason) => {
            let reason =
                format!("the server has no database {database} ({})", reason.trim_start_matches("ERR "));
            StoreError::Mismatch { reason }
        }
        other => other,
    }
}

/// Returns true if a server replies to a ping without TLS.
async fn answers_without_tls(server: &Server) -> bool {
    matches!(first_answer(server, b"PING\r\n").await, Some(b'+' | b'-'))
}

/// Returns true if a server replies to a TLS handshake, if only with an alert.
async fn answers_tls(server: &Server) -> bool {
    matches!(first_answer(server, &CLIENT_HELLO).await, Some(0x15 | 0x16))
}

/// The first byte of the server's reply to `question`.
async fn first_answer(server: &Server, question: &[u8]) -> Option<u8> {
    let asking = async {
        let mut stream = stream::connect(server).await.ok()?;
        stream.write_all(question).await.ok()?;
        stream.read_u8().await.ok()
    };
    timeout(DOUBT, asking).await.ok()?
}
