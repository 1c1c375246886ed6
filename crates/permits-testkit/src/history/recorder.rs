//! Listens to the commands that a server executes.
//!
//! A thread subscribes and collects; it holds on to the server over restarts. What was published before a server
//! died waits in the socket and is read first. What the server did not come to send, and what it did before the
//! thread returned, is in the list where the scripts keep their last records, as far as the server has kept the state
//! that it is of. So nothing is missing in between.
//!
//! Redis publishes a message to a replica's listeners, too, and in a cluster to those of all nodes. So with one
//! recorder at each server the same record is heard several times, and [`merge`] makes one history of all.

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

/// How long the server may take to tell all.
const LIMIT: Duration = Duration::from_secs(30);

/// Before the next attempt to reach a server that is down.
const PAUSE: Duration = Duration::from_millis(5);

/// What the messages begin with that are none of the scripts': their records begin with a digit.
const MARK: &str = "mark ";

/// What a server did while its clients recorded.
///
/// Only commands of clients that [record](super::record) are told of: they must be all that use the server.
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

/// What was heard so far.
#[derive(Debug, Default)]
struct Heard {
    messages: Vec<String>,
    /// The same, to know what is in the list and was published, too. No two are equal: the time is in them.
    known: HashSet<String>,
    last_mark: String,
    is_listening: bool,
}

impl Recorder {
    /// The name of its connection, by `CLIENT LIST`: a test that kills connections may want to spare it.
    pub const NAME: &str = "permits-recorder";

    /// Begins to listen to this server; returns when it does.
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
                    // Down, or not yet up: there is nothing to do but to try again.
                    let _ = listen(&access, &directory, &shared);
                    shared.heard().is_listening = false;
                    thread::sleep(PAUSE);
                }
            }
        });
        let listening = wait::until(LIMIT, || recorder.shared.heard().is_listening);
        assert!(listening, "nobody can listen to the server; its log:\n{}", server.log());
        recorder
    }

    /// All commands that were executed so far, in their order. The server is asked to be sure that none is on its
    /// way; one that is down has told all.
    ///
    /// # Panics
    ///
    /// If the server is paused, or what it told cannot be read.
    #[track_caller]
    pub fn records(&self) -> Vec<Record> {
        match self.access.connect() {
            Ok(connection) => self.hear_all(connection),
            Err(_) => {
                let over = wait::until(LIMIT, || !self.shared.heard().is_listening);
                assert!(over, "the server cannot be reached, and its connection is open");
            }
        }
        let heard = self.shared.heard();
        let read = |message: &String| Record::read(message.as_bytes());
        heard.messages.iter().map(|message| read(message).unwrap_or_else(|error| panic!("{error}"))).collect()
    }

    /// Waits until something is heard that was said just now.
    #[track_caller]
    fn hear_all(&self, mut connection: Connection) {
        let mark = format!("{MARK}{}", self.marks.fetch_add(1, Ordering::Relaxed));
        let heard = wait::until(LIMIT, || {
            // Again and again: it may be about to listen again.
            let published = connection.call(&["PUBLISH", CHANNEL, &mark]);
            assert!(matches!(published, Ok(Resp::Int(_))), "the server takes no message: {published:?}");
            self.shared.heard().last_mark == mark
        });
        assert!(heard, "the server is up, and is not heard");
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // The thread sees it when the server ends, if not before.
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
    // While the server is down its port may be another's.
    let told = connection.call(&["CONFIG", "GET", "dir"])?;
    if !matches!(&told, Resp::Array(pair) if pair.last() == Some(&Resp::Text(directory.display().to_string())))
    {
        return Err(io::Error::other(format!("a stranger, who is at {told:?}")));
    }
    connection.call(&["CLIENT", "SETNAME", Recorder::NAME])?;
    connection.call(&["SUBSCRIBE", CHANNEL])?;
    // Behind the subscription: what comes in between is in both.
    let kept = match access.connect()?.call(&["LRANGE", CHANNEL, "0", "-1"])? {
        Resp::Array(kept) => kept,
        // A node of a cluster, where nothing is kept.
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

/// One history of what several servers of this host told: the members of a cluster, or a primary and its replicas.
///
/// By the servers' clock, which is the same one for all of them, and stands for the order of execution as long as
/// nobody sets it back.
pub fn merge(histories: impl IntoIterator<Item = Vec<Record>>) -> Vec<Record> {
    let mut all: Vec<Record> = histories.into_iter().flatten().collect();
    all.sort_by_key(|record| record.now_us);
    let mut known = HashSet::new();
    all.retain(|record| known.insert((record.semaphore.clone(), record.run_id.clone(), record.now_us)));
    all
}
