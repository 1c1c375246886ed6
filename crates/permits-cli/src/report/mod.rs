//! Standard error: all messages of the command itself, written by a thread of their own.
//!
//! Reporting never blocks. Standard error may be a full pipe, or a terminal stopped by Ctrl-S: then the
//! writing thread blocks, and the thread that guards the command and the session's thread continue. Lines
//! that do not fit into the queue are dropped and counted. `O_NONBLOCK` is no alternative, because it belongs
//! to the open file, which the command and the shell share.
//!
//! Every line begins with `permits: `, to distinguish it from the command's own output on the same stream;
//! with `--log-format json` it is a JSON object instead, and there is no status line. On a terminal one
//! *status line* may stand at the bottom, rewritten in place; any other line erases it first. Passwords in
//! URLs are redacted.

mod filter;
mod log;
mod redact;

use std::collections::VecDeque;
use std::error::Error;
use std::fmt;
use std::fs::File;
use std::io::{self, IsTerminal as _};
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use crate::clock::unix_ms;
use crate::posix;
use crate::stdout;
use crate::text;
pub(crate) use filter::Filter;
pub(crate) use log::install;
use redact::redact_all;
pub(crate) use redact::redacted;

/// The form of the lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

/// Lines are JSON objects.
static JSON: AtomicBool = AtomicBool::new(false);

/// The lines to write.
static STATE: Mutex<State> = Mutex::new(State::new());

/// Notified of every change of [`STATE`].
static CHANGED: Condvar = Condvar::new();

/// The most lines in the queue.
const MAX_QUEUED: usize = 256;

/// The most lines in the buffer, which keeps the last ones.
const MAX_BUFFERED: usize = 20;

/// The longest wait of a flush for a reader that reads nothing.
const STUCK: Duration = Duration::from_millis(500);

/// The longest wait of a flush for the writing thread to be scheduled on a busy machine.
const UNSCHEDULED: Duration = Duration::from_secs(5);

/// Moves to the first column and erases the line.
const ERASE: &str = "\r\x1b[K";
/// Makes the terminal cut off a long line instead of wrapping it, because a wrapped line could not be erased.
const NO_WRAP: &str = "\x1b[?7l";
const WRAP: &str = "\x1b[?7h";

struct State {
    /// The writing thread runs. It starts with the first piece: most commands report nothing.
    started: bool,
    /// Pieces, each written by one call, so that lines of other processes don't come between.
    queue: VecDeque<String>,
    /// Lines dropped since the queue was last empty.
    dropped: u64,
    /// The writing thread is writing a piece.
    writing: bool,
    /// Pieces written.
    written: u64,
    /// The width of the status line, if there is one.
    status_width: Option<usize>,
    buffer: Option<Buffer>,
}

impl State {
    const fn new() -> Self {
        let queue = VecDeque::new();
        Self {
            started: false,
            queue,
            dropped: 0,
            writing: false,
            written: 0,
            status_width: None,
            buffer: None,
        }
    }

    fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.dropped == 0 && !self.writing
    }

    /// Queues a line, or drops it. After the first dropped line all are dropped until the queue is empty, so
    /// that the gap is in one place.
    fn add(&mut self, line: &str) {
        if self.dropped > 0 || self.queue.len() >= MAX_QUEUED {
            self.dropped += 1;
            return;
        }
        let erase = self.status_width.take().map(|shown| erasing(shown, columns())).unwrap_or_default();
        self.queue.push_back(format!("{erase}{line}"));
        // If the system refuses a thread, the next line starts it, or `flush` writes.
        self.started = self.started || start_writing().is_ok();
        CHANGED.notify_all();
    }

    /// The next piece to write.
    fn next(&mut self) -> Option<String> {
        let missing = || {
            let dropped = std::mem::take(&mut self.dropped);
            let lines = if dropped == 1 { "line is" } else { "lines are" };
            (dropped > 0).then(|| {
                line_of(&format!("{dropped} {lines} missing here: standard error was not read in time"))
            })
        };
        self.queue.pop_front().or_else(missing)
    }
}

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reports panics as lines.
pub(crate) fn start() {
    std::panic::set_hook(Box::new(|panic| {
        print_raw(&line_of(&panic.to_string()));
        flush();
    }));
}

/// Starts the writing thread.
fn start_writing() -> io::Result<()> {
    // The thread writes to a copy of standard error, because a panicking thread takes the lock of
    // `io::stderr`.
    let stderr = File::from(io::stderr().as_fd().try_clone_to_owned()?);
    std::thread::Builder::new().name("stderr".into()).spawn(move || write_queued(stderr))?;
    Ok(())
}

/// Writes until the process ends. A line that cannot be written, say because standard error is closed, is
/// lost.
fn write_queued(stderr: File) {
    let mut locked = state();
    loop {
        let Some(piece) = locked.next() else {
            locked = CHANGED.wait(locked).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        locked.writing = true;
        CHANGED.notify_all();
        drop(locked);
        let _ = posix::while_writing(|| stdout::write_to(&stderr, piece.as_bytes()));
        locked = state();
        locked.writing = false;
        locked.written += 1;
        CHANGED.notify_all();
    }
}

/// Waits until everything is written, as long as the reader reads something at least every [`STUCK`].
pub(crate) fn flush() {
    let mut locked = state();
    while !locked.is_idle() {
        if !locked.started {
            let piece = locked.next().unwrap_or_default();
            let _ = posix::while_writing(|| stdout::write_to(&io::stderr(), piece.as_bytes()));
            continue;
        }
        let before = (locked.writing, locked.written);
        let limit = if locked.writing { STUCK } else { UNSCHEDULED };
        let waited = CHANGED.wait_timeout(locked, limit).unwrap_or_else(PoisonError::into_inner);
        locked = waited.0;
        if waited.1.timed_out() && (locked.writing, locked.written) == before {
            return;
        }
    }
}

/// Buffers lines from now on, because a screen is drawn on the same terminal.
pub(crate) fn start_buffering() {
    state().buffer = Some(Buffer::default());
    flush();
}

/// The number of buffered lines so far, and the last line.
pub(crate) fn buffered() -> (usize, Option<String>) {
    state().buffer.as_ref().map_or((0, None), |buffer| (buffer.count, buffer.lines.back().cloned()))
}

/// Writes the buffered lines, and writes lines directly again.
pub(crate) fn stop_buffering() {
    let buffer = state().buffer.take();
    buffer.into_iter().flat_map(|buffer| buffer.lines).for_each(say);
}

/// Reports one line. Control characters are escaped, because names and reasons come from others.
pub(crate) fn say(message: impl fmt::Display) {
    say_with(message, Value::Null);
}

/// Reports one line, with an object of the values that its sentence has, for lines that are JSON.
pub(crate) fn say_with(message: impl fmt::Display, fields: Value) {
    say_at("info", message, fields);
}

/// Reports the failure that ends the command, as [`say_with`].
pub(crate) fn say_failure(message: impl fmt::Display, fields: Value) {
    say_at("error", message, fields);
}

/// The values of two objects, of which the first may be null.
pub(crate) fn joined(mut fields: Value, more: &Value) -> Value {
    for (name, value) in more.as_object().into_iter().flatten() {
        fields[name] = value.clone();
    }
    fields
}

fn say_at(level: &str, message: impl fmt::Display, fields: Value) {
    let message = text::printable(&redacted(&message.to_string()));
    let mut state = state();
    match &mut state.buffer {
        Some(buffer) => buffer.add(message),
        None => state.add(&line_at(level, &message, fields)),
    }
}

/// Reports a JSON object, with the time. Its texts are redacted already.
fn say_json(object: Value) {
    let mut state = state();
    match &mut state.buffer {
        Some(buffer) => buffer.add(object["message"].as_str().map(text::printable).unwrap_or_default()),
        None => state.add(&with_time(object)),
    }
}

/// The form of the lines from now on.
pub(crate) fn set_format(format: LogFormat) {
    JSON.store(format == LogFormat::Json, Ordering::Relaxed);
}

fn format() -> LogFormat {
    if JSON.load(Ordering::Relaxed) { LogFormat::Json } else { LogFormat::Text }
}

/// A message of the command as a line.
fn line_of(message: &str) -> String {
    line_at("info", message, Value::Null)
}

/// A message with its level and its fields as a line.
fn line_at(level: &str, message: &str, mut fields: Value) -> String {
    if format() == LogFormat::Text {
        return format!("permits: {message}\n");
    }
    let mut object = json!({ "level": level, "target": "permits", "message": message });
    if !fields.is_null() {
        redact_all(&mut fields);
        object["fields"] = fields;
    }
    with_time(object)
}

fn with_time(mut object: Value) -> String {
    object["time_ms"] = unix_ms(SystemTime::now()).into();
    format!("{object}\n")
}

/// Shows the status line in place of the previous one. Only for a stream that is [`in_place`]. A status line
/// is skipped while the reader is behind, because the next one is newer.
pub(crate) fn show_status(line: &str) {
    // The line leaves the last column empty, because terminals differ in the cursor's position after a full
    // line.
    let line = text::truncate(&text::printable(&redacted(&format!("permits: {line}"))), columns() - 1);
    let mut state = state();
    if state.is_idle() {
        state.add(&format!("{ERASE}{NO_WRAP}{line}{WRAP}"));
        state.status_width = Some(text::width(&line));
    }
}

/// Erases the status line, if there is one.
pub(crate) fn erase_status() {
    let mut state = state();
    if state.status_width.is_some() {
        state.add("");
    }
}

/// Erases a status line of `shown` columns. In a window that has become narrower since, it is wrapped, with
/// the cursor in its last line.
fn erasing(shown: usize, columns: usize) -> String {
    match shown.saturating_sub(1) / columns {
        0 => ERASE.to_owned(),
        above => format!("\r\x1b[{above}A\x1b[J"),
    }
}

/// The width of the terminal on standard error.
fn columns() -> usize {
    let columns = rustix::termios::tcgetwinsize(io::stderr()).map_or(0, |size| size.ws_col);
    // 80 for a terminal that does not know its width.
    if columns == 0 { 80 } else { usize::from(columns) }
}

/// True if standard error is a terminal that can rewrite a line.
pub(crate) fn in_place() -> bool {
    format() == LogFormat::Text
        && io::stderr().is_terminal()
        && std::env::var_os("TERM").is_some_and(|term| term != "dumb")
}

/// True if this process is in the foreground of the terminal on standard error.
pub(crate) fn in_foreground() -> bool {
    // Fails for a terminal that does not control this process, which has no foreground.
    rustix::termios::tcgetpgrp(io::stderr()).map_or(true, |group| group == rustix::process::getpgrp())
}

/// The message of `error`, followed by the messages of its causes.
pub(crate) fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let message = error.to_string();
        // Some messages contain their cause.
        if !text.contains(&message) {
            text = format!("{text}: {message}");
        }
        cause = error.source();
    }
    text
}

/// Reports `text` unchanged.
pub(crate) fn print_raw(text: &str) {
    state().add(text);
}

/// Lines reported while a screen is shown.
#[derive(Default)]
struct Buffer {
    lines: VecDeque<String>,
    count: usize,
}

impl Buffer {
    fn add(&mut self, line: String) {
        if self.lines.len() == MAX_BUFFERED {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
        self.count += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;
    use std::fmt;

    use super::{ERASE, MAX_QUEUED, State, erasing, with_causes};

    /// An error with a message and perhaps a cause.
    #[derive(Debug)]
    struct Failed(&'static str, Option<Box<Self>>);

    impl fmt::Display for Failed {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Failed {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|cause| cause as _)
        }
    }

    #[test]
    fn causes_follow_the_message_once() {
        let cause = |message| Some(Box::new(Failed(message, Some(Box::new(Failed("refused", None))))));
        assert_eq!(with_causes(&Failed("no store", cause("host:1"))), "no store: host:1: refused");
        assert_eq!(with_causes(&Failed("no store: host:1", cause("host:1"))), "no store: host:1: refused");
        assert_eq!(with_causes(&Failed("no store", None)), "no store");
    }

    #[test]
    fn lines_that_do_not_fit_are_dropped_and_counted_where_they_are_missing() {
        let mut state = State::new();
        for number in 0..MAX_QUEUED + 3 {
            state.add(&format!("{number}\n"));
        }
        assert_eq!(state.next().as_deref(), Some("0\n"));
        state.add("after those that are missing\n");
        let written: Vec<String> = std::iter::from_fn(|| state.next()).collect();
        let (last, before) = written.split_last().expect("there are some");
        assert_eq!(before.len(), MAX_QUEUED - 1);
        assert!(last.starts_with("permits: 4 lines are missing here"), "{last}");
        state.add("next\n");
        assert_eq!((state.next().as_deref(), state.next()), (Some("next\n"), None));
    }

    #[test]
    fn a_status_line_is_erased_in_a_narrowed_window() {
        for (shown, columns) in [(0, 80), (1, 80), (79, 80), (79, 79)] {
            assert_eq!(erasing(shown, columns), ERASE);
        }
        assert_eq!(erasing(79, 78), "\r\x1b[1A\x1b[J");
        assert_eq!(erasing(79, 10), "\r\x1b[7A\x1b[J");
    }
}
