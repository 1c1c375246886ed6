//! The events on standard output, written by a thread of their own: a program that does not read delays no release.

use std::io::{self, Write as _};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use permits::{Permit, PermitSet};
use serde::Serialize;
use tokio::sync::Notify;

use crate::report;
use crate::status::milliseconds;

/// The most lines that wait for a reader before changes of the position are left out.
const MAX_BEHIND: u64 = 16;

/// The longest wait for a reader that reads nothing, at the end.
const STUCK: Duration = Duration::from_millis(500);

/// A line of the protocol. Programs depend on it: events and fields may be added, never changed.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum Event<'a> {
    Waiting {
        name: &'a str,
        position: u64,
    },
    Granted {
        #[serde(flatten)]
        permit: PermitJson<'a>,
        remaining_ms: u64,
        also: Vec<PermitJson<'a>>,
    },
    Held {
        remaining_ms: u64,
    },
    Unsure {
        remaining_ms: u64,
    },
    Lost {
        name: Option<&'a str>,
        reason: &'a str,
    },
    Released {
        reason: &'a str,
    },
    Failed {
        exit_code: u8,
        reason: &'a str,
    },
}

/// A permit of [`Event::Granted`].
#[derive(Serialize)]
pub(super) struct PermitJson<'a> {
    name: &'a str,
    holder: &'a str,
    weight: u32,
    token: u64,
    slot: u32,
}

impl<'a> PermitJson<'a> {
    fn new(permit: &'a Permit) -> Self {
        Self {
            name: permit.semaphore(),
            holder: permit.holder(),
            weight: permit.weight(),
            token: permit.token(),
            slot: permit.slot(),
        }
    }
}

impl<'a> Event<'a> {
    /// The grant of all permits, that of `name` first.
    pub(super) fn granted(permits: &'a PermitSet, name: &str) -> Self {
        let (named, others): (Vec<_>, Vec<_>) =
            permits.permits().iter().partition(|permit| permit.semaphore() == name);
        Self::Granted {
            permit: PermitJson::new(named[0]),
            remaining_ms: milliseconds(permits.remaining()),
            also: others.into_iter().map(PermitJson::new).collect(),
        }
    }
}

/// Standard output.
pub(super) struct Output {
    lines: mpsc::Sender<String>,
    progress: Arc<Progress>,
}

#[derive(Default)]
struct Progress {
    /// Lines to write, from the start on.
    accepted: AtomicU64,
    /// Lines written.
    written: AtomicU64,
    has_failed: AtomicBool,
    failed: Notify,
}

impl Output {
    /// Starts the thread that writes.
    ///
    /// # Errors
    /// The system's error if it refuses a thread.
    pub(super) fn start() -> io::Result<Self> {
        let (lines, queue) = mpsc::channel();
        let progress = Arc::<Progress>::default();
        let of_thread = progress.clone();
        std::thread::Builder::new().name("stdout".into()).spawn(move || of_thread.write_all(&queue))?;
        Ok(Self { lines, progress })
    }

    /// Writes an event. Returns the number of its line, from 1.
    pub(super) fn write(&self, event: &Event<'_>) -> u64 {
        let line = serde_json::to_string(event).expect("an event has neither maps nor failing fields") + "\n";
        let number = self.progress.accepted.fetch_add(1, Ordering::SeqCst) + 1;
        // Fails if the thread has ended, which it does after it failed to write.
        let _ = self.lines.send(line);
        number
    }

    /// Writes an event that a later one replaces, unless the reader is behind. Returns true if it is written.
    pub(super) fn write_unless_behind(&self, event: &Event<'_>) -> bool {
        let (accepted, written) = self.progress.counts();
        let is_behind = accepted - written > MAX_BEHIND;
        if !is_behind {
            self.write(event);
        }
        !is_behind
    }

    /// Returns true if the line with this number was not written, and will never be.
    pub(super) fn has_failed_before(&self, number: u64) -> bool {
        self.progress.has_failed.load(Ordering::SeqCst) && self.progress.counts().1 < number
    }

    /// Waits until a line cannot be written. For one caller.
    pub(super) async fn failed(&self) {
        self.progress.failed.notified().await;
    }

    /// Waits until everything is written, as long as the reader reads something at least every [`STUCK`].
    pub(super) fn flush(self) {
        let Self { lines, progress } = self;
        drop(lines);
        let mut last = (progress.counts(), std::time::Instant::now());
        while !progress.is_done() && last.1.elapsed() < STUCK {
            std::thread::sleep(Duration::from_millis(1));
            if progress.counts() != last.0 {
                last = (progress.counts(), std::time::Instant::now());
            }
        }
    }
}

impl Progress {
    fn write_all(&self, queue: &mpsc::Receiver<String>) {
        // Not locked for the whole time: the end of the process flushes standard output.
        for line in queue {
            let mut stdout = io::stdout();
            if let Err(error) = stdout.write_all(line.as_bytes()).and_then(|()| stdout.flush()) {
                self.has_failed.store(true, Ordering::SeqCst);
                self.failed.notify_one();
                if error.kind() != io::ErrorKind::BrokenPipe {
                    report::say(format_args!("cannot write to standard output: {error}"));
                }
                return;
            }
            self.written.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// The lines accepted, and the lines written.
    fn counts(&self) -> (u64, u64) {
        let written = self.written.load(Ordering::SeqCst);
        (self.accepted.load(Ordering::SeqCst), written)
    }

    fn is_done(&self) -> bool {
        let (accepted, written) = self.counts();
        accepted == written || self.has_failed.load(Ordering::SeqCst)
    }
}
