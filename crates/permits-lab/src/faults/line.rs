//! Who stands in line, seen from outside, so that overtaking is found (P6).
//!
//! Whoever was seen in line before another asked has to be granted first. One that is seen with two tickets has left
//! the line in between and come back: nothing is said of it then.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use permits_testkit::history::{ClientEvent, ClientRecord, now};
use permits_testkit::{Resp, Server};

use super::stage::key;
use super::worker;

/// How often the line is looked at.
const INTERVAL: Duration = Duration::from_millis(40);

/// Looks at the line until told to stop.
pub(crate) struct Watch {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<HashMap<String, Seen>>,
}

/// When somebody was first seen in line, with which ticket; `None` if there were two.
struct Seen {
    at: u64,
    ticket: Option<String>,
}

impl Watch {
    /// Begins to look at the line of a server that does not restart.
    pub(crate) fn start(server: &Server) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut connection = server.connect().expect("the server is up");
        let stopping = stop.clone();
        let thread = thread::spawn(move || {
            let mut seen: HashMap<String, Seen> = HashMap::new();
            while !stopping.load(Ordering::Relaxed) {
                let reply = connection.call(&["ZRANGE", &key("queue"), "0", "-1", "WITHSCORES"]);
                let Ok(Resp::Array(line)) = reply else { break };
                let at = now();
                let (pairs, _) = line.as_chunks::<2>();
                for [holder, ticket] in pairs {
                    let ticket = ticket.text();
                    let fresh = || Seen { at, ticket: Some(ticket.to_owned()) };
                    let seen = seen.entry(holder.text().to_owned()).or_insert_with(fresh);
                    seen.ticket.take_if(|first| first != ticket);
                }
                thread::sleep(INTERVAL);
            }
            seen
        });
        Self { stop, thread }
    }

    /// What was seen.
    pub(crate) fn stop(self) -> Vec<(usize, ClientRecord)> {
        self.stop.store(true, Ordering::Relaxed);
        let seen = self.thread.join().expect("it does not panic");
        let once = seen.into_iter().filter(|(_, seen)| seen.ticket.is_some());
        once.filter_map(|(holder, Seen { at, .. })| {
            let (number, tag) = worker::of_holder(&holder)?;
            Some((number, ClientRecord { at, tag, event: ClientEvent::Enqueued }))
        })
        .collect()
    }
}
