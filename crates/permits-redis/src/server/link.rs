//! The state of a managed connection: the connection that there is now, and what moves on to the next one.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::connection::Connection;
use super::handshake::ConnectConfig;
use super::state::{Arrival, Receiver, closed};
use crate::call::{Call, Wire};
use crate::error::{self, Failure};
use crate::resp::{RespError, RespResult, Value};
use crate::script::codec;
use crate::script::values::Malformed;
use permits_store::observe::events;
use permits_store::{Executed, Report, StoreError};

/// The owner of a managed connection. Its methods are called under no lock.
pub(crate) trait Owner: Send + Sync + 'static {
    /// Takes all of `reports`.
    fn report(&self, reports: &mut Vec<Report>);

    /// Takes a call that the server has sent elsewhere. Returns its outcome, if it ends here.
    fn redirected(&self, call: Box<Call>, failure: Failure) -> Option<Report>;

    /// Notes that the connection is not subscribed to these channels any more.
    fn channels_lost(&self, channels: &[String]);
}

/// The state that callers and tasks share.
pub(super) struct Shared<O> {
    pub(super) config: ConnectConfig,
    pub(super) wire: Arc<Wire>,
    pub(super) owner: O,
    pub(super) runtime: Handle,
    link: Mutex<Link>,
    /// True if there is a connection, for callers that wait for it.
    up: watch::Sender<bool>,
    /// The sentinels named a new primary: abandon the attempt to reach the old one.
    pub(super) moved: Notify,
    /// Locked while the connection reserved for WAIT is made.
    pub(super) one_connects: tokio::sync::Mutex<()>,
}

pub(super) struct Link {
    /// Counts connections, so that a late report about an old connection does not end the new one.
    pub(super) epoch: u64,
    pub(super) connection: Option<Connection>,
    /// The error that callers get while there is no connection.
    pub(super) reason: StoreError,
    /// The calls that wait for the first connection, or the next one.
    pub(super) waiting: VecDeque<Waiting>,
    /// The managed connection has been dropped.
    pub(super) is_dropped: bool,
    /// The channels that this connection is subscribed to, and the next one will be.
    pub(super) channels: BTreeSet<String>,
    /// The connection reserved for WAIT, once it was needed, and the epoch that it belongs to.
    pub(super) confirming: Option<(u64, Connection)>,
    /// The server's process, and the moment when it was found in place of another one.
    server: Option<(String, Option<Instant>)>,
    /// A call has succeeded on the connection.
    pub(super) served: bool,
}

impl Link {
    /// Notes the server's process that the connection is to.
    fn meet(&mut self, run_id: String) {
        if self.server.as_ref().is_none_or(|(known, _)| *known != run_id) {
            let replaces = self.server.is_some();
            self.server = Some((run_id, replaces.then(Instant::now)));
        }
    }

    /// Returns true if this is the server's process that the connection is to.
    pub(super) fn is_to(&self, run_id: &str) -> bool {
        self.server.as_ref().is_some_and(|(known, _)| known == run_id)
    }

    /// Notes that the server has taken the place of another one, too.
    pub(super) fn replaces(&mut self) {
        if let Some((_, since)) = &mut self.server {
            *since = Some(Instant::now());
        }
    }

    /// The time since the server was found in place of another one. It may have run for longer, and loaded
    /// its data, or been a replica.
    pub(super) fn known_for(&self) -> Option<Duration> {
        self.server.as_ref()?.1.map(|since| since.elapsed())
    }
}

/// A call that waits for the connection, and the channels that it needs.
pub(super) struct Waiting {
    pub(super) call: Box<Call>,
    pub(super) channels: Vec<String>,
}

impl<O: Owner> Shared<O> {
    /// `replaces` is true for a server that is known to have taken the place of another one.
    pub(super) fn new(config: ConnectConfig, wire: Arc<Wire>, owner: O, replaces: bool) -> Arc<Self> {
        let link = Link {
            epoch: 0,
            connection: None,
            reason: StoreError::Unreachable { reason: "not connected yet".into() },
            waiting: VecDeque::new(),
            is_dropped: false,
            channels: BTreeSet::new(),
            confirming: None,
            // The name of no process, so that the first process that answers counts as a new one.
            server: replaces.then(Default::default),
            served: false,
        };
        let (link, up) = (Mutex::new(link), watch::Sender::new(false));
        let (runtime, moved, one_connects) = (Handle::current(), Notify::new(), Default::default());
        Arc::new(Self { config, wire, owner, runtime, link, up, moved, one_connects })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Link> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn connection(&self) -> Result<Connection, StoreError> {
        let link = self.lock();
        link.connection.clone().ok_or_else(|| link.reason.clone())
    }

    pub(super) async fn connection_by(&self, deadline: Instant) -> Result<Connection, StoreError> {
        let mut up = self.up.subscribe();
        // If it does not come up, `connection` returns the reason.
        let _ = tokio::time::timeout_at(deadline, up.wait_for(|up| *up)).await;
        self.connection()
    }

    /// Connects, subscribes to all channels, and sends the calls that wait.
    pub(super) async fn connect(self: &Arc<Self>) -> Result<(), StoreError> {
        let (epoch, channels) = {
            let link = self.lock();
            (link.epoch + 1, link.channels.clone())
        };
        let receiver = Incoming { shared: self.clone(), epoch };
        let (connection, run_id, moved) = self.config.connect(&channels, &self.wire, receiver).await?;
        let mut failed = Vec::new();
        {
            let mut link = self.lock();
            if link.is_dropped {
                return Err(link.reason.clone());
            }
            link.epoch = epoch;
            link.meet(run_id);
            link.served = false;
            // Channels may have been added or removed while it connected.
            for channel in link.channels.difference(&channels) {
                connection.subscribe(&self.config.subscription(channel), channel);
            }
            for channel in channels.difference(&link.channels) {
                connection.unsubscribe(&self.config.end_of_subscription(channel));
            }
            link.channels.retain(|channel| !moved.contains(channel));
            link.connection = Some(connection);
            // The calls that wait come first, so they are sent before the connection can be seen.
            while let Some(Waiting { call, channels }) = link.waiting.pop_front() {
                let id = call.request.id;
                if let Err(reason) = self.send_on(&mut link, call, channels) {
                    failed.push(Report::Outcome { id, result: Err(unreachable(&reason)) });
                }
            }
            self.up.send_replace(true);
        }
        if !failed.is_empty() {
            self.owner.report(&mut failed);
        }
        self.owner.channels_lost(&moved);
        Ok(())
    }

    /// Sends a call on the present connection, after its subscriptions.
    pub(super) fn send_on(
        &self,
        link: &mut Link,
        mut call: Box<Call>,
        channels: Vec<String>,
    ) -> RespResult<()> {
        let connection = link.connection.clone().ok_or_else(closed)?;
        for channel in channels {
            self.subscribe_on(link, &connection, channel);
        }
        call.known_for = link.known_for();
        connection.call(call, &self.wire)
    }

    /// Subscribes to a channel, unless it is subscribed. What is sent later is executed later.
    pub(super) fn subscribe(&self, channel: String) {
        let mut link = self.lock();
        match link.connection.clone() {
            Some(connection) => self.subscribe_on(&mut link, &connection, channel),
            // The next connection subscribes to it.
            None => drop(link.channels.insert(channel)),
        }
    }

    fn subscribe_on(&self, link: &mut Link, connection: &Connection, channel: String) {
        if !link.channels.contains(&channel) {
            connection.subscribe(&self.config.subscription(&channel), &channel);
            link.channels.insert(channel);
        }
    }

    /// Fails the calls that wait and whose time is up.
    pub(super) fn expire(&self) {
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
    pub(super) fn replace(&self, epoch: u64, reason: &str) {
        let link = self.lock();
        if let (Some(connection), true) = (&link.connection, link.epoch == epoch) {
            connection.end(reason);
        }
    }

    /// Replaces the connection, because the sentinels have named another server.
    pub(super) fn move_on(&self) {
        let epoch = self.lock().epoch;
        self.replace(epoch, "the sentinels have named another server");
        self.moved.notify_one();
    }

    /// Notes that the connection of this epoch has ended.
    pub(super) fn disconnected(&self, epoch: u64, reason: &RespError) {
        let mut link = self.lock();
        if link.epoch == epoch && link.connection.take().is_some() {
            link.confirming = None;
            link.reason = unreachable(reason);
            self.up.send_replace(false);
        }
    }

    /// The outcome of a call that failed, unless the owner takes the call.
    pub(super) fn failed(&self, call: Box<Call>, failed: &RespError) -> Option<Report> {
        match Failure::of(failed, &call.request.command.semaphore) {
            Failure::Store(error) => Some(outcome(&call, Err(error))),
            elsewhere => self.owner.redirected(call, elsewhere),
        }
    }
}

pub(super) fn unreachable(reason: &RespError) -> StoreError {
    StoreError::Unreachable { reason: error::text(reason) }
}

pub(super) fn outcome(call: &Call, result: Result<Executed, StoreError>) -> Report {
    Report::Outcome { id: call.request.id, result }
}

/// The arrivals of one connection.
struct Incoming<O> {
    shared: Arc<Shared<O>>,
    epoch: u64,
}

impl<O: Owner> Receiver for Incoming<O> {
    fn receive(&self, arrival: Arrival, reports: &mut Vec<Report>) {
        let shared = &self.shared;
        match arrival {
            Arrival::Outcome(call, Ok(value)) => {
                let result = self.on_reply(&call, value);
                reports.push(outcome(&call, result));
            }
            Arrival::Outcome(call, Err(failed)) => reports.extend(self.on_error(call, &failed)),
            // A message of a connection that is not in use is dropped. Once connected, the session renews
            // everything with fresh leases, so it does not deliver a grant that ends soon.
            Arrival::Message(_) if shared.lock().epoch != self.epoch => {}
            Arrival::Message(payload) => self.on_message(&payload, reports),
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

    fn hand_on(&self, reports: &mut Vec<Report>) {
        let is_reply = |report: &Report| matches!(report, Report::Outcome { result: Ok(_), .. });
        if reports.iter().any(is_reply) {
            self.shared.lock().served = true;
        }
        self.shared.owner.report(reports);
    }
}

impl<O: Owner> Incoming<O> {
    fn on_message(&self, payload: &[u8], reports: &mut Vec<Report>) {
        if let Some(semaphore) = codec::decode_recall(payload) {
            return reports.push(Report::Recall(semaphore));
        }
        match codec::decode_message(&self.shared.config.session, payload) {
            Ok(events) => reports.extend(events.into_iter().map(Report::Event)),
            Err(malformed) => events::malformed_message(&malformed.0),
        }
    }

    fn on_reply(&self, call: &Call, value: Value) -> Result<Executed, StoreError> {
        let shared = &self.shared;
        match shared.wire.decode(value, &call.request.command) {
            Ok(reply) => Ok(Executed { reply, confirmed: 0 }),
            Err(Malformed(reason)) => {
                // The reply may belong to another call, and so may all later replies. The next connection is
                // made after a pause if this one was short: see `maintain`.
                shared.replace(self.epoch, &reason);
                Err(StoreError::Malformed { reason })
            }
        }
    }

    fn on_error(&self, mut call: Box<Call>, failed: &RespError) -> Option<Report> {
        let shared = &self.shared;
        if error::is_no_script(failed) {
            // The server has lost the script. What was sent meanwhile is executed before it.
            let mut link = shared.lock();
            call.as_text = true;
            let id = call.request.id;
            let sent = shared.send_on(&mut link, call, Vec::new());
            return sent.err().map(|reason| Report::Outcome { id, result: Err(unreachable(&reason)) });
        }
        if error::needs_reconnect(failed) {
            shared.replace(self.epoch, &error::text(failed));
        }
        shared.failed(call, failed)
    }

    /// The subscription to a channel was refused.
    fn on_refusal(&self, channel: &str, refusal: &RespError) {
        let shared = &self.shared;
        let has_moved = refusal.redirect_node().is_some() || error::of_listing(refusal).is_temporary();
        if has_moved {
            shared.lock().channels.remove(channel);
            shared.owner.channels_lost(&[channel.to_owned()]);
        } else {
            // The next connection's subscription fails with this error, which the session reports.
            shared.replace(self.epoch, &error::text(refusal));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;
    use crate::address::Address;
    use crate::protocol::{Command, Declaration, Name, Operation, Recovery, SessionId};
    use crate::script::Scripts;
    use crate::sentinel::Endpoint;
    use permits_store::{Request, Sink, StoreOptions};

    /// Keeps the reports.
    #[derive(Default)]
    struct Keeper(Mutex<Vec<Report>>);

    impl Owner for Arc<Keeper> {
        fn report(&self, reports: &mut Vec<Report>) {
            self.0.lock().expect("no panic").append(reports);
        }

        fn redirected(&self, _call: Box<Call>, _failure: Failure) -> Option<Report> {
            None
        }

        fn channels_lost(&self, _: &[String]) {}
    }

    impl Sink for Keeper {
        fn report(&self, _reports: &mut Vec<Report>) {}
    }

    fn shared(owner: &Arc<Keeper>, replaces: bool) -> Arc<Shared<Arc<Keeper>>> {
        shared_to("127.0.0.1:1", owner, replaces)
    }

    fn shared_to(server: &str, owner: &Arc<Keeper>, replaces: bool) -> Arc<Shared<Arc<Keeper>>> {
        let session = SessionId::new("session").expect("it is plain");
        let (lease, sink) = (Duration::from_secs(15), Arc::<Keeper>::default());
        let options = StoreOptions { session, prefix: "p".into(), lease, sink };
        let Ok((Address::Server(server), _)) = Address::parse(&format!("redis://{server}")) else {
            panic!("a server")
        };
        let config = ConnectConfig::new(Endpoint::Server(Box::new(server)), None, &options);
        let wire = Wire { scripts: Scripts::new(false), prefix: "p".into(), sharded: false };
        Shared::new(config, Arc::new(wire), owner.clone(), replaces)
    }

    #[tokio::test]
    async fn a_server_counts_as_new_in_the_place_of_another_one_only() {
        for replaces in [false, true] {
            let shared = shared(&Arc::default(), replaces);
            let mut link = shared.lock();
            link.meet("first".into());
            assert_eq!(link.known_for().is_some(), replaces);
            let since = link.known_for();
            link.meet("first".into());
            assert!(
                link.known_for() >= since && link.known_for().is_some() == replaces,
                "it has reconnected"
            );
            link.meet("second".into());
            assert!(link.known_for().is_some());
        }
    }

    #[tokio::test]
    async fn a_message_of_an_earlier_connection_is_not_believed() {
        let owner = Arc::<Keeper>::default();
        let shared = shared(&owner, false);
        shared.lock().epoch = 2;
        for (epoch, believed) in [(1, 0), (2, 1)] {
            let granted = b"1 exports\ngranted session.1 7 0 holder".to_vec();
            let mut reports = Vec::new();
            Incoming { shared: shared.clone(), epoch }.receive(Arrival::Message(granted), &mut reports);
            assert_eq!(reports.len(), believed, "{reports:?}");
        }
    }

    /// A server that answers the login of one connection, and closes it with the last reply.
    async fn closes_after_login(listener: TcpListener) {
        let info = "redis_version:7.0.0";
        let replies = format!("+OK\r\n${}\r\n{info}\r\n$0\r\n\r\n*0\r\n$-1\r\n$-1\r\n$-1\r\n", info.len());
        let (mut stream, _) = listener.accept().await.expect("it connects");
        let mut read = Vec::new();
        while String::from_utf8_lossy(&read).matches("EVALSHA").count() < 3 || !read.ends_with(b"\r\n0\r\n") {
            assert!(stream.read_buf(&mut read).await.expect("it can be read") > 0, "it logs in");
        }
        stream.write_all(replies.as_bytes()).await.expect("it can be written");
    }

    /// The connection ends before it can be seen, so the call is in the hands of no connection.
    #[tokio::test]
    async fn a_call_that_waits_for_a_connection_which_ends_at_once_has_an_outcome() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound").to_string();
        let owner = Arc::<Keeper>::default();
        let shared = shared_to(&address, &owner, false);
        let command = Command {
            semaphore: Name::new("exports").expect("valid"),
            session: shared.config.session.clone(),
            lease_ms: 15_000,
            recovery: Recovery::Off,
            declaration: Declaration::Stored,
            operation: Operation::Renew(Vec::new()),
        };
        let call = Call::new(Request { id: 7, command, timeout: Duration::from_secs(300), replicas: 0 });
        shared.lock().waiting.push_back(Waiting { call, channels: Vec::new() });
        let (connected, ()) = tokio::join!(shared.connect(), closes_after_login(listener));
        connected.expect("the login was answered");
        let connection = shared.lock().connection.clone();
        if let Some(connection) = connection {
            connection.ended().await;
        }
        let reports = std::mem::take(&mut *owner.0.lock().expect("no panic"));
        let [Report::Outcome { id: 7, result: Err(StoreError::Unreachable { .. }) }] = &reports[..] else {
            panic!("not one outcome: {reports:?}")
        };
    }
}
