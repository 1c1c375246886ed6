//! One connection: opened, logged in, and asked for a sign of life, before anything else is sent on it.
//!
//! The `redis` crate could log in by itself, but then tells a server that has too many clients from a wrong password
//! by neither code nor kind. Here each answer keeps its code.
//!
//! A client that speaks TLS and a server that does not (or the other way round) hear nothing that makes sense from each
//! other, or nothing at all. So the other language is tried then, to tell what is wrong: with a PING, or with the
//! first message of a handshake, never with a password.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, RedisError, Value};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::address::Server;
use super::errors;
use crate::store::StoreError;

/// How long a TLS handshake may take before the server is asked whether it speaks without, and how long any answer
/// to such a question may take. Together less than a sentinel or a node of a cluster may take to answer.
const DOUBT: Duration = Duration::from_millis(400);

/// A handshake's first message (TLS 1.2, one cipher). Any answer to it is TLS, also a refusal.
const CLIENT_HELLO: [u8; 50] = {
    let mut hello = [0x2a; 50];
    // A record with a handshake message, in which a client says hello: its version, and 32 bytes at random.
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

/// A connection on which the server answers, without a timeout of its own: timeout is the caller's business.
pub(super) async fn connect(server: &Server) -> Result<MultiplexedConnection, StoreError> {
    connect_with(server, None).await
}

/// The same, with a timeout for each answer.
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
        Err(error) if errors::is_speechless(&error) && answers_the_other_way(server).await => {
            Err(mismatch(server))
        }
        Err(error) => Err(errors::of_connecting(&error)),
    }
}

/// One side speaks TLS, and the other does not.
fn mismatch(server: &Server) -> StoreError {
    let reason = match server.has_tls() {
        true => "the server does not speak TLS: write redis:// instead of rediss://",
        false => "the server speaks TLS: write rediss:// instead of redis://",
    };
    StoreError::Mismatch { reason: reason.into() }
}

async fn answers_the_other_way(server: &Server) -> bool {
    if server.has_tls() { answers_without_tls(server).await } else { answers_tls(server).await }
}

/// Logs in, chooses the database, and pings, all sent together. Returns how the server refuses, if it does.
///
/// Not as a pipeline: of one that TLS ends, the `redis` crate does not tell why.
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
    // A server that wants a password, or has too many clients, tells at the first command. Other errors are for
    // the examination and the checks of a session, which name them all.
    Ok(answered?.and_then(|error| match errors::of_connecting(&error) {
        denied @ StoreError::Denied { .. } if error.code() == Some("NOAUTH") => Some(denied),
        full @ StoreError::Unreachable { .. } if error.code() == Some("ERR") => Some(full),
        _ => None,
    }))
}

/// A refusal to log in.
fn of_login(error: &RedisError) -> StoreError {
    match errors::of_connecting(error) {
        StoreError::Unreachable { reason } if reason.contains("without any password configured") => {
            let reason = "the server has no password: leave it out of the URL, or give the user's name";
            StoreError::Denied { reason: reason.into() }
        }
        StoreError::Unreachable { reason } if is_refusal(error, &reason) => StoreError::Denied { reason },
        other => other,
    }
}

/// Whether the server has refused the command itself, and not any command.
fn is_refusal(error: &RedisError, reason: &str) -> bool {
    error.code() == Some("ERR") && !reason.contains("max number of clients")
}

fn of_database(error: &RedisError, database: u32) -> StoreError {
    match errors::of_connecting(error) {
        StoreError::Unreachable { reason } if is_refusal(error, &reason) => {
            let reason =
                format!("the server has no database {database} ({})", reason.trim_start_matches("ERR "));
            StoreError::Mismatch { reason }
        }
        other => other,
    }
}

/// Whether a server answers a ping that is not encrypted.
async fn answers_without_tls(server: &Server) -> bool {
    matches!(first_answer(server, b"PING\r\n").await, Some(b'+' | b'-'))
}

/// Whether a server answers a TLS handshake, if only with an alert.
async fn answers_tls(server: &Server) -> bool {
    matches!(first_answer(server, &CLIENT_HELLO).await, Some(0x15 | 0x16))
}

/// The first byte of what a server answers.
async fn first_answer(server: &Server, question: &[u8]) -> Option<u8> {
    let asking = async {
        let mut stream = TcpStream::connect(server.host_and_port()?).await.ok()?;
        stream.write_all(question).await.ok()?;
        stream.read_u8().await.ok()
    };
    timeout(DOUBT, asking).await.ok()?
}
