//! The supervisor: one connection to a server for commands, one for wake-ups, each replaced when it breaks.
//!
//! The `redis` crate's multiplexed connection neither reconnects nor retries, which is right here: only the
//! session knows what may be sent again. So a broken connection fails its calls at once, whoever listens hears
//! [`Signal::Down`], and a task tries again, with jittered backoff, for as long as the supervisor lives.
//!
//! A dead peer is noticed by the end of the stream, by a call that ran out of timeout, or by a ping. Wake-ups
//! have a connection of their own because it is always being read: when the server restarts, its end is what
//! is noticed first, and the command connection is then checked at once. After either is back comes
//! [`Signal::Up`], because messages may have been missed.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};

use super::connecting::{Backoff, Plan};
use super::place::Place;
use super::script::codec;
use super::wakeups::{Messages, Wakeups};
use super::errors;
use crate::events::emit;
use crate::store::{StoreError, StoreEvent};

/// Two connections to one server, kept up.
pub(super) struct Supervisor {
    link: Arc<Link>,
    plan: Plan,
    tasks: Vec<AbortHandle>,
}

/// The connections, as the supervisor, its tasks and the callers share them.
struct Link {
    current: Mutex<Current>,
    /// Tells who waits for it that there is a connection for commands.
    up: watch::Sender<bool>,
    /// The command connection was reported broken, or should be checked.
    check: Notify,
    /// The server is another one now: an attempt to connect to the old one is in vain.
    moved: Notify,
    /// The wake-up connection is to be replaced.
    replace_wakeups: Notify,
    /// A command has succeeded on the current connection.
    served: AtomicBool,
    /// A reply on the current connection made no sense.
    confused: AtomicBool,
}

struct Current {
    /// Counts connections, so that a late report of an old one's end is not taken for the new one's.
    epoch: u64,
    commands: Option<MultiplexedConnection>,
    /// Why there is none.
    reason: StoreError,
    /// The connection for what replicas confirm, if there was anything, and the epoch that it belongs to.
    confirming: Option<(u64, MultiplexedConnection)>,
    /// The channels to listen to, and the connection that listens to all of them.
    channels: BTreeSet<String>,
    wakeups: Option<Wakeups>,
}

impl Supervisor {
    /// Connects to one server and listens to `channel`.
    pub(super) async fn connect(plan: Plan, channel: String) -> Result<Self, StoreError> {
        let channels = BTreeSet::from([channel]);
        // The connection for commands tells best what is wrong, so its error counts, and ends the attempt.
        let listening = async { Ok(plan.wakeups(&channels).await) };
        let (commands, wakeups) = tokio::try_join!(plan.commands(), listening)?;
        let (wakeups, messages) = wakeups?;
        // A new channel has room for it.
        let _ = plan.signals.try_send(StoreEvent::Up);
        let link = Arc::new(Link::new(channels, Some(commands), Some(wakeups)));
        Ok(Self::start(plan, link, Some(messages)))
    }

    /// Begins to connect, with nobody waiting for it.
    pub(super) fn begin(plan: Plan) -> Self {
        let link = Arc::new(Link::new(BTreeSet::new(), None, None));
        Self::start(plan, link, None)
    }

    fn start(plan: Plan, link: Arc<Link>, messages: Option<Messages>) -> Self {
        let mut tasks = vec![
            tokio::spawn(keep_commands(plan.clone(), link.clone())).abort_handle(),
            tokio::spawn(keep_wakeups(plan.clone(), link.clone(), messages)).abort_handle(),
        ];
        if let Place::Sentinels(place) = &plan.place {
            for number in 0..place.count() {
                let (place, link) = (place.clone(), link.clone());
                let watching = async move { place.watch(number, || link.move_on()).await };
                tasks.push(tokio::spawn(watching).abort_handle());
            }
        }
        Self { link, plan, tasks }
    }

    /// The connection for commands now, and its epoch.
    pub(super) fn connection(&self) -> Result<(u64, MultiplexedConnection), StoreError> {
        let current = self.link.lock();
        match &current.commands {
            Some(connection) => Ok((current.epoch, connection.clone())),
            None => Err(current.reason.clone()),
        }
    }

    /// The connection for commands, waiting for it if there is none yet.
    pub(super) async fn connection_within(
        &self,
        timeout: Duration,
    ) -> Result<(u64, MultiplexedConnection), StoreError> {
        let mut up = self.link.up.subscribe();
        // If it does not come up, the reason is told below.
        let _ = tokio::time::timeout(timeout, up.wait_for(|up| *up)).await;
        self.connection()
    }

    /// A connection for commands that replicas are to confirm, which blocks it: one of their own. It is to the server
    /// of the connection of this epoch, and lives as long.
    pub(super) async fn confirming(&self, epoch: u64) -> Result<MultiplexedConnection, StoreError> {
        if let Some((of, connection)) = &self.link.lock().confirming
            && *of == epoch
        {
            return Ok(connection.clone());
        }
        let connection = self.plan.connect().await?;
        self.link.lock().confirming = Some((epoch, connection.clone()));
        Ok(connection)
    }

    pub(super) fn is_up(&self) -> bool {
        self.link.lock().commands.is_some()
    }

    /// A call has succeeded.
    pub(super) fn served(&self) {
        self.link.served.store(true, Ordering::Relaxed);
    }

    /// A call on the connection of this epoch failed in a way that calls for another connection.
    pub(super) fn broken(&self, epoch: u64, reason: String) {
        self.link.drop_connection(epoch, StoreError::Unreachable { reason });
    }

    /// A reply on the connection of this epoch made no sense. The next connection may say the same, and so is not made
    /// at once.
    pub(super) fn confused(&self, epoch: u64, reason: String) {
        if self.link.lock().epoch == epoch {
            self.link.confused.store(true, Ordering::Relaxed);
        }
        self.broken(epoch, reason);
    }

    /// Listens to another channel. Returns when messages on it arrive here, or when they will, after `Signal::Up`.
    pub(super) async fn listen(&self, channel: &str, timeout: Duration) {
        let wakeups = {
            let mut current = self.link.lock();
            if !current.channels.insert(channel.to_owned()) {
                return;
            }
            current.wakeups.clone()
        };
        // Without a connection: the next one listens to it too.
        let Some(mut wakeups) = wakeups else { return };
        match tokio::time::timeout(timeout, wakeups.listen(channel)).await {
            Ok(Ok(())) => {}
            // Another node's by now: whoever knows the nodes will listen to it there.
            Ok(Err(error)) if error.redirect_node().is_some() => self.ignore(channel),
            _ => self.link.replace_wakeups.notify_one(),
        }
    }

    /// Listens to a channel no more.
    pub(super) fn ignore(&self, channel: &str) {
        let mut current = self.link.lock();
        if current.channels.remove(channel)
            && let Some(wakeups) = &current.wakeups
        {
            wakeups.ignore(channel);
        }
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
    fn new(
        channels: BTreeSet<String>,
        commands: Option<MultiplexedConnection>,
        wakeups: Option<Wakeups>,
    ) -> Self {
        let reason = StoreError::Unreachable { reason: "not connected yet".into() };
        let up = watch::Sender::new(commands.is_some());
        Self {
            current: Mutex::new(Current { epoch: 1, commands, confirming: None, reason, channels, wakeups }),
            up,
            check: Notify::new(),
            moved: Notify::new(),
            replace_wakeups: Notify::new(),
            served: AtomicBool::new(false),
            confused: AtomicBool::new(false),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn drop_connection(&self, epoch: u64, reason: StoreError) {
        let mut current = self.lock();
        if current.epoch == epoch && current.commands.is_some() {
            current.commands = None;
            current.confirming = None;
            current.reason = reason;
            self.up.send_replace(false);
            self.check.notify_one();
        }
    }

    /// The server is another one now: both connections are to the old one.
    fn move_on(&self) {
        let epoch = self.lock().epoch;
        let reason = "the sentinels have named another server".to_owned();
        self.drop_connection(epoch, StoreError::Unreachable { reason });
        self.moved.notify_one();
        self.replace_wakeups.notify_one();
    }

    /// Whether the current connection was of use.
    fn has_served(&self) -> bool {
        self.served.load(Ordering::Relaxed) && !self.confused.load(Ordering::Relaxed)
    }

    fn replace(&self, connection: MultiplexedConnection) {
        let mut current = self.lock();
        self.served.store(false, Ordering::Relaxed);
        self.confused.store(false, Ordering::Relaxed);
        current.epoch += 1;
        current.commands = Some(connection);
        self.up.send_replace(true);
    }

    /// Makes `wakeups` the connection that listens, unless there are channels that it does not listen to yet.
    fn use_wakeups(&self, wakeups: &Wakeups, listened: &BTreeSet<String>) -> BTreeSet<String> {
        let mut current = self.lock();
        let missing: BTreeSet<String> = current.channels.difference(listened).cloned().collect();
        if missing.is_empty() {
            current.wakeups = Some(wakeups.clone());
        }
        missing
    }

    /// Why there is no connection, if there is none.
    fn down(&self) -> Option<StoreError> {
        let current = self.lock();
        current.commands.is_none().then(|| current.reason.clone())
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
                (current.epoch, current.commands.clone())
            };
            let Some(mut connection) = connection else { continue };
            let pong = timeout(plan.ping_timeout, redis::cmd("PING").exec_async(&mut connection)).await;
            let reason = match pong {
                // LOADING and the like are answers too: the peer is alive.
                Ok(Err(error)) if errors::needs_reconnect(&error) => errors::text(&error),
                Ok(_) => continue,
                Err(_) => "the server does not answer a ping".to_owned(),
            };
            self.drop_connection(epoch, StoreError::Unreachable { reason });
        }
    }
}

async fn keep_commands(plan: Plan, link: Arc<Link>) {
    let mut backoff = Backoff::new(&plan);
    let mut first = link.down().is_some();
    loop {
        let connected = Instant::now();
        let mut reason = link.until_down(&plan).await;
        // A server that lets us in and then refuses everything, a replica say, is not to be stormed.
        let mut pause = !first && !link.has_served() && connected.elapsed() < plan.backoff_max;
        if !pause {
            backoff = Backoff::new(&plan);
        }
        if !first {
            emit!(
                WARN,
                [server = plan.place.to_string(), reason = reason.clone()],
                %server,
                "{reason}; connecting again"
            );
        }
        let connection = loop {
            if !std::mem::take(&mut first)
                && plan.signals.send(StoreEvent::Down(reason.clone())).await.is_err()
            {
                return;
            }
            if pause {
                backoff.wait().await;
            }
            let connecting = tokio::select! {
                connecting = plan.commands() => connecting,
                // Perhaps a server that does not answer: the new one will.
                () = link.moved.notified() => continue,
            };
            match connecting {
                Ok(connection) => break connection,
                Err(error) => reason = error,
            }
            link.lock().reason = reason.clone();
            pause = true;
        };
        emit!(INFO, [server = plan.place.to_string()], %server, "connected");
        link.replace(connection);
        if plan.signals.send(StoreEvent::Up).await.is_err() {
            return;
        }
    }
}

async fn keep_wakeups(plan: Plan, link: Arc<Link>, mut messages: Option<Messages>) {
    let mut backoff = Backoff::new(&plan);
    loop {
        if let Some(messages) = messages.take() {
            let connected = Instant::now();
            read(&plan, &link, messages).await;
            link.lock().wakeups = None;
            // The server may be gone altogether. Whoever holds must know before it would have to renew.
            link.check.notify_one();
            if connected.elapsed() < plan.backoff_max {
                // A server that lets us in and then closes the connection is not to be stormed.
                backoff.wait().await;
            } else {
                backoff = Backoff::new(&plan);
            }
        }
        messages = loop {
            let listening = tokio::select! {
                listening = listen_to_all(&plan, &link) => listening,
                () = link.replace_wakeups.notified() => continue,
            };
            match listening {
                Ok(messages) => break Some(messages),
                Err(reason) => {
                    emit!(DEBUG, [server = plan.place.to_string(), reason], %server, %reason, "no wake-ups yet");
                }
            }
            backoff.wait().await;
        };
        if plan.signals.send(StoreEvent::Up).await.is_err() {
            return;
        }
    }
}

/// A new connection for wake-ups, which listens to all that anybody has asked for meanwhile.
async fn listen_to_all(plan: &Plan, link: &Link) -> Result<Messages, StoreError> {
    let mut listened = link.lock().channels.clone();
    let (mut wakeups, messages) = plan.wakeups(&listened).await?;
    loop {
        let missing = link.use_wakeups(&wakeups, &listened);
        if missing.is_empty() {
            return Ok(messages);
        }
        plan.listen(&mut wakeups, &missing).await?;
        listened.extend(missing);
    }
}

/// Hands messages on until the connection ends, falls silent, or is to be replaced.
async fn read(plan: &Plan, link: &Link, mut messages: Messages) {
    loop {
        let message = tokio::select! {
            message = timeout(plan.ping_every, messages.recv()) => message,
            () = link.replace_wakeups.notified() => return,
        };
        match message {
            Ok(Some(payload)) => match codec::decode_message(&plan.session, &payload) {
                Ok(events) => {
                    for event in events {
                        if plan.signals.send(StoreEvent::Event(event)).await.is_err() {
                            return;
                        }
                    }
                }
                Err(malformed) => {
                    emit!(WARN, [reason = malformed.0], reason, "a message that makes no sense")
                }
            },
            Ok(None) => return,
            Err(_) => {
                let Some(mut wakeups) = link.lock().wakeups.clone() else { return };
                if !matches!(timeout(plan.ping_timeout, wakeups.ping()).await, Ok(Ok(()))) {
                    return;
                }
            }
        }
    }
}
