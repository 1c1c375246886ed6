//! A connection that is subscribed to channels: it delivers messages, in order, until it ends.
//!
//! It speaks RESP3, which distinguishes messages from replies. The messages end with the connection, and also when
//! messages may have been missed: the server ended a subscription by itself (the hash slot has moved to another node),
//! or the buffer was full. The connection is then replaced, and the session renews everything.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, PushInfo, PushKind, RedisResult, Value};
use tokio::sync::mpsc;

use crate::store::redis::address::Server;

/// The most messages that are buffered until they are read.
const BUFFER: usize = 4096;

/// The payloads of messages, in the order of their arrival.
pub(crate) type Messages = mpsc::Receiver<Vec<u8>>;

/// A connection that is subscribed to channels. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Subscriber {
    connection: MultiplexedConnection,
    sharded: bool,
    subscribed: Arc<Mutex<BTreeSet<String>>>,
}

impl Subscriber {
    /// Connects, without a subscription. In a cluster the channels are `sharded`: they belong to a hash slot, as keys do.
    pub(crate) async fn connect(server: &Server, sharded: bool) -> RedisResult<(Self, Messages)> {
        let (sender, messages) = mpsc::channel(BUFFER);
        let subscribed = Arc::new(Mutex::new(BTreeSet::new()));
        let receiving = Receiving { sender: Mutex::new(Some(sender)), subscribed: subscribed.clone() };
        // Callers set the timeouts.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_push_sender(move |push: PushInfo| receiving.take(push));
        let connection = server.pushing()?.get_multiplexed_async_connection_with_config(&config).await?;
        Ok((Self { connection, sharded, subscribed }, messages))
    }

    /// Subscribes to another channel.
    pub(crate) async fn subscribe(&mut self, channel: &str) -> RedisResult<()> {
        lock(&self.subscribed).insert(channel.to_owned());
        let verb = if self.sharded { "SSUBSCRIBE" } else { "SUBSCRIBE" };
        redis::cmd(verb).arg(channel).exec_async(&mut self.connection).await
    }

    /// Ends the subscription to a channel.
    pub(super) fn unsubscribe(&self, channel: &str) {
        lock(&self.subscribed).remove(channel);
        let verb = if self.sharded { "SUNSUBSCRIBE" } else { "UNSUBSCRIBE" };
        let (mut connection, channel) = (self.connection.clone(), channel.to_owned());
        tokio::spawn(async move {
            // It fails only if the connection has failed.
            let _ = redis::cmd(verb).arg(&channel).exec_async(&mut connection).await;
        });
    }

    pub(crate) async fn ping(&mut self) -> RedisResult<()> {
        redis::cmd("PING").exec_async(&mut self.connection).await
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The receiver of the server's pushes, called by the connection's own task.
struct Receiving {
    /// Dropped at the end, which ends the messages.
    sender: Mutex<Option<mpsc::Sender<Vec<u8>>>>,
    subscribed: Arc<Mutex<BTreeSet<String>>>,
}

impl Receiving {
    /// Never waits, since that would block the connection.
    fn take(&self, push: PushInfo) -> Result<(), redis::aio::SendError> {
        let mut data = push.data.into_iter();
        let mut sender = lock(&self.sender);
        let is_complete = match push.kind {
            PushKind::Message | PushKind::SMessage => match (&*sender, data.nth(1)) {
                (Some(sender), Some(Value::BulkString(payload))) => sender.try_send(payload).is_ok(),
                _ => true,
            },
            PushKind::Unsubscribe | PushKind::SUnsubscribe => match data.next() {
                Some(Value::BulkString(channel)) => {
                    !lock(&self.subscribed).contains(&*String::from_utf8_lossy(&channel))
                }
                _ => true,
            },
            PushKind::Disconnection => false,
            _ => true,
        };
        if !is_complete {
            *sender = None;
        }
        Ok(())
    }
}
