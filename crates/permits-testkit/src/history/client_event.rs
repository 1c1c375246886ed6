//! Events of a client, recorded by the one clock of this host. A client in a process of its own reports them
//! as lines of its standard output.
//!
//! A line of an event begins with a mark, because a test harness prints to the same output.

use std::fmt;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::sync::OnceLock;
use std::time::Duration;

use permits::Change;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::worker::Counts;

/// The beginning of each line.
const MARK: &str = "@";

/// An event of one acquisition, or (with the tag `-`) of the client itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientRecord {
    /// The time, by [`now`].
    pub at: u64,
    /// The acquisition, among those of its client.
    pub tag: String,
    /// The event.
    pub event: ClientEvent,
}

/// An event that a client sees.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClientEvent {
    /// The client has connected.
    Connected,
    /// A request is about to be sent.
    Asked {
        /// The units that it asks for.
        weight: u32,
    },
    /// The request that was asked is in a lane.
    InLane {
        /// The lane.
        lane: String,
        /// The most units that the requests of the lane may hold.
        limit: u32,
    },
    /// The request that was asked is in the line of this semaphore, as one of a set or alone. Without this
    /// event the request is in the line of the workers' semaphore.
    InLine(String),
    /// An observer of the store saw the request in the queue.
    Enqueued,
    /// An observer of the store saw the request in the queue for the last time. It waited until then.
    Waiting,
    /// The acquisition returned a permit.
    Acquired {
        /// The fencing token.
        token: u64,
        /// The slot.
        slot: u32,
        /// The deadline that it states, by [`now`].
        until: u64,
        /// The client itself granted the permit, from those that it kept.
        again: bool,
    },
    /// The permit said before a step of the work that it is held.
    Held {
        /// The deadline that it states, by [`now`].
        until: u64,
    },
    /// The permit said before a step of the work that it is not held.
    NotHeld,
    /// The fenced resource refused a write of a holder that held before and after the write.
    Rejected,
    /// The permit signalled its loss.
    Lost(String),
    /// The release is about to be called.
    Releasing,
    /// The release has returned.
    Released(Result<(), String>),
    /// The request ended by its timeout, or was cancelled.
    GaveUp(String),
    /// The request, or another operation, has failed.
    Failed(String),
    /// All loops have ended.
    Stopped(Counts),
    /// The close of the client has returned.
    Closed(Result<(), String>),
    /// The client's process has been killed.
    Killed,
    /// An operator is about to make a change.
    Changing(Change),
    /// The change has returned.
    Changed(Result<(), String>),
    /// A fault begins: the name of its row.
    Fault(String),
}

#[cfg(target_os = "linux")]
const CLOCK: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const CLOCK: ClockId = ClockId::Monotonic;

/// Microseconds by a clock that all processes of this host share, and that runs on while they are paused.
pub fn now() -> u64 {
    let time = clock_gettime(CLOCK);
    let (seconds, nanoseconds) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
    seconds.expect("the clock began at 0") * 1_000_000 + nanoseconds.expect("it counts upwards") / 1000
}

/// The time now, and the deadline of a permit with `remaining` time: never later than the permit's own
/// deadline, because the clock is read first.
pub fn deadline(remaining: impl FnOnce() -> Duration) -> (u64, u64) {
    let at = now();
    (at, at + u64::try_from(remaining().as_micros()).expect("a lease is at most a day"))
}

/// Reports `event` as happening now.
pub fn report(tag: &str, event: ClientEvent) {
    report_at(now(), tag, event);
}

/// Reports that `event` happened at `at`.
///
/// The line is one write past the lock and the buffer of standard output, because a worker killed in the
/// middle must leave no half line, and because a forked child finds that lock as a thread of its parent had
/// it.
pub fn report_at(at: u64, tag: &str, event: ClientEvent) {
    static OUTPUT: OnceLock<Option<File>> = OnceLock::new();
    let output =
        OUTPUT.get_or_init(|| Some(File::from(std::io::stdout().as_fd().try_clone_to_owned().ok()?)));
    let record = ClientRecord { at, tag: tag.to_owned(), event };
    if let Some(mut output) = output.as_ref() {
        // Ignore the error: the test that read the lines is over.
        let _ = output.write_all(record.line().as_bytes());
    }
}

impl fmt::Display for ClientRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, tag, event } = self;
        write!(f, "{at} {tag} {event:?}")
    }
}

impl ClientRecord {
    fn line(&self) -> String {
        format!("{MARK}{}\n", serde_json::to_string(self).expect("a record has a form"))
    }

    /// Reads a line of [`report`]; `None` if it is another line.
    pub fn parse(line: &str) -> Option<Self> {
        serde_json::from_str(line.strip_prefix(MARK)?).ok()
    }
}
