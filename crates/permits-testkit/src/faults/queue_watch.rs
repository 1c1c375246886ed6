//! The queue, observed from outside, so that overtaking is found (P6).
//!
//! A request that was seen in the queue before another was sent has to be granted first. A request that is
//! seen with two tickets has left the queue in between and joined it again; it is left out.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::fixture::key;
use crate::history::{ClientEvent, ClientRecord, now};
use crate::worker::parse_holder;
use crate::{Resp, Server};

/// The time between two polls.
const INTERVAL: Duration = Duration::from_millis(40);

/// A thread that polls the queue.
pub(super) struct QueueWatch {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<HashMap<String, Seen>>,
}

/// The times of the first and of the last poll that saw a holder in the queue, and its ticket; `None` if it
/// had two. It was there after the first time, and before the last one.
struct Seen {
    first: u64,
    last: u64,
    ticket: Option<String>,
}

impl QueueWatch {
    /// Begins to poll the queue of a server that does not restart. The thread panics if it cannot.
    pub(super) fn start(server: &Server) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut connection = server.connect().expect("the server is up");
        let stopping = stop.clone();
        let thread = thread::spawn(move || {
            let mut seen: HashMap<String, Seen> = HashMap::new();
            while !stopping.load(Ordering::Relaxed) {
                let asked = now();
                let reply = connection.call(&["ZRANGE", &key("queue"), "0", "-1", "WITHSCORES"]);
                let Resp::Array(queue) = reply.expect("the server is up") else { panic!("it is a list") };
                let at = now();
                let (pairs, _) = queue.as_chunks::<2>();
                for [holder, ticket] in pairs {
                    let ticket = ticket.text();
                    let fresh = || Seen { first: at, last: at, ticket: Some(ticket.to_owned()) };
                    let seen = seen.entry(holder.text().to_owned()).or_insert_with(fresh);
                    seen.last = seen.last.max(asked);
                    seen.ticket.take_if(|first| first != ticket);
                }
                thread::sleep(INTERVAL);
            }
            seen
        });
        Self { stop, thread }
    }

    /// Ends the thread. Returns the requests that were seen.
    pub(super) fn stop(self) -> Vec<(usize, ClientRecord)> {
        self.stop.store(true, Ordering::Relaxed);
        let seen = self.thread.join().expect("it does not panic");
        let once = seen.into_iter().filter(|(_, seen)| seen.ticket.is_some());
        once.filter_map(|(holder, Seen { first, last, .. })| {
            let (number, tag) = parse_holder(&holder)?;
            let record = |at, event| (number, ClientRecord { at, tag: tag.to_owned(), event });
            Some([record(first, ClientEvent::Enqueued), record(last, ClientEvent::Waiting)])
        })
        .flatten()
        .collect()
    }
}
