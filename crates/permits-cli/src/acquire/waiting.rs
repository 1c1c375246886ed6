//! The line on standard error during a wait.
//!
//! The line is rewritten in place on a terminal. On any other stream, a new line is written after 10 s and
//! then every minute, or at once with `-v` or if the wait cannot end. The store is inspected for each
//! line, and inside another `permits run` also to find out whether the wait can end.
//!
//! The report of a request with `--also` is about the line in which it waits now. The position comes from the
//! acquisition, which costs the store nothing. The reason comes from an inspection, at most every 10 s
//! for one semaphore.

use std::convert::Infallible;
use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, sleep_until};

use super::outer;
use super::reason::{Line, Reason};
use crate::clock::milliseconds;
use crate::{report, text};

/// Delay before the first line. A shorter wait shows none.
const FIRST_AFTER: Duration = Duration::from_millis(300);

/// Interval at which the line on a terminal is rewritten.
const IN_PLACE_EVERY: Duration = Duration::from_secs(1);

/// Interval at which the line on a terminal gets a new reason.
const REASON_EVERY: Duration = Duration::from_secs(10);

/// Delay before the first line on another stream, and the interval from then on.
const PLAIN_AFTER: Duration = Duration::from_secs(10);
const PLAIN_EVERY: Duration = Duration::from_secs(60);

/// The width of a name on a terminal, where everything has to fit in one line.
const NAME_WIDTH: usize = 32;

/// Shows the wait for as long as this future is polled; if it is quiet, only that it has no end. `line`
/// returns the line in which the request waits now.
pub(super) async fn show(line: impl Fn() -> Line, verbose: bool, quiet: bool) -> Infallible {
    let began = Instant::now();
    if report::in_place() && !quiet {
        show_in_place(line, began).await
    } else {
        show_plain(line, began, verbose, quiet).await
    }
}

async fn show_in_place(line: impl Fn() -> Line, began: Instant) -> Infallible {
    let mut next = began + FIRST_AFTER;
    let (mut reason, mut reason_of, mut reason_due) = (Reason::default(), String::new(), began);
    loop {
        sleep_until(next).await;
        // If this process is in the background, the terminal's last line belongs to another program.
        if report::in_foreground() {
            let line = line();
            if reason_due <= Instant::now() || reason_of != line.semaphore.name() {
                reason = Reason::inspect(&line, NAME_WIDTH).await.unwrap_or_else(|unknown| unknown);
                (reason_of, reason_due) = (line.semaphore.name().to_owned(), Instant::now() + REASON_EVERY);
            }
            report::show_status(&text_of(&line, &reason, began.elapsed(), NAME_WIDTH));
        }
        next = Instant::now() + IN_PLACE_EVERY;
    }
}

async fn show_plain(line: impl Fn() -> Line, began: Instant, verbose: bool, quiet: bool) -> Infallible {
    let mut after = FIRST_AFTER;
    loop {
        sleep_until(began + after).await;
        let line = line();
        let is_due = !quiet && (verbose || after >= PLAIN_AFTER);
        if is_due || !outer::tokens(line.semaphore.name()).is_empty() {
            let reason = Reason::inspect(&line, usize::MAX).await.unwrap_or_else(|unknown| unknown);
            if is_due || reason.is_own_parent {
                say(&line, &reason, began.elapsed());
            }
        }
        after = match after {
            FIRST_AFTER => PLAIN_AFTER,
            // Not those that have passed while this process was stopped.
            _ => PLAIN_EVERY * (began.elapsed().div_duration_f64(PLAIN_EVERY) as u32 + 1),
        };
    }
}

fn say(line: &Line, reason: &Reason, waited: Duration) {
    let (semaphore, waited_ms) = (line.semaphore.name(), milliseconds(waited));
    let fields = json!({ "semaphore": semaphore, "waited_ms": waited_ms, "position": line.position, "expected_ms": line.expected.map(milliseconds) });
    report::say_with(text_of(line, reason, waited, usize::MAX), report::joined(fields, &reason.fields));
}

/// The text of a line after `waited`, with the name in at most `columns` columns.
fn text_of(line: &Line, reason: &Reason, waited: Duration, columns: usize) -> String {
    let name = text::truncate(line.semaphore.name(), columns);
    let lane = line
        .lane
        .as_ref()
        .map_or(String::new(), |lane| format!(" in lane {:?}", text::truncate(lane, columns)));
    let position = match line.position {
        Some(0) => "first in line, ".to_owned(),
        Some(before) => format!("{before} before you, "),
        None => String::new(),
    };
    let expected = line.expected.map_or(String::new(), |left| format!("about {}, ", text::duration(left)));
    let Reason { text, is_own_parent, .. } = reason;
    let no_end = if *is_own_parent { ": it waits for itself" } else { "" };
    format!("waiting {} s for {name:?}{lane}: {position}{expected}{text}{no_end}", waited.as_secs())
}
