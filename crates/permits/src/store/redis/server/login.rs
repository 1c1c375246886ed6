//! One connection: opened, logged in, and pinged, before any other command is sent on it.
//!
//! The `redis` crate could log in by itself, but its error then has neither a code nor a kind by which too many clients
//! and a wrong password differ. Here each reply keeps its code.
//!
//! A client that speaks TLS and a server that does not (or the other way round) cannot read each other's bytes, or wait
//! for each other. Then the other protocol is tried, to find the cause: with a PING, or with the first message of a
//! handshake, never with a password.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, RedisError, Value};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::store::StoreError;
use crate::store::redis::address::Server;
use crate::store::redis::error;

/// The time after which a TLS handshake without a reply leads to a test without TLS, and the timeout of such tests.
/// Together they are shorter than the timeout for a sentinel or a node of a cluster.
const DOUBT: Duration = Duration::from_millis(400);

/// A handshake's first message (TLS 1.2, one cipher). Any TLS server replies to it, if only with an alert.
const CLIENT_HELLO: [u8; 50] = {
    let mut hello = [0x2a; 50];
    // A handshake record with a ClientHello: its version, and 32 random bytes.
    let head = [0x16, 0x03, 0x01, 0x00, 45, 0x01, 0x00, 0x00, 41, 0x03, 0x03];
    // No session; the cipher ECDHE-RSA-AES128-GCM-SHA256; no compression.
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

/// A connection on which the server has replied. Commands on it have no timeout of their own: callers set one.
pub(crate) async fn connect(server: &Server) -> Result<MultiplexedConnection, StoreError> {
    connect_with(server, None).await
}

/// The same, with a timeout for each reply.
pub(crate) async fn connect_with(
    server: &Server,
    response_timeout: Option<Duration>,
) -> Result<MultiplexedConnection, StoreError> {
    let config =
        AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(response_timeout);
    let opening = async {
        let mut connection = server.client().get_multiplexed_async_connection_with_config(&config).await?;
        let refused = log_in(server, &mut connection).await?;
        Ok(refused.map_or(Ok(connection), Err))
    };
    let doubting = async {
        sleep(DOUBT).await;
        if !(server.has_tls() && answers_without_tls(server).await) {
            std::future::pending::<()>().await;
        }
    };
    let opened: Result<_, RedisError> = tokio::select! {
        opened = opening => opened,
        () = doubting => return Err(mismatch(server)),
    };
    match opened {
        Ok(opened) => opened,
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

/// Logs in, selects the database, and pings, all sent together. Returns the server's refusal, if it refuses.
///
/// Not as a pipeline: the `redis` crate does not report the cause when TLS ends a pipeline.
async fn log_in(
    server: &Server,
    connection: &mut MultiplexedConnection,
) -> Result<Option<StoreError>, RedisError> {
    let login = server.login();
    let authenticate = login.credentials().map(|(user, password)| {
        let mut auth = redis::cmd("AUTH");
        auth.arg(user).arg(password);
        auth
    });
    let select = (login.database != 0).then(|| {
        let mut select = redis::cmd("SELECT");
        select.arg(login.database);
        select
    });
    let ask = |command: Option<Cmd>| {
        let mut connection = connection.clone();
        async move {
            let Some(command) = command else { return Ok(None) };
            match command.query_async::<Value>(&mut connection).await {
                Ok(_) => Ok(None),
                Err(error) if error.code().is_some() => Ok(Some(error)),
                Err(broken) => Err(broken),
            }
        }
    };
    let (authenticated, selected, answered) =
        tokio::join!(ask(authenticate), ask(select), ask(Some(redis::cmd("PING"))));
    if let Some(error) = authenticated? {
        return Ok(Some(of_login(&error)));
    }
    if let Some(error) = selected? {
        return Ok(Some(of_database(&error, login.database)));
    }
    // A server that needs a password, or has too many clients, refuses the first command. The diagnosis and the checks
    // of a session report all other error.
    Ok(answered?.and_then(|refusal| match error::of_connecting(&refusal) {
        denied @ StoreError::Denied { .. } if refusal.code() == Some("NOAUTH") => Some(denied),
        full @ StoreError::Unreachable { .. } if refusal.code() == Some("ERR") => Some(full),
        _ => None,
    }))
}

/// The meaning of a refused login.
fn of_login(refusal: &RedisError) -> StoreError {
    match error::of_connecting(refusal) {
        StoreError::Unreachable { reason } if reason.contains("without any password configured") => {
            let reason = "the server has no password: leave it out of the URL, or give the user's name";
            StoreError::Denied { reason: reason.into() }
        }
        StoreError::Unreachable { reason } if is_refusal(refusal, &reason) => StoreError::Denied { reason },
        other => other,
    }
}

/// Returns true if the server refused this command, and would not refuse every command.
fn is_refusal(error: &RedisError, reason: &str) -> bool {
    error.code() == Some("ERR") && !reason.contains("max number of clients")
}

/// The meaning of a refused database.
fn of_database(refusal: &RedisError, database: u32) -> StoreError {
    match error::of_connecting(refusal) {
        StoreError::Unreachable { reason } if is_refusal(refusal, &reason) => {
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
        let mut stream = TcpStream::connect(server.host_and_port()?).await.ok()?;
        stream.write_all(question).await.ok()?;
        stream.read_u8().await.ok()
    };
    timeout(DOUBT, asking).await.ok()?
}
