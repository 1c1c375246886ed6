//! The events of a program that are not written yet.
//!
//! Events are accepted at any time, and a task of its own writes them: a program that reads slowly delays no
//! permit. While more than [`MAX_BEHIND`] bytes are left, the program is behind: then the connection reads no
//! requests, and leaves out what a later event replaces. So beyond that an outbox has at most three events of
//! each request: the grant, the answer to a renewal, and the last one.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::time::Duration;

use serde::Serialize;
use tokio::io::AsyncWriteExt as _;
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::super::events::Event;
use super::request::Id;
use crate::output::Output;

/// The bytes of events from which on a program is behind.
const MAX_BEHIND: usize = 64 * 1024;

/// The bytes of a write, in whole lines; those of a longer line more.
const CHUNK: usize = 8 * 1024;

/// The longest wait for a program that reads nothing, at the end.
const STUCK: Duration = Duration::from_millis(500);

/// Where the events go.
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
#[derive(Default)]
pub(super) struct Outbox {
    chunks: RefCell<VecDeque<String>>,
    /// The bytes that are left, those of the present write included.
    left: Cell<usize>,
    /// Events cannot be written.
    has_failed: Cell<bool>,
    /// For the task that writes.
    added: Notify,
    /// For the connection.
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
    /// Accepts an event of a request.
    pub(super) fn put(&self, id: &Id, event: Event<'_>) {
        self.put_of(Some(id), event);
    }

    /// Accepts an event, which may have no id.
    pub(super) fn put_of(&self, id: Option<&Id>, event: Event<'_>) {
        if self.has_failed.get() {
            return;
        }
        let mut chunks = self.chunks.borrow_mut();
        if chunks.back().is_none_or(|chunk| chunk.len() >= CHUNK) {
            chunks.push_back(String::new());
        }
        let chunk = chunks.back_mut().expect("one was added");
        let line = serde_json::to_string(&Identified { id, event }).expect("it has no failing fields");
        chunk.push_str(&line);
        chunk.push('\n');
        self.left.set(self.left.get() + line.len() + 1);
        self.added.notify_one();
    }

    /// True while the program reads less than is written.
    pub(super) fn is_behind(&self) -> bool {
        self.left.get() > MAX_BEHIND
    }

    pub(super) fn has_failed(&self) -> bool {
        self.has_failed.get()
    }

    /// Waits until some events are written, or cannot be. For one caller.
    pub(super) async fn changed(&self) {
        self.written.notified().await;
    }

    /// Writes events for as long as that succeeds.
    pub(super) async fn write_all(&self, mut writer: Writer) {
        loop {
            let Some(chunk) = self.chunks.borrow_mut().pop_front() else {
                self.added.notified().await;
                continue;
            };
            let length = chunk.len();
            let is_written = writer.write(chunk).await;
            if !is_written {
                self.has_failed.set(true);
                self.chunks.borrow_mut().clear();
            }
            self.left.set(if is_written { self.left.get() - length } else { 0 });
            self.written.notify_one();
            if !is_written {
                return;
            }
        }
    }

    /// Waits until everything is written, as long as some of it is written at least every [`STUCK`].
    pub(super) async fn flush(&self) {
        while self.left.get() > 0 && timeout(STUCK, self.changed()).await.is_ok() {}
    }
}
