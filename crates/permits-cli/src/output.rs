//! Standard output of the verbs that print while they run: lines, written by a thread of their own, so that a
//! program that does not read delays neither a release nor a signal.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use serde::Serialize;
use tokio::sync::Notify;

use crate::{exit, report, stdout};

/// The most lines that wait for a reader before it is behind.
const MAX_BEHIND: u64 = 16;

/// The longest wait for a reader that reads nothing, at the end.
const STUCK: Duration = Duration::from_millis(500);

/// A line could not be written, for another reason than a closed pipe.
static IS_FAULT: AtomicBool = AtomicBool::new(false);

/// Standard output. There is one in a process.
pub(crate) struct Output {
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
    /// Notified of each line that was written, and of a failure.
    changed: Notify,
}

impl Output {
    /// Starts the thread that writes.
    ///
    /// # Errors
    /// The system's error if it refuses a thread.
    pub(crate) fn start() -> io::Result<Self> {
        let (lines, queue) = mpsc::channel();
        let progress = Arc::<Progress>::default();
        let of_thread = progress.clone();
        std::thread::Builder::new().name("stdout".into()).spawn(move || of_thread.write_all(&queue))?;
        Ok(Self { lines, progress })
    }

    /// Writes a JSON object.
    pub(crate) fn write(&self, object: &impl Serialize) {
        self.write_text(serde_json::to_string(object).expect("it has neither maps nor failing fields"));
    }

    /// Writes a text as a line.
    pub(crate) fn write_text(&self, mut line: String) {
        line.push('\n');
        self.send(line);
    }

    /// Returns the number of the line, from 1.
    fn send(&self, line: String) -> u64 {
        let number = self.progress.accepted.fetch_add(1, Ordering::SeqCst) + 1;
        // Fails if the thread has ended, which it does after it failed to write.
        let _ = self.lines.send(line);
        number
    }

    /// True while the reader reads less than is written. Then lines that a later one replaces are left out.
    pub(crate) fn is_behind(&self) -> bool {
        let (accepted, written) = self.progress.counts();
        accepted - written > MAX_BEHIND
    }

    /// Waits until a line cannot be written. For one caller, which does not wait for anything else.
    pub(crate) async fn failed(&self) {
        while !self.progress.has_failed.load(Ordering::SeqCst) {
            self.progress.changed.notified().await;
        }
    }

    /// Writes whole lines. Waits until they are written. For one caller, which does not wait for anything
    /// else. Returns false if they cannot be written.
    pub(crate) async fn write_all(&self, lines: String) -> bool {
        let number = self.send(lines);
        while self.progress.counts().1 < number {
            if self.progress.has_failed.load(Ordering::SeqCst) {
                return false;
            }
            self.progress.changed.notified().await;
        }
        true
    }

    /// Waits until everything is written, as long as the reader reads something at least every [`STUCK`].
    pub(crate) fn flush(self) {
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

/// The exit code of a verb that ends as it should: a success, unless a line could not be written. A closed
/// pipe is no failure.
pub(crate) fn code() -> u8 {
    if IS_FAULT.load(Ordering::SeqCst) { exit::SYSTEM } else { exit::SUCCESS }
}

impl Progress {
    fn write_all(&self, queue: &mpsc::Receiver<String>) {
        for line in queue {
            if let Err(error) = stdout::write(line.as_bytes()) {
                if error.kind() != io::ErrorKind::BrokenPipe {
                    IS_FAULT.store(true, Ordering::SeqCst);
                    report::say(format_args!("cannot write to standard output: {error}"));
                }
                self.has_failed.store(true, Ordering::SeqCst);
                self.changed.notify_one();
                return;
            }
            self.written.fetch_add(1, Ordering::SeqCst);
            self.changed.notify_one();
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
