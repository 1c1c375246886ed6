//! The client's side of a recipe: a connection to the server, a clock, names.
//!
//! Experiments control a recipe here and nowhere else. A clock may be set wrong. A [`Gate`] stops a client
//! before each request until its turn comes, so that an interleaving of two clients is forced. Requests are
//! counted. After a broken connection a request is sent once more, as the usual client libraries do.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, SystemTime};

use permits_bench::Failure;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, FromRedisValue, Pipeline};
use tokio::sync::{Semaphore, mpsc};

/// The time, of which clocks may be wrong.
#[derive(Clone, Debug)]
pub enum Time {
    /// The time of the machine.
    System,
    /// A time that is set by hand, in nanoseconds. Each reading takes a millisecond.
    Manual(Arc<AtomicI64>),
}

impl Time {
    /// A time that is set by hand, and begins in the past.
    pub fn manual() -> Self {
        Self::Manual(Arc::new(AtomicI64::new(1_700_000_000_000_000_000)))
    }

    /// Lets time pass.
    ///
    /// # Panics
    /// If it is the time of the machine.
    pub fn pass(&self, duration: Duration) {
        let Self::Manual(now) = self else { panic!("the machine's time passes by itself") };
        now.fetch_add(nanos(duration), SeqCst);
    }
}

/// A client's clock.
#[derive(Clone, Debug)]
pub(super) struct Clock {
    time: Time,
    ahead: i64,
}

impl Clock {
    pub(super) fn new(time: Time, ahead_ms: i64) -> Self {
        Self { time, ahead: ahead_ms * 1_000_000 }
    }

    /// Nanoseconds since 1970.
    fn now(&self) -> i64 {
        let time = match &self.time {
            Time::System => {
                nanos(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
            }
            Time::Manual(now) => now.fetch_add(1_000_000, SeqCst),
        };
        time + self.ahead
    }
}

/// Stops a client before each of its requests, while it is shut.
#[derive(Clone, Debug)]
pub struct Gate {
    shut: Arc<AtomicBool>,
    arrivals: mpsc::UnboundedSender<()>,
    turns: Arc<Semaphore>,
}

/// The other side of a [`Gate`].
#[derive(Debug)]
pub struct Turns {
    shut: Arc<AtomicBool>,
    arrivals: mpsc::UnboundedReceiver<()>,
    turns: Arc<Semaphore>,
}

impl Gate {
    /// A gate, shut or open.
    pub fn new(shut: bool) -> (Self, Turns) {
        let shut = Arc::new(AtomicBool::new(shut));
        let turns = Arc::new(Semaphore::new(0));
        let (sender, arrivals) = mpsc::unbounded_channel();
        let gate = Self { shut: shut.clone(), arrivals: sender, turns: turns.clone() };
        (gate, Turns { shut, arrivals, turns })
    }

    async fn pass(&self) -> Result<(), Failure> {
        if self.shut.load(SeqCst) {
            // The other side is gone and gives no turn: the client stays here.
            let _ = self.arrivals.send(());
            self.turns.acquire().await?.forget();
        }
        Ok(())
    }
}

impl Turns {
    /// Waits until the client stands at the gate; `false` if it came to its end instead.
    pub async fn arrived(&mut self) -> bool {
        self.arrivals.recv().await.is_some()
    }

    /// Lets one request pass.
    pub fn give(&self) {
        self.turns.add_permits(1);
    }

    /// Shuts it for requests to come.
    pub fn shut(&self) {
        self.shut.store(true, SeqCst);
    }

    /// Lets the waiting request pass, and all later ones.
    pub fn open(&self) {
        self.shut.store(false, SeqCst);
        self.turns.add_permits(1);
    }
}

/// A client's connection to the server.
#[derive(Clone)]
pub(super) struct Session {
    server: redis::Client,
    shared: MultiplexedConnection,
    clock: Clock,
    gate: Option<Gate>,
    requests: Arc<AtomicU64>,
}

impl Session {
    pub(super) async fn connect(
        url: &str,
        clock: Clock,
        gate: Option<Gate>,
        requests: Arc<AtomicU64>,
    ) -> Result<Self, Failure> {
        // As in permits: small writes go out at once.
        let info = redis::IntoConnectionInfo::into_connection_info(url)?;
        let settings = redis::io::tcp::TcpSettings::default().set_nodelay(true);
        let server = redis::Client::open(info.set_tcp_settings(settings))?;
        let shared = open(&server).await?;
        Ok(Self { server, shared, clock, gate, requests })
    }

    /// A copy without a gate, for the background task.
    pub(super) fn ungated(&self) -> Self {
        Self { gate: None, ..self.clone() }
    }

    /// Nanoseconds since 1970, by the client's clock.
    pub(super) fn now_ns(&self) -> i64 {
        self.clock.now()
    }

    /// Microseconds since 1970, by the client's clock.
    pub(super) fn now_us(&self) -> i64 {
        self.clock.now() / 1000
    }

    /// Sends one command.
    pub(super) async fn ask<T: FromRedisValue>(&mut self, command: &Cmd) -> Result<T, Failure> {
        let mut alone = redis::pipe();
        alone.add_command(command.clone());
        let (answer,) = self.send(&alone).await?;
        Ok(answer)
    }

    /// Sends several commands at once.
    pub(super) async fn send<T: FromRedisValue>(&mut self, commands: &Pipeline) -> Result<T, Failure> {
        self.pass().await?;
        match commands.query_async(&mut self.shared).await {
            Err(error) if error.is_io_error() || error.is_connection_dropped() => {
                self.shared = open(&self.server).await?;
                Ok(commands.query_async(&mut self.shared).await?)
            }
            answer => Ok(answer?),
        }
    }

    /// Sends a command that blocks. It has a connection of its own, which closes when the future is dropped:
    /// otherwise the server would send the reply, a token for example, to a client that no longer waits.
    pub(super) async fn block<T: FromRedisValue>(
        &mut self,
        line: &mut Option<MultiplexedConnection>,
        command: &Cmd,
    ) -> Result<T, Failure> {
        self.pass().await?;
        let mut connection = match line.take() {
            Some(connection) => connection,
            None => open(&self.server).await?,
        };
        let answer = command.query_async(&mut connection).await?;
        *line = Some(connection);
        Ok(answer)
    }

    /// Loads a script, and returns its hash. Not counted, because a client does so once.
    pub(super) async fn load(&mut self, script: &str) -> Result<String, Failure> {
        Ok(redis::cmd("SCRIPT").arg("LOAD").arg(script).query_async(&mut self.shared).await?)
    }

    async fn pass(&self) -> Result<(), Failure> {
        if let Some(gate) = &self.gate {
            gate.pass().await?;
        }
        self.requests.fetch_add(1, SeqCst);
        Ok(())
    }
}

async fn open(server: &redis::Client) -> Result<MultiplexedConnection, Failure> {
    let config = AsyncConnectionConfig::new().set_response_timeout(None);
    Ok(server.get_multiplexed_async_connection_with_config(&config).await?)
}

/// A unique name.
pub(super) fn random_id() -> String {
    format!("{:016x}", RandomState::new().build_hasher().finish())
}

fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}
