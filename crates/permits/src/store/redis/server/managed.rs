//! A connection that is replaced when it breaks.
//!
//! Only the session knows which calls it may send again. So a broken connection fails its calls, the session receives
//! [`Report::Down`], and a task reconnects, with jittered backoff, until the [`ManagedConnection`] is dropped. Each time it is
//! connected again the session receives [`Report::Up`], because messages may have been missed.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{RedisError, RedisResult, Value};
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, sleep_until};

use super::connection::Connection;
use super::handshake::ConnectConfig;
use super::state::{Arrival, Receiver, closed};
use crate::events::emit;
use crate::store::redis::call::{Call, Wire};
use crate::store::redis::error::{self, Failure};
use crate::store::redis::script::codec;
use crate::store::redis::script::values::Malformed;
use crate::store::redis::sentinel::Endpoint;
use crate::store::{Executed, Report, StoreError};

use crate::timing;

/// The owner of a managed connection. Its methods are called under no lock.
pub(crate) trait Owner: Send + Sync {
    /// Takes all of `reports`.
    fn report(&self, reports: &mut Vec<Report>);

    /// Takes a call that the server has sent elsewhere. Returns its outcome, if it ends here.
    fn redirected(&self, call: Box<Call>, failure: Failure) -> Option<Report>;

    /// Notes that the connection is not subscribed to this channel any more.
    fn channel_lost(&self, channel: &str);
}

/// A connection to one server, kept up.
pub(crate) struct ManagedConnection {
    shared: Arc<Shared>,
    tasks: Vec<AbortHandle>,
}

/// The state that callers and tasks share.
struct Shared {
    config: ConnectConfig,
    wire: Arc<Wire>,
    owner: Arc<dyn Owner>,
    runtime: Handle,
    link: Mutex<Link>,
    /// True if there is a connection, for callers that wait for it.
    up: watch::Sender<bool>,
    /// The sentinels named a new primary: abandon the attempt to reach the old one.
    moved: Notify,
}

struct Link {
    /// Counts connections, so that a late report about an old connection does not end the new one.
    epoch: u64,
    connection: Option<Connection>,
    /// The error of callers while there is none.
    reason: StoreError,
    /// The calls that wait for the first connection, or the next one.
    waiting: VecDeque<Waiting>,
    /// The managed connection has been dropped.
    is_dropped: bool,
    /// The channels that this connection is subscribed to, and the next one will be.
    channels: BTreeSet<String>,
    /// The connection reserved for WAIT, once it was needed, and the epoch that it belongs to.
    confirming: Option<(u64, Connection)>,
    /// A call has succeeded on the connection.
    served: bool,
    /// A reply on the connection was malformed.
    malformed: bool,
}

/// A call that waits for the connection, and the channel that it needs.
struct Waiting {
    call: Box<Call>,
    channel: Option<String>,
}

impl ManagedConnection {
    /// Connects to one server and subscribes to `channel`.
    pub(crate) async fn connect(
        config: ConnectConfig,
        wire: Arc<Wire>,
        owner: Arc<dyn Owner>,
        channel: String,
    ) -> Result<Self, StoreError> {
        let shared = Shared::new(config, wire, owner);
        shared.lock().channels.insert(channel);
        shared.connect().await?;
        shared.owner.report(&mut vec![Report::Up]);
        Ok(Self::start(shared))
    }

    /// Connects in the background.
    pub(crate) fn begin(
        config: ConnectConfig,
        wire: Arc<Wire>,
        owner: Arc<dyn Owner>,
        runtime: &Handle,
    ) -> Self {
        let _on_runtime = runtime.enter();
        Self::start(Shared::new(config, wire, owner))
    }

    fn start(shared: Arc<Shared>) -> Self {
        let mut tasks = vec![tokio::spawn(keep(shared.clone())).abort_handle()];
        if let Endpoint::Sentinels(group) = &shared.config.endpoint {
            for number in 0..group.count() {
                let (group, shared) = (group.clone(), shared.clone());
                let moved = Arc::new(move || shared.move_on());
                tasks.push(tokio::spawn(async move { group.watch(number, moved).await }).abort_handle());
            }
        }
        Self { shared, tasks }
    }

    /// Sends a call. Returns its error if that is known at once; otherwise the owner gets its outcome. While there is no
    /// connection, a call fails; to a node of a cluster, which may have been found just now, it waits.
    ///
    /// If the connection is not subscribed to `channel`, it subscribes first, so that no message which the call causes is
    /// missed.
    pub(crate) fn send(&self, call: Box<Call>, channel: Option<String>) -> Result<(), StoreError> {
        if call.request.replicas > 0 {
            return self.confirm(call, channel);
        }
        let in_cluster = self.shared.config.in_cluster;
        let mut link = self.shared.lock();
        match &link.connection {
            // Elsewhere the session itself waits for room. One node of many must not keep it waiting.
            Some(connection) if in_cluster && connection.is_full() => {
                let reason = "the server takes no more commands".to_owned();
                return Err(StoreError::Unreachable { reason });
            }
            Some(_) => {}
            None if in_cluster => {
                let deadline = call.deadline;
                link.waiting.push_back(Waiting { call, channel });
                drop(link);
                let shared = self.shared.clone();
                self.shared.runtime.spawn(async move {
                    sleep_until(deadline).await;
                    shared.expire();
                });
                return Ok(());
            }
            None => return Err(link.reason.clone()),
        }
        self.shared.send_on(&mut link, call, channel).map_err(|reason| unreachable(&reason))
    }

    /// Executes a call and waits for replicas, on a connection of its own, because WAIT blocks a connection.
    fn confirm(&self, call: Box<Call>, channel: Option<String>) -> Result<(), StoreError> {
        if !self.shared.config.in_cluster {
            self.connection()?;
        }
        let shared = self.shared.clone();
        self.shared.runtime.spawn(async move {
            if let Some(channel) = channel
                && let Ok(connection) = shared.connection_by(call.deadline).await
            {
                shared.subscribe(&mut shared.lock(), &connection, channel);
            }
            if let Some(report) = shared.confirm(call).await {
                shared.owner.report(&mut vec![report]);
            }
        });
        Ok(())
    }

    /// The present connection.
    pub(crate) fn connection(&self) -> Result<Connection, StoreError> {
        self.shared.connection()
    }

    /// The connection, waiting for it if there is none yet.
    pub(crate) async fn connection_within(&self, timeout: Duration) -> Result<Connection, StoreError> {
        self.shared.connection_by(Instant::now() + timeout).await
    }

    /// Returns true if there is a connection.
    pub(crate) fn is_up(&self) -> bool {
        self.shared.lock().connection.is_some()
    }

    /// Returns true if the server does not take much of what was sent.
    pub(crate) fn is_full(&self) -> bool {
        self.shared.lock().connection.as_ref().is_some_and(Connection::is_full)
    }

    /// Subscribes to a channel, unless it is subscribed. What is sent later is executed later.
    pub(crate) fn subscribe(&self, channel: String) {
        let mut link = self.shared.lock();
        match link.connection.clone() {
            Some(connection) => self.shared.subscribe(&mut link, &connection, channel),
            // The next connection subscribes to it.
            None => drop(link.channels.insert(channel)),
        }
    }

    /// Ends the subscription to a channel.
    pub(crate) fn unsubscribe(&self, channel: &str) {
        let mut link = self.shared.lock();
        if link.channels.remove(channel)
            && let Some(connection) = &link.connection
        {
            connection.unsubscribe(channel);
        }
    }
}

impl Drop for ManagedConnection {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
        let waiting = {
            let mut link = self.shared.lock();
            link.is_dropped = true;
            // Ends them. The calls in flight get their outcomes.
            link.connection = None;
            link.confirming = None;
            std::mem::take(&mut link.waiting)
        };
        if waiting.is_empty() {
            return;
        }
        let shared = self.shared.clone();
        // In a task, because the caller may have locked what the owner locks.
        self.shared.runtime.spawn(async move {
            let reason = StoreError::Unreachable { reason: "the server has left the cluster".into() };
            let fail = |waiting: Waiting| outcome(&waiting.call, Err(reason.clone()));
            shared.owner.report(&mut waiting.into_iter().map(fail).collect());
        });
    }
}

impl Shared {
    fn new(config: ConnectConfig, wire: Arc<Wire>, owner: Arc<dyn Owner>) -> Arc<Self> {
        let link = Link {
            epoch: 0,
            connection: None,
            reason: StoreError::Unreachable { reason: "not connected yet".into() },
            waiting: VecDeque::new(),
            is_dropped: false,
            channels: BTreeSet::new(),
            confirming: None,
            served: false,
            malformed: false,
        };
        let (link, up) = (Mutex::new(link), watch::Sender::new(false));
        Arc::new(Self { config, wire, owner, runtime: Handle::current(), link, up, moved: Notify::new() })
    }

    fn lock(&self) -> MutexGuard<'_, Link> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn connection(&self) -> Result<Connection, StoreError> {
        let link = self.lock();
        link.connection.clone().ok_or_else(|| link.reason.clone())
    }

    async fn connection_by(&self, deadline: Instant) -> Result<Connection, StoreError> {
        let mut up = self.up.subscribe();
        // If it does not come up, `connection` returns the reason.
        let _ = tokio::time::timeout_at(deadline, up.wait_for(|up| *up)).await;
        self.connection()
    }

    /// Connects, subscribes to all channels, and sends the calls that wait.
    async fn connect(self: &Arc<Self>) -> Result<(), StoreError> {
        let (epoch, channels) = {
            let link = self.lock();
            (link.epoch + 1, link.channels.clone())
        };
        let receiver = Arc::new(Incoming { shared: self.clone(), epoch });
        let (connection, moved) = self.config.connect(&channels, &self.wire, receiver).await?;
        let mut failed = Vec::new();
        {
            let mut link = self.lock();
            if link.is_dropped {
                return Err(link.reason.clone());
            }
            link.epoch = epoch;
            (link.served, link.malformed) = (false, false);
            // Those that were added or removed while it connected.
            for channel in link.channels.difference(&channels) {
                connection.subscribe(&self.config.subscription(channel), channel);
            }
            for channel in channels.difference(&link.channels) {
                connection.unsubscribe(channel);
            }
            link.channels.retain(|channel| !moved.contains(channel));
            link.connection = Some(connection);
            // The calls that wait come first, so they are sent before the connection can be seen.
            while let Some(Waiting { call, channel }) = link.waiting.pop_front() {
                let id = call.request.id;
                if let Err(reason) = self.send_on(&mut link, call, channel) {
                    failed.push(Report::Outcome { id, result: Err(unreachable(&reason)) });
                }
            }
        }
        self.up.send_replace(true);
        if !failed.is_empty() {
            self.owner.report(&mut failed);
        }
        moved.iter().for_each(|channel| self.owner.channel_lost(channel));
        Ok(())
    }

    /// Sends a call on the present connection, after its subscription.
    fn send_on(&self, link: &mut Link, call: Box<Call>, channel: Option<String>) -> RedisResult<()> {
        let connection = link.connection.clone().ok_or_else(closed)?;
        if let Some(channel) = channel {
            self.subscribe(link, &connection, channel);
        }
        connection.call(call, &self.wire)
    }

    fn subscribe(&self, link: &mut Link, connection: &Connection, channel: String) {
        if !link.channels.contains(&channel) {
            connection.subscribe(&self.config.subscription(&channel), &channel);
            link.channels.insert(channel);
        }
    }

    /// Fails the calls that wait and whose time is up.
    fn expire(&self) {
        let mut reports = Vec::new();
        {
            let mut link = self.lock();
            let (now, reason) = (Instant::now(), link.reason.clone());
            link.waiting.retain(|waiting| {
                let expired = waiting.call.deadline <= now;
                if expired {
                    reports.push(outcome(&waiting.call, Err(reason.clone())));
                }
                !expired
            });
        }
        if !reports.is_empty() {
            self.owner.report(&mut reports);
        }
    }

    /// Replaces the connection of this epoch.
    fn replace(&self, epoch: u64, reason: &str) {
        let link = self.lock();
        if let (Some(connection), true) = (&link.connection, link.epoch == epoch) {
            connection.end(reason);
        }
    }

    /// Replaces the connection, because the sentinels have named another server.
    fn move_on(&self) {
        let epoch = self.lock().epoch;
        self.replace(epoch, "the sentinels have named another server");
        self.moved.notify_one();
    }

    /// Notes that the connection of this epoch has ended.
    fn disconnected(&self, epoch: u64, reason: &RedisError) {
        let mut link = self.lock();
        if link.epoch == epoch && link.connection.take().is_some() {
            link.confirming = None;
            link.reason = unreachable(reason);
            self.up.send_replace(false);
        }
    }

    /// Executes a call and waits for replicas. Returns its outcome, unless the owner takes the call.
    async fn confirm(&self, call: Box<Call>) -> Option<Report> {
        let deadline = call.deadline;
        match tokio::time::timeout_at(deadline, self.confirming(deadline)).await {
            Ok(Ok(connection)) => {
                let executing = tokio::time::timeout_at(deadline, self.execute_and_wait(&connection, &call));
                let Ok(result) = executing.await else {
                    let reason = format!("no answer within {:?}", call.request.timeout);
                    self.lock().confirming = None;
                    return Some(outcome(&call, Err(StoreError::NoAnswer { reason })));
                };
                match result {
                    Ok((value, confirmed)) => match self.wire.decode(value, &call.request.command) {
                        Ok(reply) => {
                            self.lock().served = true;
                            Some(outcome(&call, Ok(Executed { reply, confirmed })))
                        }
                        Err(Malformed(reason)) => {
                            self.lock().confirming = None;
                            Some(outcome(&call, Err(StoreError::Malformed { reason })))
                        }
                    },
                    Err(failed) => {
                        if error::needs_reconnect(&failed) {
                            let epoch = self.lock().confirming.take().map(|(epoch, _)| epoch);
                            // The server replied that it cannot write.
                            if let (Some(epoch), Some(_)) = (epoch, failed.code()) {
                                self.replace(epoch, &error::text(&failed));
                            }
                        }
                        self.failed(call, &failed)
                    }
                }
            }
            Ok(Err(error)) => Some(outcome(&call, Err(error))),
            Err(_) => {
                let reason = format!("no connection within {:?}", call.request.timeout);
                Some(outcome(&call, Err(StoreError::Unreachable { reason })))
            }
        }
    }

    /// The connection reserved for WAIT. It is to the same server as the present connection, and is dropped with it.
    async fn confirming(&self, deadline: Instant) -> Result<Connection, StoreError> {
        self.connection_by(deadline).await?;
        let epoch = {
            let link = self.lock();
            if let Some((of, connection)) = &link.confirming
                && *of == link.epoch
            {
                return Ok(connection.clone());
            }
            link.epoch
        };
        let connection = self.config.connect_unchecked().await?;
        self.lock().confirming = Some((epoch, connection.clone()));
        Ok(connection)
    }

    /// Returns the reply, and the number of replicas that have acknowledged all writes made on this connection. The timeout of
    /// WAIT is three quarters of the time left.
    async fn execute_and_wait(&self, connection: &Connection, call: &Call) -> RedisResult<(Value, u32)> {
        let command = &call.request.command;
        let send = async |as_text| {
            let encoded = self.wire.encode(command, as_text);
            if call.asking {
                let mut replies = connection.query_all(&[redis::cmd("ASKING"), encoded]).await;
                replies.pop().unwrap_or_else(|| Err(closed()))
            } else {
                connection.query(&encoded).await
            }
        };
        let value = match send(false).await {
            Err(failed) if error::is_no_script(&failed) => send(true).await?,
            result => result?,
        };
        let left = call.deadline.saturating_duration_since(Instant::now());
        let milliseconds = u64::try_from((left * 3 / 4).as_millis().max(1)).unwrap_or(u64::MAX);
        let mut wait = redis::cmd("WAIT");
        wait.arg(call.request.replicas).arg(milliseconds);
        Ok((value, connection.query(&wait).await?))
    }

    /// The outcome of a call that failed, unless the owner takes the call.
    fn failed(&self, call: Box<Call>, failed: &RedisError) -> Option<Report> {
        match Failure::of(failed, &call.request.command.semaphore) {
            Failure::Store(error) => Some(outcome(&call, Err(error))),
            elsewhere => self.owner.redirected(call, elsewhere),
        }
    }
}

fn unreachable(reason: &RedisError) -> StoreError {
    StoreError::Unreachable { reason: error::text(reason) }
}

fn outcome(call: &Call, result: Result<Executed, StoreError>) -> Report {
    Report::Outcome { id: call.request.id, result }
}

/// The arrivals of one connection.
struct Incoming {
    shared: Arc<Shared>,
    epoch: u64,
}

impl Receiver for Incoming {
    fn receive(&self, arrivals: &mut Vec<Arrival>) {
        let shared = &self.shared;
        let mut reports = Vec::with_capacity(arrivals.len());
        for arrival in arrivals.drain(..) {
            match arrival {
                Arrival::Outcome(call, Ok(value)) => reports.push(self.on_reply(&call, value)),
                Arrival::Outcome(call, Err(failed)) => reports.extend(self.on_error(call, &failed)),
                Arrival::Message(payload) => match codec::decode_message(&shared.config.session, &payload) {
                    Ok(events) => reports.extend(events.into_iter().map(Report::Event)),
                    Err(malformed) => {
                        emit!(WARN, [reason = malformed.0], reason, "a malformed message")
                    }
                },
                Arrival::NotSubscribed(channel, refusal) => self.on_refusal(&channel, &refusal),
                Arrival::Unsubscribed(channel) => {
                    let link = shared.lock();
                    if let (Some(connection), true) = (&link.connection, link.channels.contains(&channel)) {
                        // Messages may have been missed. The session's next calls follow the subscription.
                        connection.subscribe(&shared.config.subscription(&channel), &channel);
                        reports.push(Report::Up);
                    }
                }
                Arrival::Room => reports.push(Report::Writable),
                Arrival::Ended(reason) => shared.disconnected(self.epoch, &reason),
            }
        }
        if !reports.is_empty() {
            shared.owner.report(&mut reports);
        }
    }
}

impl Incoming {
    fn on_reply(&self, call: &Call, value: Value) -> Report {
        let shared = &self.shared;
        match shared.wire.decode(value, &call.request.command) {
            Ok(reply) => {
                shared.lock().served = true;
                outcome(call, Ok(Executed { reply, confirmed: 0 }))
            }
            Err(Malformed(reason)) => {
                // The reply may belong to another call, and so may all later replies. The next connection is made after a
                // delay, since its replies may be malformed too.
                shared.lock().malformed = true;
                shared.replace(self.epoch, &reason);
                outcome(call, Err(StoreError::Malformed { reason }))
            }
        }
    }

    fn on_error(&self, mut call: Box<Call>, failed: &RedisError) -> Option<Report> {
        let shared = &self.shared;
        if error::is_no_script(failed) {
            // The server has lost the script. What was sent meanwhile is executed before it.
            let mut link = shared.lock();
            call.as_text = true;
            let id = call.request.id;
            let sent = shared.send_on(&mut link, call, None);
            return sent.err().map(|reason| Report::Outcome { id, result: Err(unreachable(&reason)) });
        }
        if error::needs_reconnect(failed) {
            shared.replace(self.epoch, &error::text(failed));
        }
        shared.failed(call, failed)
    }

    /// The subscription to a channel was refused.
    fn on_refusal(&self, channel: &str, refusal: &RedisError) {
        let shared = &self.shared;
        let has_moved = refusal.redirect_node().is_some() || error::of_listing(refusal).is_temporary();
        if has_moved {
            shared.lock().channels.remove(channel);
            shared.owner.channel_lost(channel);
        } else {
            // The next connection's subscription fails with this error, which the session reports.
            shared.replace(self.epoch, &error::text(refusal));
        }
    }
}

/// Keeps the connection up.
async fn keep(shared: Arc<Shared>) {
    let config = &shared.config;
    let mut backoff = Backoff::new(config);
    loop {
        let connected = Instant::now();
        let (epoch, established) = {
            let link = shared.lock();
            (link.epoch, link.connection.clone())
        };
        let is_first = established.is_none();
        if let Some(connection) = established {
            let ended = connection.ended().await;
            shared.disconnected(epoch, &ended);
        }
        let (mut reason, has_served) = {
            let link = shared.lock();
            (link.reason.clone(), link.served && !link.malformed)
        };
        // A server that accepts connections and then refuses every call, such as a replica, is not called at once again.
        let mut pause = !is_first && !has_served && connected.elapsed() < config.backoff_max;
        if !pause {
            backoff = Backoff::new(config);
        }
        if !is_first {
            emit!(
                WARN,
                [server = config.endpoint.to_string(), reason = reason.clone()],
                %server,
                "{reason}; connecting again"
            );
            shared.owner.report(&mut vec![Report::Down(reason.clone())]);
        }
        loop {
            if pause {
                backoff.wait().await;
            }
            let connecting = tokio::select! {
                connecting = shared.connect() => connecting,
                // The sentinels named a new primary; abandon the attempt to reach the old one.
                () = shared.moved.notified() => continue,
            };
            match connecting {
                Ok(()) => break,
                Err(error) => reason = error,
            }
            emit!(
                DEBUG,
                [server = config.endpoint.to_string(), reason = reason.clone()],
                %server,
                %reason,
                "not connected yet"
            );
            shared.lock().reason = reason.clone();
            shared.owner.report(&mut vec![Report::Down(reason.clone())]);
            pause = true;
        }
        emit!(INFO, [server = config.endpoint.to_string()], %server, "connected");
        shared.owner.report(&mut vec![Report::Up]);
    }
}

/// Delays between attempts: doubling up to a bound, each drawn from the upper half.
struct Backoff {
    next: Duration,
    max: Duration,
}

impl Backoff {
    fn new(config: &ConnectConfig) -> Self {
        Self { next: timing::BACKOFF.first, max: config.backoff_max }
    }

    async fn wait(&mut self) {
        sleep(self.next.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
        self.next = (self.next * 2).min(self.max);
    }
}
