//! The line on standard error during a wait, and the reason it adds to a refusal.
//!
//! On a terminal one line is rewritten in place. On another stream a line of its own is written: at once with `-v`, or
//! while the store recovers; after 10 s and then every minute in any case.
//!
//! With `--also` it is about the line in which the request waits now. The position comes from the acquisition, which costs the
//! store nothing. The reason comes from an inspection of a few holders, at most every 10 s.

use std::convert::Infallible;
use std::time::Duration;

use permits::{AdminError, Inspection, Semaphore};
use tokio::time::{Instant, sleep_until, timeout};

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

/// Time the store has to answer an inspection.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// The most holders that are named, and the width of a name on a terminal, where everything has to fit in one line.
const NAMED: usize = 3;
const NAME_WIDTH: usize = 32;

/// The line in which a request waits now.
#[derive(Clone)]
pub(super) struct Line {
    pub(super) semaphore: Semaphore,
    /// The number of waiters before this one, if it is known.
    pub(super) position: Option<u64>,
}

/// Shows the wait for as long as this future is polled. `line` returns the line in which the request waits now.
pub(super) async fn show(line: impl Fn() -> Line, verbose: bool) -> Infallible {
    let began = Instant::now();
    if report::in_place() { show_in_place(line, began).await } else { show_plain(line, began, verbose).await }
}

async fn show_in_place(line: impl Fn() -> Line, began: Instant) -> Infallible {
    let mut next = began + FIRST_AFTER;
    let (mut reason, mut reason_of, mut reason_due) = (String::new(), String::new(), began);
    loop {
        sleep_until(next).await;
        // In the background the terminal's last line belongs to another program.
        if report::in_foreground() {
            let line = line();
            if reason_due <= Instant::now() || reason_of != line.semaphore.name() {
                reason = self::reason(&line.semaphore, NAME_WIDTH).await.0;
                (reason_of, reason_due) = (line.semaphore.name().to_owned(), Instant::now() + REASON_EVERY);
            }
            report::show_status(&text_of(&line, &reason, began.elapsed(), NAME_WIDTH));
        }
        next = Instant::now() + IN_PLACE_EVERY;
    }
}

async fn show_plain(line: impl Fn() -> Line, began: Instant, verbose: bool) -> Infallible {
    let mut after = FIRST_AFTER;
    loop {
        sleep_until(began + after).await;
        let line = line();
        let (reason, recovering) = reason(&line.semaphore, usize::MAX).await;
        if verbose || recovering || after >= PLAIN_AFTER {
            report::say(text_of(&line, &reason, began.elapsed(), usize::MAX));
        }
        after = match after {
            FIRST_AFTER => PLAIN_AFTER,
            PLAIN_AFTER => PLAIN_EVERY,
            _ => after + PLAIN_EVERY,
        };
    }
}

/// The text of a line after `waited`, with the name in at most `columns` columns.
fn text_of(line: &Line, reason: &str, waited: Duration, columns: usize) -> String {
    let name = text::truncate(line.semaphore.name(), columns);
    let position = match line.position {
        Some(0) => "first in line, ".to_owned(),
        Some(before) => format!("{before} before you, "),
        None => String::new(),
    };
    format!("waiting {} s for {name:?}: {position}{reason}", waited.as_secs())
}

/// The reason why nothing is granted, with names of at most `columns` columns, and whether the store recovers.
async fn reason(semaphore: &Semaphore, columns: usize) -> (String, bool) {
    match timeout(ANSWER_TIMEOUT, inspect(semaphore)).await {
        Ok(Ok(inspection)) => (describe(&inspection, columns), !inspection.recovering.is_zero()),
        Ok(Err(error)) => (report::with_causes(&error), false),
        Err(_) => ("the store does not answer".to_owned(), false),
    }
}

/// The reason to add to a refusal, unless the store fails to answer in time.
pub(super) async fn blocking_reason(semaphore: &Semaphore) -> Option<String> {
    let inspection = timeout(ANSWER_TIMEOUT, inspect(semaphore)).await.ok()?.ok()?;
    Some(format!("{}, {} waiting", describe(&inspection, usize::MAX), inspection.waiting))
}

/// Inspects one holder more than is named, which shows whether there are more.
async fn inspect(semaphore: &Semaphore) -> Result<Inspection, AdminError> {
    semaphore.inspect_up_to(NAMED as u32 + 1).await
}

/// The pause, the recovery and the holders, the most important first, since a terminal cuts off the end.
fn describe(inspection: &Inspection, columns: usize) -> String {
    let Inspection { held, limit, holders, recovering, .. } = inspection;
    let mut text = String::new();
    if inspection.paused {
        text += "paused, ";
    }
    if !recovering.is_zero() {
        text += &format!("{}; ", recovery_reason(*recovering));
    }
    let limit = limit.map_or(String::new(), |limit| format!(" of {limit}"));
    text += &format!("{held}{limit} held");
    if !holders.is_empty() {
        let names: Vec<_> =
            holders.iter().take(NAMED).map(|info| text::truncate(&info.holder, columns)).collect();
        let dots = if holders.len() > NAMED { ", …" } else { "" };
        text += &format!(" by {}{dots}", names.join(", "));
    }
    text
}

/// The reason of a recovery that lasts for `remaining`.
pub(super) fn recovery_reason(remaining: Duration) -> String {
    let seconds = remaining.as_millis().div_ceil(1000);
    format!(
        "nothing is granted yet: the store started or lost its state a moment ago, and holders that it may have forgotten have {seconds} s more to reconnect"
    )
}
