//! Standard error: everything that the command itself has to say.
//!
//! Every line begins with `permits: `, so that it can be told from what the command that is run says on the
//! same stream. On a terminal one *status line* may stand at the bottom, rewritten in place; whatever else is
//! said erases it first. Passwords in URLs are blotted out on the way, whoever put them there.
//!
//! Warnings of the library arrive as `tracing` events and are lines like any other. That takes a screenful of
//! code here, and a stack of crates otherwise.

use std::collections::VecDeque;
use std::fmt::{self, Debug, Write as _};
use std::io::{self, IsTerminal as _, Write as _};
use std::sync::{Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Metadata, Subscriber, span};

/// Whether a status line is shown. Locked while anything is written.
static SHOWN: Mutex<bool> = Mutex::new(false);

/// The lines that are held back, if they are.
static HELD_BACK: Mutex<Option<HeldBack>> = Mutex::new(None);

/// The most lines that are kept while lines are held back: the last ones.
const MAX_HELD_BACK: usize = 20;

/// Back to the first column, and everything from there erased.
const ERASE: &str = "\r\x1b[K";
/// The terminal cuts off what is too long for a line, instead of wrapping it where it could not be erased.
const NO_WRAP: &str = "\x1b[?7l";
const WRAP: &str = "\x1b[?7h";

/// Listens to the library.
pub(crate) fn install(level: LevelFilter) {
    // Fails only if there is one already, and this is called once.
    let _ = tracing::subscriber::set_global_default(Listener { level });
}

/// From now on nothing is written: lines are kept, for the screen belongs to somebody else.
pub(crate) fn hold_back() {
    *HELD_BACK.lock().unwrap_or_else(PoisonError::into_inner) = Some(HeldBack::default());
}

/// How many lines were held back, and the last of them.
pub(crate) fn held_back() -> (usize, Option<String>) {
    let held_back = HELD_BACK.lock().unwrap_or_else(PoisonError::into_inner);
    held_back.as_ref().map_or((0, None), |held_back| (held_back.count, held_back.lines.back().cloned()))
}

/// Lines are written again, first the last ones that were held back.
pub(crate) fn let_go() {
    let held_back = HELD_BACK.lock().unwrap_or_else(PoisonError::into_inner).take();
    held_back.into_iter().flat_map(|held_back| held_back.lines).for_each(say);
}

/// Says one line. What would control the terminal is shown instead: somebody else may have chosen it.
pub(crate) fn say(message: impl fmt::Display) {
    let message = printable(&redacted(&message.to_string()));
    if let Some(held_back) = &mut *HELD_BACK.lock().unwrap_or_else(PoisonError::into_inner) {
        return held_back.add(message);
    }
    let mut shown = SHOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let erase = if std::mem::take(&mut *shown) { ERASE } else { "" };
    put(&format!("{erase}permits: {message}\n"));
}

/// Shows the status line, in place of the one before. Only for a stream that is [`in_place`].
pub(crate) fn show(line: &str) {
    let line = redacted(line);
    let mut shown = SHOWN.lock().unwrap_or_else(PoisonError::into_inner);
    *shown = true;
    put(&format!("{ERASE}{NO_WRAP}permits: {line}{WRAP}"));
}

/// Erases the status line, if there is one.
pub(crate) fn erase() {
    let mut shown = SHOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if std::mem::take(&mut *shown) {
        put(ERASE);
    }
}

/// Whether a line can be rewritten in place.
pub(crate) fn in_place() -> bool {
    io::stderr().is_terminal() && std::env::var_os("TERM").is_some_and(|term| term != "dumb")
}

/// Whether this process is in the foreground of the terminal that standard error is.
pub(crate) fn in_foreground() -> bool {
    // Fails if it is not the terminal that controls this process; then there is no foreground to be in.
    rustix::termios::tcgetpgrp(io::stderr()).map_or(true, |group| group == rustix::process::getpgrp())
}

/// In one piece, so that lines of other processes on the same stream don't come between. With standard error
/// closed there is nobody to tell.
pub(crate) fn put(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    shown
}

/// `text` with what stands before the `@` of a URL, or after `pass=`, blotted out. A password may have any
/// character in it, so rather too much is blotted out: up to the last `@`, and everything after `pass=`.
fn redacted(text: &str) -> String {
    let mut pieces = text.split("://");
    let mut result = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (user, shown) = piece.rfind('@').map_or(("", piece), |at| ("***", &piece[at..]));
        let (shown, hidden) = shown.split_once("pass=").map_or((shown, ""), |(shown, _)| (shown, "pass=***"));
        let _ = write!(result, "://{user}{shown}{hidden}");
    }
    result
}

/// What was said while lines are held back.
#[derive(Default)]
struct HeldBack {
    lines: VecDeque<String>,
    count: usize,
}

impl HeldBack {
    fn add(&mut self, line: String) {
        if self.lines.len() == MAX_HELD_BACK {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
        self.count += 1;
    }
}

/// Turns events of the library into lines.
struct Listener {
    level: LevelFilter,
}

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.level && metadata.target().starts_with("permits")
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.level)
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        let level = match *event.metadata().level() {
            Level::ERROR => "error",
            Level::WARN => "warning",
            Level::INFO => "info",
            _ => "debug",
        };
        let Line { message, fields } = line;
        let fields = if fields.is_empty() { fields } else { format!(" ({fields})") };
        say(format_args!("{level}: {message}{fields}"));
    }

    // Spans are not shown.
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// An event as text.
#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Writing to a string does not fail.
        let _ = if field.name() == "message" {
            write!(self.message, "{value:?}")
        } else {
            let comma = if self.fields.is_empty() { "" } else { ", " };
            write!(self.fields, "{comma}{}={value:?}", field.name())
        };
    }
}

#[cfg(test)]
mod tests {
    use super::redacted;

    #[test]
    fn passwords_in_urls_are_blotted_out() {
        for (text, expected) in [
            ("no url", "no url"),
            ("redis://host:1/", "redis://host:1/"),
            ("'redis://:secret@host/' found", "'redis://***@host/' found"),
            ("'redis://:a 'secret\" @host/' found", "'redis://***@host/' found"),
            ("redis://u:se@cret@h and redis://u:secret@g", "redis://***@h and redis://***@g"),
            ("'redis+unix:///run/r.sock?pass=a secret'", "'redis+unix:///run/r.sock?pass=***"),
            ("write to me@example.org", "write to me@example.org"),
        ] {
            assert_eq!(redacted(text), expected);
            assert!(!redacted(text).contains("secret"));
        }
    }
}
