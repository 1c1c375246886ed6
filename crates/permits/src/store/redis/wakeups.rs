//! A connection that listens: messages come in, in order, until it ends.
//!
//! It speaks RESP3, which tells a message from a reply. Its end is the end of the messages, and so is whatever
//! makes it unsure that all of them arrive: the server has stopped a subscription by itself (the slot has moved
//! to another node), or more came than fits. Then it is replaced, and everything is asked for again.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, PushInfo, PushKind, RedisResult, Value};
use tokio::sync::mpsc;

use super::address::Server;

/// How many messages may wait to be read.
const WAITING: usize = 4096;

/// The payloads of messages, as they come.
pub(crate) type Messages = mpsc::Receiver<Vec<u8>>;

/// A connection that listens to channels. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Wakeups {
    connection: MultiplexedConnection,
    sharded: bool,
    listened: Arc<Mutex<BTreeSet<String>>>,
}

impl Wakeups {
    /// Connects, listening to nothing yet. In a cluster the channels are `sharded`: they live in a slot, as keys do.
    pub(crate) async fn connect(server: &Server, sharded: bool) -> RedisResult<(Self, Messages)> {
        let (sender, messages) = mpsc::channel(WAITING);
        let listened = Arc::new(Mutex::new(BTreeSet::new()));
        let receiving = Receiving { sender: Mutex::new(Some(sender)), listened: listened.clone() };
        // Timeout is the caller's business.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_push_sender(move |push: PushInfo| receiving.take(push));
        let connection = server.pushing()?.get_multiplexed_async_connection_with_config(&config).await?;
        Ok((Self { connection, sharded, listened }, messages))
    }

    /// Listens to another channel.
    pub(crate) async fn listen(&mut self, channel: &str) -> RedisResult<()> {
        lock(&self.listened).insert(channel.to_owned());
        let verb = if self.sharded { "SSUBSCRIBE" } else { "SUBSCRIBE" };
        redis::cmd(verb).arg(channel).exec_async(&mut self.connection).await
    }

    /// Asks for an end of the messages on a channel.
    pub(super) fn ignore(&self, channel: &str) {
        lock(&self.listened).remove(channel);
        let verb = if self.sharded { "SUNSUBSCRIBE" } else { "UNSUBSCRIBE" };
        let (mut connection, channel) = (self.connection.clone(), channel.to_owned());
        tokio::spawn(async move {
            // If it fails, so has the connection.
            let _ = redis::cmd(verb).arg(&channel).exec_async(&mut connection).await;
        });
    }

    pub(super) async fn ping(&mut self) -> RedisResult<()> {
        redis::cmd("PING").exec_async(&mut self.connection).await
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the connection's own task does with what the server pushes.
struct Receiving {
    /// Dropped at the end.
    sender: Mutex<Option<mpsc::Sender<Vec<u8>>>>,
    listened: Arc<Mutex<BTreeSet<String>>>,
}

impl Receiving {
    /// Never waits: it would hold up the connection.
    fn take(&self, push: PushInfo) -> Result<(), redis::aio::SendError> {
        let mut data = push.data.into_iter();
        let mut sender = lock(&self.sender);
        let goes_on = match push.kind {
            PushKind::Message | PushKind::SMessage => match (&*sender, data.nth(1)) {
                (Some(sender), Some(Value::BulkString(payload))) => sender.try_send(payload).is_ok(),
                _ => true,
            },
            PushKind::Unsubscribe | PushKind::SUnsubscribe => match data.next() {
                Some(Value::BulkString(channel)) => {
                    !lock(&self.listened).contains(&*String::from_utf8_lossy(&channel))
                }
                _ => true,
            },
            PushKind::Disconnection => false,
            _ => true,
        };
        if !goes_on {
            *sender = None;
        }
        Ok(())
    }
}
