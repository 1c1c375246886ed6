//! The events of a program that are not written yet.
//!
//! Events are accepted at any time, and a task of its own writes them: a program that reads slowly delays no
//! permit. While more than [`MAX_BEHIND`] bytes are left, the program is behind: then the connection reads no
//! requests, and leaves out what a later event replaces. So beyond that an outbox has at most three events of
//! each request: the grant, the answer to a renewal, and the last one.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use serde::Serialize;
use tokio::io::AsyncWriteExt as _;
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;

use super::events::Event;
use super::request::Id;
use crate::output::Output;

/// The bytes of events from which on a program is behind.
const MAX_BEHIND: usize = 64 * 1024;

/// The most events of a write.
const BATCH: usize = 50;

/// The longest wait for a program that reads nothing, at the end.
const STUCK: Duration = Duration::from_millis(500);

/// The stream to which events are written.
pub(super) enum Writer {
    Standard(Output),
    Socket(OwnedWriteHalf),
}

impl Writer {
    /// Writes whole lines. Returns false if they cannot be written.
    async fn write(&mut self, lines: String) -> bool {
        match self {
            Self::Standard(output) => output.write_all(lines).await,
            Self::Socket(socket) => socket.write_all(lines.as_bytes()).await.is_ok(),
        }
    }
}

/// See the module.
pub(super) struct Outbox {
    /// Events have ids.
    has_ids: bool,
    /// Closed once events cannot be written.
    lines: UnboundedSender<String>,
    /// The bytes that are left, including the bytes of the present write.
    left: Cell<usize>,
    /// Notified when some are written, or cannot be.
    written: Notify,
}

/// An event with the id of its request.
#[derive(Serialize)]
struct Identified<'a> {
    id: Option<&'a Id>,
    #[serde(flatten)]
    event: Event<'a>,
}

impl Outbox {
    /// An outbox, and the lines to write.
    pub(super) fn new(has_ids: bool) -> (Rc<Self>, UnboundedReceiver<String>) {
        let (lines, queue) = unbounded_channel();
        (Rc::new(Self { has_ids, lines, left: Cell::default(), written: Notify::new() }), queue)
    }

    /// Accepts an event that is about no line.
    pub(super) fn put_first(&self, event: &Event<'_>) {
        self.accept(serde_json::to_string(event));
    }

    /// Accepts an event. One of a line that is not valid may have no id.
    pub(super) fn put<'a>(&self, id: impl Into<Option<&'a Id>>, event: Event<'a>) {
        self.accept(match self.has_ids {
            true => serde_json::to_string(&Identified { id: id.into(), event }),
            false => serde_json::to_string(&event),
        });
    }

    fn accept(&self, line: serde_json::Result<String>) {
        let line = line.expect("it has no failing fields") + "\n";
        let length = line.len();
        if self.lines.send(line).is_ok() {
            self.left.set(self.left.get() + length);
        }
    }

    /// True while the program reads less than is written.
    pub(super) fn is_behind(&self) -> bool {
        self.left.get() > MAX_BEHIND
    }

    /// Waits until the program is not behind. For one caller.
    pub(super) async fn caught_up(&self) {
        while self.is_behind() {
            self.written.notified().await;
        }
    }

    /// Waits until events cannot be written.
    pub(super) async fn failed(&self) {
        self.lines.closed().await;
    }

    /// Writes events for as long as that succeeds.
    pub(super) async fn write_all(self: Rc<Self>, mut queue: UnboundedReceiver<String>, mut writer: Writer) {
        let mut lines = Vec::new();
        while !queue.is_closed() && queue.recv_many(&mut lines, BATCH).await > 0 {
            let text = lines.concat();
            lines.clear();
            let length = text.len();
            if writer.write(text).await {
                self.left.set(self.left.get() - length);
            } else {
                queue.close();
                self.left.set(0);
            }
            self.written.notify_one();
        }
    }

    /// Waits until everything is written, as long as some of it is written at least every [`STUCK`].
    pub(super) async fn flush(&self) {
        while self.left.get() > 0 && timeout(STUCK, self.written.notified()).await.is_ok() {}
    }
}
