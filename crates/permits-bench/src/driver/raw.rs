//! The lower bounds: two scripts in place of a cycle, a published message in place of a hand-off.
//!
//! Everything runs on one thread, with the connection's task: that is the quickest way to use this Redis
//! client. A task on another thread than the connection's wakes a thread more for each call.

use std::time::Duration;

use futures_util::StreamExt as _;
use redis::aio::MultiplexedConnection;
use serde_json::{Value, json};

use super::{answer, cycles, next_command, pause};
use crate::Failure;
use crate::stats::shared_clock_us;

/// A script that does nothing, and the least that does something.
pub(super) const NO_OP: &str = "return 0";
pub(super) const INCREMENT: &str = "return redis.call('INCR', KEYS[1])";

pub(super) async fn serve(url: &str, script: &str) -> Result<(), Failure> {
    let raw = Raw::connect(url, script).await?;
    while let Some(command) = next_command()? {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let value = match *words {
            ["hello"] => json!({ "version": "crate redis 1.8" }),
            ["cycle", _, _, tasks, seconds] => {
                let raw = raw.clone();
                let one = move || raw.clone().twice();
                cycles(tasks.parse()?, seconds.parse()?, one).await?
            }
            ["contend", name, "1", "1", hold_us, _, seconds] => {
                pass(url, name, Duration::from_micros(hold_us.parse()?), seconds.parse()?).await?
            }
            _ => json!({ "cannot": "a lower bound for A, B and D alone" }),
        };
        answer(&value)?;
    }
    Ok(())
}

/// A client set up as in permits: small writes go out at once.
fn client(url: &str) -> Result<redis::Client, Failure> {
    let info = redis::IntoConnectionInfo::into_connection_info(url)?;
    let settings = redis::io::tcp::TcpSettings::default().set_nodelay(true);
    Ok(redis::Client::open(info.set_tcp_settings(settings))?)
}

/// A script on a connection.
#[derive(Clone)]
struct Raw {
    connection: MultiplexedConnection,
    hash: String,
}

impl Raw {
    async fn connect(url: &str, script: &str) -> Result<Self, Failure> {
        let mut connection = client(url)?.get_multiplexed_async_connection().await?;
        let hash = redis::cmd("SCRIPT").arg("LOAD").arg(script).query_async(&mut connection).await?;
        Ok(Self { connection, hash })
    }

    async fn call(&mut self) -> Result<(), Failure> {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.hash).arg(1).arg("permits-bench:raw");
        Ok(command.exec_async(&mut self.connection).await?)
    }

    /// The lower bound of a cycle: one script to acquire, one to release.
    async fn twice(mut self) -> Result<(), Failure> {
        self.call().await?;
        self.call().await
    }
}

/// Passes a message back and forth with another process: the process that has it keeps it for a while, then
/// publishes it.
async fn pass(url: &str, name: &str, hold: Duration, seconds: f64) -> Result<Value, Failure> {
    let client = client(url)?;
    let mut connection = client.get_multiplexed_async_connection().await?;
    let mut wakeups = client.get_async_pubsub().await?;
    // The first to come sits left, and waits until the other sits right.
    let seat: u64 = redis::cmd("INCR").arg(format!("{name}:seat")).query_async(&mut connection).await?;
    let seats = [format!("{name}:left"), format!("{name}:right")];
    let (mine, other) = if seat % 2 == 1 { (&seats[0], &seats[1]) } else { (&seats[1], &seats[0]) };
    wakeups.subscribe(mine).await?;
    let mut messages = wakeups.on_message();
    if mine == &seats[1] {
        while publish(&mut connection, other).await? == 0 {}
    }
    let until = shared_clock_us() + seconds * 1e6;
    let mut events = Vec::new();
    let mut asked = shared_clock_us();
    loop {
        // Silence means that the other has ended.
        let timeout = Duration::from_secs(1);
        let Ok(Some(_)) = tokio::time::timeout(timeout, messages.next()).await else { break };
        let got = shared_clock_us();
        pause(hold).await;
        let freed = shared_clock_us();
        publish(&mut connection, other).await?;
        events.push((asked, got, freed));
        asked = shared_clock_us();
        if asked > until {
            break;
        }
    }
    Ok(json!({ "events": events }))
}

/// Publishes a message. Returns the number of receivers.
async fn publish(connection: &mut MultiplexedConnection, channel: &str) -> Result<u64, Failure> {
    Ok(redis::cmd("PUBLISH").arg(channel).arg("x").query_async(connection).await?)
}
