//! What is shown while `permits run` waits: how far ahead the others are, and who they are. And the same once
//! more when the wait limit has passed.
//!
//! On a terminal one line, rewritten in place. On another stream a line of its own: at once if the store holds back
//! free units because it has just started, or with `-v`; after 10 s, and then every minute, in any case. The store
//! is asked only for that, and at most once a second.

use std::convert::Infallible;
use std::time::Duration;

use permits::{Inspection, Semaphore};
use tokio::time::{Instant, sleep_until, timeout};

use crate::{report, text};

/// A wait shorter than this is not worth a line.
const TIMEOUT: Duration = Duration::from_millis(300);

/// How often the line on a terminal is rewritten.
const IN_PLACE_EVERY: Duration = Duration::from_secs(1);

/// After how long there is a line on another stream, and how often from then on.
const PLAIN_AFTER: Duration = Duration::from_secs(10);
const PLAIN_EVERY: Duration = Duration::from_secs(60);

/// How long the store may take to answer before that is what is shown.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// The most holders that are named, and how wide a name may be on a terminal, where all is to fit in one line.
const NAMED: usize = 3;
const NAME_WIDTH: usize = 32;

/// Shows how `holder` waits for `semaphore`, for as long as it is polled.
pub(super) async fn show(semaphore: &Semaphore, holder: &str, verbose: bool) -> Infallible {
    let began = Instant::now();
    if report::in_place() {
        let mut next = began + TIMEOUT;
        loop {
            sleep_until(next).await;
            // In the background the line would be another program's.
            if report::in_foreground() {
                report::show(&line(semaphore, holder, began.elapsed(), NAME_WIDTH).await.0);
            }
            next = Instant::now() + IN_PLACE_EVERY;
        }
    }
    let mut after = TIMEOUT;
    loop {
        sleep_until(began + after).await;
        let (line, recovering) = line(semaphore, holder, began.elapsed(), usize::MAX).await;
        if verbose || recovering || after >= PLAIN_AFTER {
            report::say(line);
        }
        after = match after {
            TIMEOUT => PLAIN_AFTER,
            PLAIN_AFTER => PLAIN_EVERY,
            _ => after + PLAIN_EVERY,
        };
    }
}

/// What there is to say after `waited`, with names of at most so many columns; and whether the store recovers.
async fn line(semaphore: &Semaphore, holder: &str, waited: Duration, columns: usize) -> (String, bool) {
    let (state, recovering) = match timeout(ANSWER_TIMEOUT, semaphore.inspect()).await {
        Ok(Ok(inspection)) => (describe(&inspection, holder, columns), !inspection.recovering.is_zero()),
        Ok(Err(error)) => (error.to_string(), false),
        Err(_) => ("the store does not answer".to_owned(), false),
    };
    let name = text::truncate(semaphore.name().unwrap_or_default(), columns);
    (format!("waiting {} s for {name:?}: {state}", waited.as_secs()), recovering)
}

/// What stands in the way of one who was just refused, if the store says so in time.
pub(super) async fn blocking_reason(semaphore: &Semaphore) -> Option<String> {
    // One more than are named, so that it shows that there are more.
    let inspection = timeout(ANSWER_TIMEOUT, semaphore.inspect_up_to(NAMED as u32 + 1)).await.ok()?.ok()?;
    Some(format!("{}, {} waiting", reason(&inspection, usize::MAX), inspection.waiting))
}

fn describe(inspection: &Inspection, holder: &str, columns: usize) -> String {
    let Inspection { waiters, waiting, .. } = inspection;
    let ahead = waiters.iter().find(|waiter| waiter.holder == holder).map(|waiter| waiter.position);
    let place = match ahead {
        Some(0) => "first in line".to_owned(),
        Some(ahead) => format!("{ahead} ahead"),
        None => format!("{waiting} in line"),
    };
    format!("{place}, {}", reason(inspection, columns))
}

/// Why nothing is granted. What matters most comes first: what does not fit on a terminal is cut off.
fn reason(inspection: &Inspection, columns: usize) -> String {
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

/// Why free units are not granted, and for how long that lasts.
pub(super) fn recovery_reason(recovering: Duration) -> String {
    let seconds = recovering.as_millis().div_ceil(1000);
    format!(
        "nothing is granted yet: the store started or lost its state a moment ago, and holders it may have forgotten get {seconds} s more to come back"
    )
}
