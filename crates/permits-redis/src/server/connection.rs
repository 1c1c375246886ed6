//! A connection. The thread of a caller encodes a command and writes it to the socket, without blocking; one
//! task reads.
//!
//! Commands are written in the order in which they are sent, and the server replies in this order, so a queue
//! of what is expected gives each reply its meaning. Messages come as RESP3 pushes on the same connection; so
//! do the confirmations of subscriptions, in the order of the replies. The task takes all replies and
//! messages that one read brings, and hands them over together.
//!
//! If the socket does not take all bytes, the rest stays in a buffer, and the task writes it when the socket
//! has room. [`Connection::is_full`] bounds that buffer.
//!
//! A connection ends once: by the other side, by a call or a ping without a reply in time, by a reply that is
//! not in the protocol, or by [`Connection::end`]. Each call that is in flight then gets its outcome, exactly
//! once.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::parting;
use super::reader::Reader;
use super::state::{Purpose, Receiver, Shared, Times, closed};
use super::stream::{Readable, Writable};
use crate::call::{Call, Wire};
use crate::protocol::Operation;
use crate::resp::{Cmd, FromValue, RespError, RespResult, Value, cmd};
use crate::timing::PROBE_TIMEOUT;

/// A connection to a server. Cheap to clone. It ends when the last clone is dropped.
#[derive(Clone)]
pub(crate) struct Connection {
    handle: Arc<Handle>,
}

/// The part that callers share. The task has the rest.
struct Handle(Arc<Shared>);

impl Connection {
    /// A connection over a stream. Must be called on a runtime, which runs the connection's task.
    pub(super) fn start(
        (readable, writable): (Readable, Writable),
        times: Times,
        receiver: impl Receiver,
    ) -> Self {
        let shared = Arc::new(Shared::new(writable, times));
        tokio::spawn(Reader::new(readable, shared.clone(), receiver).run());
        Self { handle: Arc::new(Handle(shared)) }
    }

    fn shared(&self) -> &Shared {
        &self.handle.0
    }

    /// Sends a call. Its outcome arrives at the receiver. Fails with the reason if the connection has ended.
    pub(crate) fn call(&self, call: Box<Call>, wire: &Wire) -> RespResult<()> {
        let shared = self.shared();
        let command = wire.encode(&call, call.as_text);
        let mut state = shared.lock();
        if let Some(reason) = state.refusal() {
            return Err(reason);
        }
        let timeout = Some(call.request.timeout);
        if call.asking {
            state.push(&cmd("ASKING"), Purpose::Nothing, timeout);
        }
        let is_release = matches!(call.request.command.operation, Operation::Release(_));
        state.push(&command, Purpose::Call(call), timeout);
        shared.write(&mut state);
        let number = state.sent;
        drop(state);
        if is_release {
            parting::note(&self.handle.0, number);
        }
        Ok(())
    }

    /// Subscribes to a channel. Its messages arrive at the receiver, and so does a refusal.
    pub(crate) fn subscribe(&self, subscription: &Cmd, channel: &str) {
        self.send_one(subscription, Purpose::Subscription(channel.to_owned()), None);
    }

    /// Ends the subscription to a channel.
    pub(crate) fn unsubscribe(&self, end: &Cmd) {
        self.send_one(end, Purpose::Nothing, None);
    }

    /// Sends a ping, which ends the connection if no reply comes soon.
    pub(crate) fn probe(&self) {
        self.send_one(&cmd("PING"), Purpose::Ping, Some(PROBE_TIMEOUT));
    }

    fn send_one(&self, command: &Cmd, purpose: Purpose, timeout: Option<Duration>) {
        let shared = self.shared();
        let mut state = shared.lock();
        if state.refusal().is_none() {
            state.push(command, purpose, timeout);
            shared.write(&mut state);
        }
    }

    /// The reply to one command.
    pub(crate) async fn query<T: FromValue>(&self, command: &Cmd) -> RespResult<T> {
        let mut replies = self.query_all(std::slice::from_ref(command)).await;
        let reply = replies.pop().unwrap_or_else(|| Err(closed()));
        T::from_value(reply?)
    }

    /// The replies to commands, which are sent together. A subscription's reply is its confirmation.
    pub(crate) async fn query_all(&self, commands: &[Cmd]) -> Vec<RespResult<Value>> {
        self.shared().query_all(commands).await
    }

    /// The state that the connection shares with its task. Holding it does not keep the connection open.
    pub(super) fn state(&self) -> Arc<Shared> {
        self.handle.0.clone()
    }

    /// Returns true if the socket has not taken much of what was sent.
    pub(crate) fn is_full(&self) -> bool {
        self.shared().is_full()
    }

    /// Ends the connection.
    pub(crate) fn end(&self, reason: &str) {
        self.shared().end(io::Error::other(reason).into());
    }

    /// Waits for the end of the connection. All calls have their outcomes then.
    pub(crate) async fn ended(&self) -> RespError {
        self.shared().ended().await
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.end(closed());
    }
}
