//! What is wrong with a server: how it is configured, what this user may do there, and a trial.
//!
//! On connections of its own, not a session's: a session would give up at the first thing that is wrong, and an
//! examination is for naming them all.
//!
//! - `settings`: what the settings and the state of a server mean; it asks nobody.
//! - `access`: what this user may do.
//! - `clock`: whether the server's clock goes as it should.
//! - `members`: which servers there are, if sentinels or a cluster say so.

mod access;
mod clock;
mod members;
mod settings;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{RedisError, RedisResult, Value};
use tokio::time::timeout;

use self::clock::Reading;
use self::settings::{Configuration, Settings};
use super::address::{Address, Server};
use super::server::handshake::CONNECT_TIMEOUT;
use super::server::login::connect_with;
use super::{error, keys};
use crate::examine::{Finding, Severity};
use crate::protocol::Name;
use crate::store::{self, StoreError, trial};

/// A problem with one of these is in the way of everything that comes after it on a server.
const NO_USE: [&str; 3] = ["connection", "mode", "loading"];

/// A problem with one of these is in the way of a trial, which would only say it again.
const NO_TRIAL: [&str; 6] = ["connection", "mode", "loading", "version", "role", "rights"];

/// How long the server may take for one answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// How many pings are timed, and for how long at most.
const PINGS: usize = 50;
const PINGING: Duration = Duration::from_secs(2);

/// Examines the servers at `address`, which is also what `whole` says.
pub(in crate::store) async fn examine(
    whole: &store::Address,
    address: &Address,
    prefix: &str,
    lease: Duration,
) -> Vec<Finding> {
    let (servers, mut findings) = members::of(address).await;
    let in_cluster = matches!(address, Address::Cluster(_));
    let scratch = trial::scratch();
    for server in &servers {
        let found = examine_one(server, prefix, &scratch, in_cluster, lease).await;
        let one_of_many = servers.len() > 1;
        findings.extend(found.into_iter().map(|found| if one_of_many { found.at(server) } else { found }));
    }
    if servers.is_empty() || has_problem(&findings, &NO_TRIAL) {
        return findings;
    }
    findings.extend(trial::run(whole, prefix, &scratch, lease).await);
    for server in &servers {
        // If this fails, the keys expire by themselves. In a cluster all nodes but one refuse.
        if let Ok(mut connection) = connect(server).await {
            let _ = redis::cmd("DEL").arg(&keys::keys(prefix, &scratch)).exec_async(&mut connection).await;
        }
    }
    findings
}

/// One server, with all that can be told without a trial.
async fn examine_one(
    server: &Server,
    prefix: &str,
    scratch: &Name,
    in_cluster: bool,
    lease: Duration,
) -> Vec<Finding> {
    let began = Instant::now();
    let mut connection = match connect(server).await {
        Ok(connection) => connection,
        Err(error) => return vec![unreachable(server, &error)],
    };
    let connected = format!("{server}, connected within {:.1} ms", began.elapsed().as_secs_f64() * 1e3);
    let mut findings = vec![Finding::fine("connection", connected)];
    match examine_kind(&mut connection, prefix, scratch, in_cluster, lease).await {
        Ok(found) => findings.extend(found),
        Err(error) => findings.push(silent(&error)),
    }
    if !has_problem(&findings, &NO_USE) {
        findings.extend(access::may_not_subscribe(server, prefix, scratch, in_cluster).await);
    }
    findings
}

fn has_problem(findings: &[Finding], subjects: &[&str]) -> bool {
    findings
        .iter()
        .any(|finding| finding.severity == Severity::Problem && subjects.contains(&finding.subject))
}

/// Examines a server that should be in a cluster, or in none.
async fn examine_kind(
    connection: &mut impl ConnectionLike,
    prefix: &str,
    scratch: &Name,
    in_cluster: bool,
    lease: Duration,
) -> RedisResult<Vec<Finding>> {
    let info = answered::<String>(connection, redis::cmd("INFO").arg("server")).await?;
    match info.ok().filter(|_| !in_cluster).and_then(|info| settings::another_mode(&info)) {
        Some(mode) => Ok(vec![mode]),
        None => examine_server(connection, prefix, scratch, in_cluster, lease).await,
    }
}

/// Examines one server, without a trial: its settings, its clock, how fast it answers, and which commands this
/// user may run on the keys of `scratch`, of which there are none. Fails only if the connection does.
async fn examine_server(
    connection: &mut impl ConnectionLike,
    prefix: &str,
    scratch: &Name,
    in_cluster: bool,
    lease: Duration,
) -> RedisResult<Vec<Finding>> {
    let first = Reading::take(connection).await?;
    let info = match answered::<String>(connection, &redis::cmd("INFO")).await? {
        Ok(info) => info,
        // Named with everything else that is denied.
        Err(error) if access::denial_of(&error).is_some() => {
            return access::rights(connection, prefix, scratch, in_cluster).await;
        }
        Err(error) => return Ok(vec![silent(&error)]),
    };
    let configuration = configuration(connection).await?;
    let settings = Settings { info: &info, configuration: &configuration, in_cluster, lease };
    let mut findings = settings.findings();
    if settings.is_loading() {
        return Ok(findings);
    }
    let pings = ping(connection).await?;
    if let (Some(first), Some(last)) = (first, Reading::take(connection).await?) {
        findings.push(clock::compare(&first, &last));
    }
    if !pings.is_empty() {
        findings.push(trial::latency("ping", &pings, lease));
    }
    findings.extend(access::rights(connection, prefix, scratch, in_cluster).await?);
    Ok(findings)
}

async fn connect(server: &Server) -> Result<MultiplexedConnection, StoreError> {
    match timeout(CONNECT_TIMEOUT, connect_with(server, Some(TIMEOUT))).await {
        Ok(connected) => connected,
        Err(_) => {
            let reason = format!("no connection within {CONNECT_TIMEOUT:?}");
            Err(StoreError::Unreachable { reason })
        }
    }
}

fn unreachable(server: &Server, error: &StoreError) -> Finding {
    let meaning = match error {
        StoreError::Denied { .. } => {
            "The URL needs a user and a password that are right, redis://user:password@host/, and belongs into the \
             environment (PERMITS_URL), which the list of processes does not show. How to make a user with the \
             rights that are needed is printed by permits doctor --acl."
        }
        StoreError::Mismatch { .. } | StoreError::Tls { .. } => {
            "Nothing can be acquired until the URL fits the server; docs/operations.md has a table of URLs and their \
             options."
        }
        _ => {
            "Nothing can be acquired, and who holds loses its permits when their leases end. Is the server \
             running and listening there (bind, protected-mode), do firewalls and TLS (rediss://) agree?"
        }
    };
    Finding::problem("connection", format!("{server}: {error}"), meaning)
}

fn silent(error: &RedisError) -> Finding {
    let meaning = "The connection was made, and then the server would not answer, or not any more. A script or \
                   a command that runs for long, a server that swaps or was stopped, or a proxy between do \
                   that: look at the server's log.";
    Finding::problem("connection", error::text(error), meaning)
}

/// The answer to a command. The outer error is the connection's, the inner one the server's.
async fn answered<T: redis::FromRedisValue>(
    connection: &mut impl ConnectionLike,
    command: &redis::Cmd,
) -> RedisResult<RedisResult<T>> {
    match command.query_async(connection).await {
        Err(error) if error.code().is_none() && (error.is_io_error() || error.is_timeout()) => Err(error),
        answer => Ok(answer),
    }
}

/// The part of the configuration that matters. Denied to many users, and missing on managed servers.
async fn configuration(connection: &mut impl ConnectionLike) -> RedisResult<Configuration> {
    let mut known = BTreeMap::new();
    // One by one: before 7.0 the command takes one name.
    for name in settings::NAMES {
        match answered::<Vec<String>>(connection, redis::cmd("CONFIG").arg("GET").arg(name)).await? {
            Ok(pair) => known.extend(pair.get(1).map(|value| (name, value.clone()))),
            Err(error) => return Ok(Configuration::Hidden(error::text(&error))),
        }
    }
    Ok(Configuration::Known(known))
}

async fn ping(connection: &mut impl ConnectionLike) -> RedisResult<Vec<Duration>> {
    let (began, mut timed) = (Instant::now(), Vec::with_capacity(PINGS));
    while timed.len() < PINGS && began.elapsed() < PINGING {
        let start = Instant::now();
        if answered::<Value>(connection, &redis::cmd("PING")).await?.is_err() {
            break;
        }
        timed.push(start.elapsed());
    }
    Ok(timed)
}
