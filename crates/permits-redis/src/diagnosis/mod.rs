//! Faults of a Redis or Valkey store: its servers, their configuration, the user's rights, and a self-test.
//!
//! The diagnosis has connections of its own, because a session stops at the first fault and a diagnosis lists
//! them all.
//!
//! - `topology`: the servers of an address, from sentinels or a cluster where the address names those.
//! - `connection`: a connection and its replies.
//! - `settings`: the configuration and the state of a server. Pure: it reads the text of INFO and CONFIG GET.
//! - `access`: the rights of the user.
//! - `clock`: the server's clock.

mod access;
mod clock;
mod connection;
mod settings;
mod topology;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use self::access::Rights;
use self::clock::Reading;
use self::connection::{connect, reply};
use self::settings::{Configuration, Settings};
use crate::address::{Address, Server};
use crate::protocol::Name;
use crate::resp::{RespError, RespResult, Value, cmd};
use crate::server::connection::Connection;
use crate::server::info::field;
use crate::{error as redis_error, keys};
use permits_store::StoreError;
use permits_store::self_test::{self, scratch_name};
use permits_store::{DiagnoseOptions, Finding};

/// Subjects whose problems prevent the rest of the diagnosis of a server.
const BLOCKS_DIAGNOSIS: [&str; 3] = ["connection", "mode", "loading"];

/// Subjects whose problems the self-test would only repeat.
const BLOCKS_SELF_TEST: [&str; 6] = ["connection", "mode", "loading", "version", "role", "rights"];

/// The number of pings that are timed, and the longest time that they take together.
const PINGS: usize = 50;
const PINGING: Duration = Duration::from_secs(2);

/// The findings about the servers at `address`.
pub(crate) async fn diagnose(
    address: &Address,
    DiagnoseOptions { prefix, lease, self_test }: DiagnoseOptions<'_>,
) -> Vec<Finding> {
    let in_cluster = matches!(address, Address::Cluster(_));
    let (servers, mut findings) = topology::servers_of(address).await;
    let scratch = scratch_name();
    let diagnosis = ServerDiagnosis { prefix, scratch: &scratch, in_cluster, lease };
    for server in &servers {
        let found = diagnosis.server(server).await;
        let one_of_many = servers.len() > 1;
        findings.extend(found.into_iter().map(|found| if one_of_many { found.at(server) } else { found }));
    }
    if !self_test || servers.is_empty() || has_problem(&findings, &BLOCKS_SELF_TEST) {
        return findings;
    }
    findings.extend(self_test::run_each_operation(address, prefix, &scratch, lease).await);
    for server in &servers {
        // If this fails, the keys expire. In a cluster all nodes but one refuse it.
        if let Ok(connection) = connect(server).await {
            let _ = connection.query::<Value>(cmd("DEL").args(keys::keys(prefix, &scratch))).await;
        }
    }
    findings
}

fn has_problem(findings: &[Finding], subjects: &[&str]) -> bool {
    findings.iter().any(|finding| finding.is_problem() && subjects.contains(&finding.subject))
}

/// The diagnosis of servers, which changes nothing there.
struct ServerDiagnosis<'a> {
    prefix: &'a str,
    /// A semaphore without keys.
    scratch: &'a Name,
    /// True if the servers should be nodes of a cluster.
    in_cluster: bool,
    /// The caller's usual lease.
    lease: Duration,
}

impl ServerDiagnosis<'_> {
    async fn server(&self, server: &Server) -> Vec<Finding> {
        let began = Instant::now();
        let connection = match connect(server).await {
            Ok(connection) => connection,
            Err(error) => return vec![unreachable(server, &error)],
        };
        let connected = format!("{server}, connected within {:.1} ms", began.elapsed().as_secs_f64() * 1e3);
        let mut findings = vec![Finding::fine("connection", connected)];
        match self.of_mode(&connection).await {
            Ok(found) => findings.extend(found),
            Err(error) => findings.push(no_reply(&error)),
        }
        if !has_problem(&findings, &BLOCKS_DIAGNOSIS) {
            findings.extend(self.rights().subscription(&connection).await);
        }
        findings
    }

    /// Stops at a server of another mode, because it has other commands. Fails only if the connection does.
    async fn of_mode(&self, connection: &Connection) -> RespResult<Vec<Finding>> {
        let info = reply::<String>(connection, cmd("INFO").arg("server")).await?;
        match info.ok().filter(|_| !self.in_cluster).and_then(|info| settings::another_mode(&info)) {
            Some(mode) => Ok(vec![mode]),
            None => self.of_server(connection).await,
        }
    }

    /// Settings, clock, latency, and rights. Fails only if the connection does.
    async fn of_server(&self, connection: &Connection) -> RespResult<Vec<Finding>> {
        let first = Reading::take(connection).await?;
        let info = match reply::<String>(connection, &cmd("INFO")).await? {
            Ok(info) => info,
            // Listed with all other commands that are denied.
            Err(error) if access::denial_of(&error).is_some() => {
                return self.rights().commands(connection).await;
            }
            Err(error) => return Ok(vec![no_reply(&error)]),
        };
        let configuration = configuration(connection).await?;
        let (in_cluster, lease) = (self.in_cluster, self.lease);
        let settings = Settings { info: &info, configuration: &configuration, in_cluster, lease };
        let mut findings = settings.findings();
        if settings.is_loading() {
            return Ok(findings);
        }
        let pings = ping(connection).await?;
        if let (Some(first), Some(last)) = (first, Reading::take(connection).await?) {
            let uptime = field(&info, "uptime_in_seconds").and_then(|seconds| seconds.parse().ok());
            findings.push(clock::compare(&first, &last, uptime));
        }
        if !pings.is_empty() {
            findings.push(self_test::latency("ping", &pings, lease));
        }
        findings.extend(self.rights().commands(connection).await?);
        Ok(findings)
    }

    fn rights(&self) -> Rights<'_> {
        Rights { prefix: self.prefix, scratch: self.scratch, in_cluster: self.in_cluster }
    }
}

fn unreachable(server: &Server, error: &StoreError) -> Finding {
    let advice = match error {
        StoreError::Denied { .. } => {
            "The URL needs the right user and password, redis://user:password@host/. Pass it in the environment \
             (PERMITS_URL), because the list of processes shows arguments. permits doctor --acl prints how to make a \
             user with the rights that are needed."
        }
        StoreError::Mismatch { .. } | StoreError::Tls { .. } => {
            "Nothing can be acquired until the URL fits the server; docs/operate/stores.md has a table of URLs and their \
             options."
        }
        _ => {
            "Nothing can be acquired, and holders lose their permits when their leases end. Is the server running \
             and listening at this address (bind, protected-mode)? Do firewalls and TLS (rediss://) agree?"
        }
    };
    Finding::problem("connection", format!("{server}: {error}"), advice)
}

fn no_reply(error: &RespError) -> Finding {
    let advice = "The server accepted the connection and then stopped replying. Causes are a script or a command that \
                  runs for long, a server that swaps or was stopped, and a proxy in between: look at the server's log.";
    Finding::problem("connection", redis_error::text(error), advice)
}

/// The settings in [`settings::NAMES`]. Many users may not read them, and managed servers lack some.
async fn configuration(connection: &Connection) -> RespResult<Configuration> {
    let mut known = BTreeMap::new();
    // The command takes one name at a time on servers before 7.0.
    for name in settings::NAMES {
        match reply::<BTreeMap<String, String>>(connection, cmd("CONFIG").arg("GET").arg(name)).await? {
            Ok(found) => known.extend(found.into_values().next().map(|value| (name, value))),
            Err(error) => return Ok(Configuration::Hidden(redis_error::text(&error))),
        }
    }
    Ok(Configuration::Known(known))
}

async fn ping(connection: &Connection) -> RespResult<Vec<Duration>> {
    let (began, mut round_trips) = (Instant::now(), Vec::with_capacity(PINGS));
    while round_trips.len() < PINGS && began.elapsed() < PINGING {
        let start = Instant::now();
        if reply::<Value>(connection, &cmd("PING")).await?.is_err() {
            break;
        }
        round_trips.push(start.elapsed());
    }
    Ok(round_trips)
}
