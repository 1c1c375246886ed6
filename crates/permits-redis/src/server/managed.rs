//! A connection that is replaced when it breaks.
//!
//! Only the session knows which calls it may send again. So a broken connection fails its calls, the session
//! receives [`Report::Down`], and a task reconnects, with jittered backoff, until the [`ManagedConnection`]
//! is dropped. Each time it is connected again the session receives [`Report::Up`], because messages may have
//! been missed.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, sleep_until};

use super::connection::Connection;
use super::handshake::ConnectConfig;
use super::link::{Owner, Shared, Waiting, outcome, unreachable};
use crate::call::{Call, Wire};
use crate::sentinel::Endpoint;
use crate::timing;
use permits_store::observe::events;
use permits_store::{Report, StoreError};

/// A connection to one server, kept up.
pub(crate) struct ManagedConnection<O: Owner> {
    shared: Arc<Shared<O>>,
    tasks: Vec<AbortHandle>,
}

impl<O: Owner> ManagedConnection<O> {
    /// Connects to one server and subscribes to `channel`.
    pub(crate) async fn connect(
        config: ConnectConfig,
        wire: Arc<Wire>,
        owner: O,
        channel: String,
    ) -> Result<Self, StoreError> {
        let shared = Shared::new(config, wire, owner, false);
        shared.lock().channels.insert(channel);
        shared.connect().await?;
        shared.owner.report(&mut vec![Report::Up]);
        Ok(Self::start(shared))
    }

    /// Connects in the background. `replaces` is true for a server that is known to have taken the place of
    /// another one.
    pub(crate) fn begin(
        config: ConnectConfig,
        wire: Arc<Wire>,
        owner: O,
        runtime: &Handle,
        replaces: bool,
    ) -> Self {
        let _on_runtime = runtime.enter();
        Self::start(Shared::new(config, wire, owner, replaces))
    }

    fn start(shared: Arc<Shared<O>>) -> Self {
        let mut tasks = vec![tokio::spawn(maintain(shared.clone())).abort_handle()];
        if let Endpoint::Sentinels(group) = &shared.config.endpoint {
            for number in 0..group.count() {
                let (group, shared) = (group.clone(), shared.clone());
                let moved = Arc::new(move || shared.move_on());
                tasks.push(tokio::spawn(async move { group.watch(number, moved).await }).abort_handle());
            }
        }
        Self { shared, tasks }
    }

    /// Sends a call. Returns its error if that is known at once; otherwise the owner gets its outcome. While
    /// there is no connection, a call fails; to a node of a cluster, which may have been found just now, it
    /// waits.
    ///
    /// If the connection is not subscribed to `channels`, it subscribes first, so that no message which the
    /// call causes is missed.
    pub(crate) fn send(&self, call: Box<Call>, channels: Vec<String>) -> Result<(), StoreError> {
        if call.request.replicas > 0 {
            return self.confirm(call, channels);
        }
        let in_cluster = self.shared.config.in_cluster();
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
                link.waiting.push_back(Waiting { call, channels });
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
        self.shared.send_on(&mut link, call, channels).map_err(|reason| unreachable(&reason))
    }

    /// Executes a call and waits for replicas.
    fn confirm(&self, call: Box<Call>, channels: Vec<String>) -> Result<(), StoreError> {
        if !self.shared.config.in_cluster() {
            self.connection()?;
        }
        let shared = self.shared.clone();
        self.shared.runtime.spawn(async move {
            channels.into_iter().for_each(|channel| shared.subscribe(channel));
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

    /// Notes that the server has taken the place of another one, too.
    pub(crate) fn replaces(&self) {
        self.shared.lock().replaces();
    }

    /// Returns true if the server does not take much of what was sent.
    pub(crate) fn is_full(&self) -> bool {
        self.shared.lock().connection.as_ref().is_some_and(Connection::is_full)
    }

    /// Asks whether the connection lives, if there is one.
    pub(crate) fn probe(&self) {
        if let Ok(connection) = self.connection() {
            connection.probe();
        }
    }

    /// Subscribes to a channel, unless it is subscribed. What is sent later is executed later.
    pub(crate) fn subscribe(&self, channel: String) {
        self.shared.subscribe(channel);
    }

    /// Ends the subscription to a channel.
    pub(crate) fn unsubscribe(&self, channel: &str) {
        let mut link = self.shared.lock();
        if link.channels.remove(channel)
            && let Some(connection) = &link.connection
        {
            connection.unsubscribe(&self.shared.config.end_of_subscription(channel));
        }
    }
}

impl<O: Owner> Drop for ManagedConnection<O> {
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
        // The outcomes are reported by a task, because the caller may hold a lock that the owner takes.
        self.shared.runtime.spawn(async move {
            let reason = StoreError::Unreachable { reason: "the server has left the cluster".into() };
            let fail = |waiting: Waiting| outcome(&waiting.call, Err(reason.clone()));
            shared.owner.report(&mut waiting.into_iter().map(fail).collect());
        });
    }
}

/// Connects, and connects again whenever the connection ends.
async fn maintain<O: Owner>(shared: Arc<Shared<O>>) {
    let config = &shared.config;
    let mut backoff = Backoff::new(config);
    // The last reason that was logged. The same reason is logged again only after another reason, or once a
    // connection has served.
    let mut logged = None;
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
            (link.reason.clone(), link.served)
        };
        // A server that accepts connections and soon ends them, or refuses every call, as a replica does, is
        // not called at once again.
        let mut pause = !is_first && connected.elapsed() < config.backoff_max;
        if !pause {
            backoff = Backoff::new(config);
        }
        if !pause || has_served {
            logged = None;
        }
        let mut is_new = !is_first && is_change(&mut logged, &reason);
        if is_new {
            events::connection_lost(&config.endpoint, &reason);
        }
        if !is_first {
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
                Err(error) => reason = config.for_now(error),
            }
            if is_change(&mut logged, &reason) {
                events::not_connected(&config.endpoint, &reason);
                is_new = true;
            }
            shared.lock().reason = reason.clone();
            shared.owner.report(&mut vec![Report::Down(reason.clone())]);
            pause = true;
        }
        if is_first {
            events::connected(&config.endpoint);
        } else if is_new {
            events::reconnected(&config.endpoint);
        }
        shared.owner.report(&mut vec![Report::Up]);
    }
}

/// Returns true if this is not the reason that was logged last, which it becomes.
fn is_change(logged: &mut Option<String>, reason: &StoreError) -> bool {
    let reason = reason.to_string();
    let is_change = logged.as_ref() != Some(&reason);
    *logged = Some(reason);
    is_change
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
