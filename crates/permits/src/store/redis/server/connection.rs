//! Two connections to a server, one for commands and one for messages, each replaced when it breaks.
//!
//! The `redis` crate's multiplexed connection neither reconnects nor retries, which is right here: only the session knows
//! which calls it may send again. So a broken connection fails its calls at once, the session receives
//! [`StoreEvent::Down`], and a task reconnects, with jittered backoff, until the [`ManagedConnection`] is dropped.
//!
//! The end of the stream, a call without a reply in time, or a ping without one reveals a dead peer. Messages have a
//! connection of their own, which is always being read: when the server restarts, that connection ends first, and the
//! command connection is then checked at once. Each time either is connected again the session receives
//! [`StoreEvent::Up`], because messages may have been missed.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};

use super::handshake::{Backoff, ConnectConfig};
use super::subscriber::{Messages, Subscriber};
use crate::events::emit;
use crate::store::StoreError;
use crate::store::redis::StoreEvent;
use crate::store::redis::error;
use crate::store::redis::script::codec;
use crate::store::redis::sentinel::Endpoint;

/// Two connections to one server, kept up.
pub(crate) struct ManagedConnection {
    shared: Arc<Shared>,
    config: ConnectConfig,
    tasks: Vec<AbortHandle>,
}

/// The state that callers and tasks share.
struct Shared {
    connections: Mutex<Connections>,
    /// True if there is a connection for commands, for callers that wait for it.
    up: watch::Sender<bool>,
    /// The command connection was reported broken, or must be checked.
    check: Notify,
    /// The sentinels named a new primary: abandon the attempt to reach the old one.
    moved: Notify,
    /// The connection for messages must be replaced.
    replace_subscriber: Notify,
    /// A command has succeeded on the current connection.
    served: AtomicBool,
    /// A reply on the current connection was malformed.
    malformed: AtomicBool,
}

struct Connections {
    /// Counts connections, so that a late report about an old connection does not end the new one.
    epoch: u64,
    commands: Option<MultiplexedConnection>,
    /// The error of callers while there is none.
    reason: StoreError,
    /// The connection reserved for WAIT, once it was needed, and the epoch that it belongs to.
    confirming: Option<(u64, MultiplexedConnection)>,
    /// The channels to receive, and the connection that is subscribed to all of them.
    channels: BTreeSet<String>,
    subscriber: Option<Subscriber>,
}

impl ManagedConnection {
    /// Connects to one server and subscribes to `channel`.
    pub(crate) async fn connect(config: ConnectConfig, channel: String) -> Result<Self, StoreError> {
        let channels = BTreeSet::from([channel]);
        // The connection for commands has the clearest errors, so its error counts, and ends the attempt.
        let subscribing = async { Ok(config.subscriber(&channels).await) };
        let (commands, subscriber) = tokio::try_join!(config.commands(), subscribing)?;
        let (subscriber, messages) = subscriber?;
        // A new channel has room for it.
        let _ = config.events.try_send(StoreEvent::Up);
        let shared = Arc::new(Shared::new(channels, Some(commands), Some(subscriber)));
        Ok(Self::start(config, shared, Some(messages)))
    }

    /// Connects in the background.
    pub(crate) fn begin(config: ConnectConfig) -> Self {
        let shared = Arc::new(Shared::new(BTreeSet::new(), None, None));
        Self::start(config, shared, None)
    }

    fn start(config: ConnectConfig, shared: Arc<Shared>, messages: Option<Messages>) -> Self {
        let mut tasks = vec![
            tokio::spawn(keep_commands(config.clone(), shared.clone())).abort_handle(),
            tokio::spawn(keep_subscriber(config.clone(), shared.clone(), messages)).abort_handle(),
        ];
        if let Endpoint::Sentinels(group) = &config.endpoint {
            for number in 0..group.count() {
                let (group, shared) = (group.clone(), shared.clone());
                let watching = async move { group.watch(number, || shared.move_on()).await };
                tasks.push(tokio::spawn(watching).abort_handle());
            }
        }
        Self { shared, config, tasks }
    }

    /// The present connection for commands, and its epoch.
    pub(crate) fn connection(&self) -> Result<(u64, MultiplexedConnection), StoreError> {
        let connections = self.shared.lock();
        match &connections.commands {
            Some(connection) => Ok((connections.epoch, connection.clone())),
            None => Err(connections.reason.clone()),
        }
    }

    /// The connection for commands, waiting for it if there is none yet.
    pub(crate) async fn connection_within(
        &self,
        timeout: Duration,
    ) -> Result<(u64, MultiplexedConnection), StoreError> {
        let mut up = self.shared.up.subscribe();
        // If it does not come up, `connection` returns the reason.
        let _ = tokio::time::timeout(timeout, up.wait_for(|up| *up)).await;
        self.connection()
    }

    /// The connection reserved for WAIT, which blocks other commands. It is to the same server as the connection of this
    /// epoch, and is dropped with it.
    pub(crate) async fn confirming(&self, epoch: u64) -> Result<MultiplexedConnection, StoreError> {
        if let Some((of, connection)) = &self.shared.lock().confirming
            && *of == epoch
        {
            return Ok(connection.clone());
        }
        let connection = self.config.connect().await?;
        self.shared.lock().confirming = Some((epoch, connection.clone()));
        Ok(connection)
    }

    /// Returns true if there is a connection for commands.
    pub(crate) fn is_up(&self) -> bool {
        self.shared.lock().commands.is_some()
    }

    /// Notes that a call has succeeded.
    pub(crate) fn served(&self) {
        self.shared.served.store(true, Ordering::Relaxed);
    }

    /// Replaces the connection of this epoch, because a call on it failed.
    pub(crate) fn broken(&self, epoch: u64, reason: String) {
        self.shared.drop_connection(epoch, StoreError::Unreachable { reason });
    }

    /// Replaces the connection of this epoch, because a reply on it was malformed. The next one is made after a delay,
    /// since its replies may be malformed too.
    pub(crate) fn malformed(&self, epoch: u64, reason: String) {
        if self.shared.lock().epoch == epoch {
            self.shared.malformed.store(true, Ordering::Relaxed);
        }
        self.broken(epoch, reason);
    }

    /// Subscribes to another channel. Returns when its messages arrive here, or when they will, after `StoreEvent::Up`.
    pub(crate) async fn subscribe(&self, channel: &str, timeout: Duration) {
        let subscriber = {
            let mut connections = self.shared.lock();
            if !connections.channels.insert(channel.to_owned()) {
                return;
            }
            connections.subscriber.clone()
        };
        // Without a connection, the next one subscribes to it too.
        let Some(mut subscriber) = subscriber else { return };
        match tokio::time::timeout(timeout, subscriber.subscribe(channel)).await {
            Ok(Ok(())) => {}
            // The channel has moved to another node: the cluster subscribes to it there.
            Ok(Err(error)) if error.redirect_node().is_some() => self.unsubscribe(channel),
            _ => self.shared.replace_subscriber.notify_one(),
        }
    }

    /// Ends the subscription to a channel.
    pub(crate) fn unsubscribe(&self, channel: &str) {
        let mut connections = self.shared.lock();
        if connections.channels.remove(channel)
            && let Some(subscriber) = &connections.subscriber
        {
            subscriber.unsubscribe(channel);
        }
    }
}

impl Drop for ManagedConnection {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl Shared {
    fn new(
        channels: BTreeSet<String>,
        commands: Option<MultiplexedConnection>,
        subscriber: Option<Subscriber>,
    ) -> Self {
        let reason = StoreError::Unreachable { reason: "not connected yet".into() };
        let up = watch::Sender::new(commands.is_some());
        Self {
            connections: Mutex::new(Connections {
                epoch: 1,
                commands,
                confirming: None,
                reason,
                channels,
                subscriber,
            }),
            up,
            check: Notify::new(),
            moved: Notify::new(),
            replace_subscriber: Notify::new(),
            served: AtomicBool::new(false),
            malformed: AtomicBool::new(false),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Connections> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn drop_connection(&self, epoch: u64, reason: StoreError) {
        let mut connections = self.lock();
        if connections.epoch == epoch && connections.commands.is_some() {
            connections.commands = None;
            connections.confirming = None;
            connections.reason = reason;
            self.up.send_replace(false);
            self.check.notify_one();
        }
    }

    /// Drops both connections, because the sentinels have named another server.
    fn move_on(&self) {
        let epoch = self.lock().epoch;
        let reason = "the sentinels have named another server".to_owned();
        self.drop_connection(epoch, StoreError::Unreachable { reason });
        self.moved.notify_one();
        self.replace_subscriber.notify_one();
    }

    /// Returns true if a call on the current connection succeeded, and no reply was malformed.
    fn has_served(&self) -> bool {
        self.served.load(Ordering::Relaxed) && !self.malformed.load(Ordering::Relaxed)
    }

    fn replace(&self, connection: MultiplexedConnection) {
        let mut connections = self.lock();
        self.served.store(false, Ordering::Relaxed);
        self.malformed.store(false, Ordering::Relaxed);
        connections.epoch += 1;
        connections.commands = Some(connection);
        self.up.send_replace(true);
    }

    /// Makes `subscriber` the connection for messages, unless there are channels that it is not subscribed to yet. Returns
    /// these.
    fn use_subscriber(&self, subscriber: &Subscriber, subscribed: &BTreeSet<String>) -> BTreeSet<String> {
        let mut connections = self.lock();
        let missing: BTreeSet<String> = connections.channels.difference(subscribed).cloned().collect();
        if missing.is_empty() {
            connections.subscriber = Some(subscriber.clone());
        }
        missing
    }

    /// The reason, if there is no connection for commands.
    fn down(&self) -> Option<StoreError> {
        let connections = self.lock();
        connections.commands.is_none().then(|| connections.reason.clone())
    }

    /// Waits, pinging, until the connection is gone.
    async fn until_down(&self, config: &ConnectConfig) -> StoreError {
        loop {
            if let Some(reason) = self.down() {
                return reason;
            }
            // Returns when a check is requested, or a ping is due.
            let _ = timeout(config.ping_every, self.check.notified()).await;
            let (epoch, connection) = {
                let connections = self.lock();
                (connections.epoch, connections.commands.clone())
            };
            let Some(mut connection) = connection else { continue };
            let pong = timeout(config.ping_timeout, redis::cmd("PING").exec_async(&mut connection)).await;
            let reason = match pong {
                // A reply such as LOADING shows that the peer is alive.
                Ok(Err(failed)) if error::needs_reconnect(&failed) => error::text(&failed),
                Ok(_) => continue,
                Err(_) => "the server does not answer a ping".to_owned(),
            };
            self.drop_connection(epoch, StoreError::Unreachable { reason });
        }
    }
}

/// Keeps the connection for commands up.
async fn keep_commands(config: ConnectConfig, shared: Arc<Shared>) {
    let mut backoff = Backoff::new(&config);
    let mut first = shared.down().is_some();
    loop {
        let connected = Instant::now();
        let mut reason = shared.until_down(&config).await;
        // A server that accepts connections and then refuses every call, such as a replica, is not called at once again.
        let mut pause = !first && !shared.has_served() && connected.elapsed() < config.backoff_max;
        if !pause {
            backoff = Backoff::new(&config);
        }
        if !first {
            emit!(
                WARN,
                [server = config.endpoint.to_string(), reason = reason.clone()],
                %server,
                "{reason}; connecting again"
            );
        }
        let connection = loop {
            if !std::mem::take(&mut first)
                && config.events.send(StoreEvent::Down(reason.clone())).await.is_err()
            {
                return;
            }
            if pause {
                backoff.wait().await;
            }
            let connecting = tokio::select! {
                connecting = config.commands() => connecting,
                // The sentinels named a new primary; abandon the attempt to reach the old one.
                () = shared.moved.notified() => continue,
            };
            match connecting {
                Ok(connection) => break connection,
                Err(error) => reason = error,
            }
            shared.lock().reason = reason.clone();
            pause = true;
        };
        emit!(INFO, [server = config.endpoint.to_string()], %server, "connected");
        shared.replace(connection);
        if config.events.send(StoreEvent::Up).await.is_err() {
            return;
        }
    }
}

/// Keeps the connection for messages up.
async fn keep_subscriber(config: ConnectConfig, shared: Arc<Shared>, mut messages: Option<Messages>) {
    let mut backoff = Backoff::new(&config);
    loop {
        if let Some(messages) = messages.take() {
            let connected = Instant::now();
            read(&config, &shared, messages).await;
            shared.lock().subscriber = None;
            // The server itself may be down. Holders must know that before their next renewal is due.
            shared.check.notify_one();
            if connected.elapsed() < config.backoff_max {
                // A server that accepts connections and then closes them is not called at once again.
                backoff.wait().await;
            } else {
                backoff = Backoff::new(&config);
            }
        }
        messages = loop {
            let subscribing = tokio::select! {
                subscribing = subscribe_to_all(&config, &shared) => subscribing,
                () = shared.replace_subscriber.notified() => continue,
            };
            match subscribing {
                Ok(messages) => break Some(messages),
                Err(reason) => {
                    emit!(DEBUG, [server = config.endpoint.to_string(), reason], %server, %reason, "no wake-ups yet");
                }
            }
            backoff.wait().await;
        };
        if config.events.send(StoreEvent::Up).await.is_err() {
            return;
        }
    }
}

/// A new connection for messages, subscribed to all channels, those added meanwhile included.
async fn subscribe_to_all(config: &ConnectConfig, shared: &Shared) -> Result<Messages, StoreError> {
    let mut subscribed = shared.lock().channels.clone();
    let (mut subscriber, messages) = config.subscriber(&subscribed).await?;
    loop {
        let missing = shared.use_subscriber(&subscriber, &subscribed);
        if missing.is_empty() {
            return Ok(messages);
        }
        config.subscribe(&mut subscriber, &missing).await?;
        subscribed.extend(missing);
    }
}

/// Passes messages on until the connection ends, no longer replies to pings, or must be replaced.
async fn read(config: &ConnectConfig, shared: &Shared, mut messages: Messages) {
    loop {
        let message = tokio::select! {
            message = timeout(config.ping_every, messages.recv()) => message,
            () = shared.replace_subscriber.notified() => return,
        };
        match message {
            Ok(Some(payload)) => match codec::decode_message(&config.session, &payload) {
                Ok(events) => {
                    for event in events {
                        if config.events.send(StoreEvent::Event(event)).await.is_err() {
                            return;
                        }
                    }
                }
                Err(malformed) => {
                    emit!(WARN, [reason = malformed.0], reason, "a malformed message")
                }
            },
            Ok(None) => return,
            Err(_) => {
                let Some(mut subscriber) = shared.lock().subscriber.clone() else { return };
                if !matches!(timeout(config.ping_timeout, subscriber.ping()).await, Ok(Ok(()))) {
                    return;
                }
            }
        }
    }
}
