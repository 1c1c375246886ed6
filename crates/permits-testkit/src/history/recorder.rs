//! A listener to the commands that a server executes.
//!
//! A thread subscribes and collects, over restarts of the server. A message that was published before a
//! server died waits in the socket and is read first. The list in which the scripts keep their last records
//! has those that the server did not send, and those from before the thread was back, as far as the server
//! has kept the state. So no record is missing in between.
//!
//! Redis publishes a message to a replica's listeners, too, and in a cluster to those of all nodes. So with
//! one recorder at each server the same record arrives several times, and [`merge`] makes one history of all.

use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use permits::store::redis::testing::CHANNEL;

use super::Record;
use crate::resp::{Connection, Resp};
use crate::server::Server;
use crate::server::launch::Access;
use crate::wait;

/// The pause before the next attempt to reach a server that is down.
const PAUSE: Duration = Duration::from_millis(5);

/// The beginning of the recorder's own messages: records begin with a digit.
const MARK: &str = "mark ";

/// The commands of a server, recorded while its clients [record](super::record).
///
/// The record is whole only if all clients of the server record.
#[derive(Debug)]
pub struct Recorder {
    access: Access,
    shared: Arc<Shared>,
    marks: AtomicU64,
}

#[derive(Debug, Default)]
struct Shared {
    heard: Mutex<Heard>,
    ended: AtomicBool,
}

/// The messages so far.
#[derive(Debug, Default)]
struct Heard {
    messages: Vec<String>,
    /// The messages as a set, to recognize those that are both in the list and published. No two are equal,
    /// because each has its time.
    known: HashSet<String>,
    last_mark: String,
    is_listening: bool,
}

impl Recorder {
    /// The name of its connection, in `CLIENT LIST`. A test that kills connections may spare it by that.
    pub const NAME: &str = "permits-recorder";

    /// Begins to listen to this server; returns when the subscription stands.
    ///
    /// # Panics
    ///
    /// If the server cannot be listened to.
    #[track_caller]
    pub fn listen(server: &Server) -> Self {
        let recorder = Self { access: server.access(), shared: Arc::default(), marks: AtomicU64::default() };
        let directory = server.dir().canonicalize().expect("a server has a directory");
        thread::spawn({
            let (access, shared) = (recorder.access.clone(), recorder.shared.clone());
            move || {
                while !shared.ended.load(Ordering::Relaxed) {
                    // The server is down, or not yet up: retry.
                    let _ = listen(&access, &directory, &shared);
                    shared.heard().is_listening = false;
                    thread::sleep(PAUSE);
                }
            }
        });
        let listening = wait::until(|| recorder.shared.heard().is_listening);
        assert!(listening, "the server has no listener; its log:\n{}", server.log());
        recorder
    }

    /// All commands that were executed so far, in their order. A mark that the server publishes shows that no
    /// record is on its way; a server that is down has published all.
    ///
    /// # Panics
    ///
    /// If the server is paused, or a record cannot be read.
    #[track_caller]
    pub fn records(&self) -> Vec<Record> {
        match self.access.connect() {
            Ok(connection) => self.hear_all(connection),
            Err(_) => {
                let over = wait::until(|| !self.shared.heard().is_listening);
                assert!(over, "the server cannot be reached, and its connection is open");
            }
        }
        let heard = self.shared.heard();
        let read = |message: &String| Record::read(message.as_bytes());
        heard.messages.iter().map(|message| read(message).unwrap_or_else(|error| panic!("{error}"))).collect()
    }

    /// Waits until a mark that is published now arrives.
    #[track_caller]
    fn hear_all(&self, mut connection: Connection) {
        let mark = format!("{MARK}{}", self.marks.fetch_add(1, Ordering::Relaxed));
        let heard = wait::until(|| {
            // Repeated, because the thread may be about to subscribe again.
            let published = connection.call(&["PUBLISH", CHANNEL, &mark]);
            assert!(matches!(published, Ok(Resp::Int(_))), "the server takes no message: {published:?}");
            self.shared.heard().last_mark == mark
        });
        assert!(heard, "the server is up, and is not heard");
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // The thread notices at the next end of its connection.
        self.shared.ended.store(true, Ordering::Relaxed);
    }
}

impl Shared {
    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Heard {
    fn take(&mut self, message: &str) {
        if message.starts_with(MARK) {
            message.clone_into(&mut self.last_mark);
        } else if self.known.insert(message.to_owned()) {
            self.messages.push(message.to_owned());
        }
    }
}

/// Listens until the connection ends.
fn listen(access: &Access, directory: &Path, shared: &Shared) -> io::Result<()> {
    let mut connection = access.connect()?;
    // While the server is down, another server may have its port.
    let reply = connection.call(&["CONFIG", "GET", "dir"])?;
    if !matches!(&reply, Resp::Array(pair) if pair.last() == Some(&Resp::Text(directory.display().to_string())))
    {
        return Err(io::Error::other(format!("another server: {reply:?}")));
    }
    connection.call(&["CLIENT", "SETNAME", Recorder::NAME])?;
    connection.call(&["SUBSCRIBE", CHANNEL])?;
    // After the subscription, so that a record from in between is in both.
    let kept = match access.connect()?.call(&["LRANGE", CHANNEL, "0", "-1"])? {
        Resp::Array(kept) => kept,
        // A node of a cluster, which keeps no list.
        Resp::Error(error) if error.starts_with("MOVED ") || error.starts_with("CLUSTERDOWN ") => Vec::new(),
        other => return Err(io::Error::other(format!("no list: {other:?}"))),
    };
    {
        let mut heard = shared.heard();
        kept.iter().for_each(|message| heard.take(message.text()));
        heard.is_listening = true;
    }
    while !shared.ended.load(Ordering::Relaxed) {
        if connection.has_more()? {
            let message = connection.receive()?;
            if let Some(Resp::Text(text)) = message.array().get(2) {
                shared.heard().take(text);
            }
        }
    }
    Ok(())
}

/// One history of the records of several servers of this host: the members of a cluster, or a primary and its
/// replicas.
///
/// Ordered by the clock of this host, which is the order of execution unless the clock is set back.
pub fn merge(histories: impl IntoIterator<Item = Vec<Record>>) -> Vec<Record> {
    let mut all: Vec<Record> = histories.into_iter().flatten().collect();
    all.sort_by_key(|record| record.now_us);
    let mut known = HashSet::new();
    all.retain(|record| known.insert((record.semaphore.clone(), record.run_id.clone(), record.now_us)));
    all
}
