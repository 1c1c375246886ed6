//! The supervisor: one connection for commands, one for wake-ups, each replaced when it breaks.
//!
//! The `redis` crate's multiplexed connection neither reconnects nor retries, which is right here: only the
//! session knows what may be sent again. So a broken connection fails its calls at once, the session hears
//! [`Signal::Down`], and a task tries again, with jittered backoff, for as long as the session lives.
//!
//! A dead peer is noticed by the end of the stream, by a call that ran out of patience, or by a ping. Wake-ups
//! have a connection of their own because it is always being read: when the server restarts, its end is what
//! is noticed first, and the command connection is then checked at once. After either is back the session
//! hears [`Signal::Up`] and asks how everything stands, because messages may have been missed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use redis::AsyncConnectionConfig;
use redis::aio::{MultiplexedConnection, PubSub};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};

use super::{Address, errors, keys, scripts};
use crate::protocol::Id;
use crate::store::{Opening, Signal, Signals, StoreError};

/// The first and the last delay between two attempts to connect. The last one is shorter for short leases:
/// a recovery window lasts a renewal interval, and a holder must be back well within it.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));

/// How long making a connection may take.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);

/// The oldest version of the server that will do.
const OLDEST: (u32, u32) = (6, 2);

/// Two connections to one server, kept up.
pub(crate) struct Supervisor {
    link: Arc<Link>,
    tasks: [AbortHandle; 2],
}

/// The command connection, as the supervisor and the callers share it.
struct Link {
    current: Mutex<Current>,
    /// The connection was reported broken, or should be checked.
    check: Notify,
    /// A command has succeeded on the current connection.
    served: AtomicBool,
}

struct Current {
    /// Counts connections, so that a late report of an old one's end is not taken for the new one's.
    epoch: u64,
    connection: Option<MultiplexedConnection>,
    /// Why there is none.
    reason: StoreError,
}

/// What both tasks need.
#[derive(Clone)]
struct Plan {
    address: Address,
    channel: String,
    /// A key such as semaphores have.
    some_key: String,
    session: Id,
    signals: Signals,
    backoff_max: Duration,
    ping_every: Duration,
    ping_patience: Duration,
}

impl Supervisor {
    pub(crate) async fn connect(address: &Address, opening: Opening) -> Result<Self, StoreError> {
        let lease = opening.lease;
        let plan = Plan {
            address: address.clone(),
            channel: keys::channel(&opening.prefix, &opening.session),
            some_key: keys::some_key(&opening.prefix),
            session: opening.session,
            signals: opening.signals,
            backoff_max: (lease / 30).clamp(2 * BACKOFF.0, BACKOFF.1),
            ping_every: (lease / 3).clamp(Duration::from_millis(250), Duration::from_secs(5)),
            ping_patience: (lease / 6).clamp(Duration::from_millis(250), Duration::from_secs(2)),
        };
        let commands = plan.commands_when_loaded().await?;
        let wakeups = plan.wakeups().await?;
        let reason = StoreError::Unreachable { reason: "not connected".into() };
        let current = Current { epoch: 1, connection: Some(commands), reason };
        let served = AtomicBool::new(false);
        let link = Arc::new(Link { current: Mutex::new(current), check: Notify::new(), served });
        // A new channel has room for it.
        let _ = plan.signals.try_send(Signal::Up);
        let tasks = [
            tokio::spawn(keep_commands(plan.clone(), link.clone())).abort_handle(),
            tokio::spawn(keep_wakeups(plan, link.clone(), wakeups)).abort_handle(),
        ];
        Ok(Self { link, tasks })
    }

    /// The connection for commands now, and its epoch.
    pub(crate) fn connection(&self) -> Result<(u64, MultiplexedConnection), StoreError> {
        let current = self.link.lock();
        match &current.connection {
            Some(connection) => Ok((current.epoch, connection.clone())),
            None => Err(current.reason.clone()),
        }
    }

    /// A call has succeeded.
    pub(crate) fn served(&self) {
        self.link.served.store(true, Ordering::Relaxed);
    }

    /// A call on the connection of this epoch failed in a way that calls for another connection.
    pub(crate) fn broken(&self, epoch: u64, reason: String) {
        self.link.drop_connection(epoch, StoreError::Unreachable { reason });
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl Link {
    fn lock(&self) -> std::sync::MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn drop_connection(&self, epoch: u64, reason: StoreError) {
        let mut current = self.lock();
        if current.epoch == epoch && current.connection.is_some() {
            current.connection = None;
            current.reason = reason;
            self.check.notify_one();
        }
    }

    fn has_served(&self) -> bool {
        self.served.load(Ordering::Relaxed)
    }

    fn replace(&self, connection: MultiplexedConnection) {
        let mut current = self.lock();
        self.served.store(false, Ordering::Relaxed);
        current.epoch += 1;
        current.connection = Some(connection);
    }

    /// Why there is no connection, if there is none.
    fn down(&self) -> Option<StoreError> {
        let current = self.lock();
        current.connection.is_none().then(|| current.reason.clone())
    }

    /// Waits, pinging, until the connection is gone.
    async fn until_down(&self, plan: &Plan) -> StoreError {
        loop {
            if let Some(reason) = self.down() {
                return reason;
            }
            // Silence is broken by the timer; a suspicion or a report by the notification.
            let _ = timeout(plan.ping_every, self.check.notified()).await;
            let (epoch, connection) = {
                let current = self.lock();
                (current.epoch, current.connection.clone())
            };
            let Some(mut connection) = connection else { continue };
            let pong = timeout(plan.ping_patience, redis::cmd("PING").exec_async(&mut connection)).await;
            let reason = match pong {
                // LOADING and the like are answers too: the peer is alive.
                Ok(Err(error)) if errors::needs_reconnect(&error) => error.to_string(),
                Ok(_) => continue,
                Err(_) => "the server does not answer a ping".to_owned(),
            };
            self.drop_connection(epoch, StoreError::Unreachable { reason });
        }
    }
}

async fn keep_commands(plan: Plan, link: Arc<Link>) {
    let mut backoff = Backoff::new(&plan);
    loop {
        let connected = Instant::now();
        let mut reason = link.until_down(&plan).await;
        tracing::warn!(server = %plan.address, "{reason}; connecting again");
        // A server that lets us in and then refuses everything, a replica say, is not to be stormed.
        let mut pause = !link.has_served() && connected.elapsed() < plan.backoff_max;
        if !pause {
            backoff = Backoff::new(&plan);
        }
        let connection = loop {
            if plan.signals.send(Signal::Down(reason)).await.is_err() {
                return;
            }
            if pause {
                backoff.wait().await;
            }
            match plan.commands().await {
                Ok(connection) => break connection,
                Err(error) => reason = error,
            }
            link.lock().reason = reason.clone();
            pause = true;
        };
        tracing::info!(server = %plan.address, "connected again");
        link.replace(connection);
        if plan.signals.send(Signal::Up).await.is_err() {
            return;
        }
    }
}

async fn keep_wakeups(plan: Plan, link: Arc<Link>, mut wakeups: PubSub) {
    loop {
        let (sink, stream) = wakeups.split();
        plan.read(sink, stream).await;
        // The server may be gone altogether. Whoever holds must know before it would have to renew.
        link.check.notify_one();
        let mut backoff = Backoff::new(&plan);
        wakeups = loop {
            match plan.wakeups().await {
                Ok(wakeups) => break wakeups,
                Err(reason) => tracing::debug!(%reason, "no wake-ups yet"),
            }
            backoff.wait().await;
        };
        if plan.signals.send(Signal::Up).await.is_err() {
            return;
        }
    }
}

impl Plan {
    async fn commands(&self) -> Result<MultiplexedConnection, StoreError> {
        // Patience is the caller's business: each call brings its own.
        let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let connecting = async {
            let client = self.address.client();
            let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
            let server: String = redis::cmd("INFO").arg("server").query_async(&mut connection).await?;
            let memory: String = redis::cmd("INFO").arg("memory").query_async(&mut connection).await?;
            Ok((connection, server, memory))
        };
        let (mut connection, server, memory) = self.patiently(connecting).await?;
        check_version(&server)?;
        let mut check = redis::cmd("EVAL");
        check.arg(scripts::CHECK).arg(1).arg(&self.some_key).arg(&self.channel);
        let denied: Vec<String> = self.patiently(check.query_async(&mut connection)).await?;
        if !denied.is_empty() {
            let reason = format!("this user may not run {}: allow it with ACL SETUSER", denied.join(", "));
            return Err(StoreError::Denied { reason });
        }
        if let Some(policy) = evicting_policy(&memory) {
            tracing::warn!(
                server = %self.address,
                policy,
                "this server may evict live semaphores when its memory is full: set maxmemory-policy noeviction"
            );
        }
        Ok(connection)
    }

    /// The first connection. A server that is still loading its data is waited for.
    async fn commands_when_loaded(&self) -> Result<MultiplexedConnection, StoreError> {
        let mut backoff = Backoff::new(self);
        let deadline = Instant::now() + CONNECT_PATIENCE;
        loop {
            match self.commands().await {
                Err(StoreError::Unreachable { reason })
                    if reason.contains("LOADING") && Instant::now() < deadline =>
                {
                    backoff.wait().await;
                }
                result => return result,
            }
        }
    }

    async fn wakeups(&self) -> Result<PubSub, StoreError> {
        let connecting = async {
            let mut wakeups = self.address.client().get_async_pubsub().await?;
            wakeups.subscribe(&self.channel).await?;
            Ok(wakeups)
        };
        self.patiently(connecting).await.map_err(|error| match error {
            StoreError::Denied { reason } => {
                StoreError::Denied { reason: format!("SUBSCRIBE to {}: {reason}", self.channel) }
            }
            other => other,
        })
    }

    async fn patiently<T>(
        &self,
        connecting: impl Future<Output = Result<T, redis::RedisError>>,
    ) -> Result<T, StoreError> {
        match timeout(CONNECT_PATIENCE, connecting).await {
            Ok(Ok(connected)) => Ok(connected),
            Ok(Err(error)) => Err(match errors::of_connecting(&error) {
                StoreError::Unreachable { reason } => {
                    StoreError::Unreachable { reason: format!("{}: {reason}", self.address) }
                }
                other => other,
            }),
            Err(_) => Err(StoreError::Unreachable {
                reason: format!("{}: no connection within {CONNECT_PATIENCE:?}", self.address),
            }),
        }
    }

    /// Hands messages on until the connection ends or falls silent.
    async fn read(&self, mut sink: redis::aio::PubSubSink, mut stream: redis::aio::PubSubStream) {
        loop {
            match timeout(self.ping_every, stream.next()).await {
                Ok(Some(message)) => {
                    match scripts::decode_message(&self.session, message.get_payload_bytes()) {
                        Ok(events) => {
                            for event in events {
                                if self.signals.send(Signal::Event(event)).await.is_err() {
                                    return;
                                }
                            }
                        }
                        Err(malformed) => {
                            tracing::warn!(reason = malformed.0, "a message that makes no sense")
                        }
                    }
                }
                Ok(None) => return,
                Err(_) => {
                    let pong = timeout(self.ping_patience, sink.ping::<redis::Value>()).await;
                    if !matches!(pong, Ok(Ok(_))) {
                        return;
                    }
                }
            }
        }
    }
}

/// Delays between attempts: doubling up to a bound, each drawn from the upper half.
struct Backoff {
    next: Duration,
    max: Duration,
}

impl Backoff {
    fn new(plan: &Plan) -> Self {
        Self { next: BACKOFF.0, max: plan.backoff_max }
    }

    async fn wait(&mut self) {
        sleep(self.next.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
        self.next = (self.next * 2).min(self.max);
    }
}

fn check_version(info: &str) -> Result<(), StoreError> {
    let version = field(info, "redis_version").unwrap_or_default();
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    if (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) >= OLDEST {
        return Ok(());
    }
    let reason =
        format!("version {version:?} is too old: Redis {}.{} or newer is needed", OLDEST.0, OLDEST.1);
    Err(StoreError::Unsupported { reason })
}

/// The eviction policy, if keys may be evicted.
fn evicting_policy(info: &str) -> Option<&str> {
    let policy = field(info, "maxmemory_policy")?;
    (policy != "noeviction" && field(info, "maxmemory")? != "0").then_some(policy)
}

fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_before_6_2_are_refused() {
        for old in ["5.0.14", "6.0.16", "", "nonsense"] {
            let error = check_version(&format!("# Server\r\nredis_version:{old}\r\n"));
            assert!(matches!(error, Err(StoreError::Unsupported { .. })), "{old}");
        }
        for new in ["6.2.0", "7.0.15", "10.1.0"] {
            assert_eq!(check_version(&format!("redis_version:{new}\r\n")), Ok(()), "{new}");
        }
    }

    #[test]
    fn eviction_is_a_danger_only_with_a_memory_limit() {
        assert_eq!(evicting_policy("maxmemory:100\r\nmaxmemory_policy:allkeys-lru\r\n"), Some("allkeys-lru"));
        assert_eq!(evicting_policy("maxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\n"), None);
        assert_eq!(evicting_policy("maxmemory:100\r\nmaxmemory_policy:noeviction\r\n"), None);
    }
}
