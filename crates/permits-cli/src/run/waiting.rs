//! What is shown while `permits run` waits: how far ahead the others are, and who they are. And the same once
//! more when it has waited in vain.
//!
//! On a terminal one line, rewritten in place; with `-v` on another stream, a line of its own when something
//! has changed, and rarely. The store is asked only for that, and at most once a second.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use permits::{Inspection, Semaphore};
use tokio::time::{MissedTickBehavior, interval_at, timeout};

use crate::report;

/// A wait shorter than this is not worth a line.
const PATIENCE: Duration = Duration::from_millis(300);

/// How often the store is asked.
const IN_PLACE_EVERY: Duration = Duration::from_secs(1);
const PLAIN_EVERY: Duration = Duration::from_secs(10);

/// How long the store may take to answer before that is what is shown.
const ANSWER_PATIENCE: Duration = Duration::from_secs(2);

/// The most holders that are named.
const NAMED: usize = 3;

/// Shows how `holder` waits for `semaphore`, for as long as it is polled.
pub(super) async fn show(semaphore: &Semaphore, holder: &str, verbose: bool) -> Infallible {
    let in_place = report::in_place();
    if !in_place && !verbose {
        return std::future::pending().await;
    }
    let began = Instant::now();
    let every = if in_place { IN_PLACE_EVERY } else { PLAIN_EVERY };
    let mut ticks = interval_at(tokio::time::Instant::now() + PATIENCE, every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last = String::new();
    loop {
        ticks.tick().await;
        // In the background the line would be somebody else's.
        if in_place && !report::in_foreground() {
            continue;
        }
        let state = match timeout(ANSWER_PATIENCE, semaphore.inspect()).await {
            Ok(Ok(inspection)) => describe(&inspection, holder),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "the store does not answer".to_owned(),
        };
        let name = semaphore.name().unwrap_or_default();
        let line = format!("waiting for {name:?}: {state}");
        if in_place {
            report::show(&format!("{line} ({} s)", began.elapsed().as_secs()));
        } else if line != last {
            report::say(format_args!("{line} ({} s)", began.elapsed().as_secs()));
            last = line;
        }
    }
}

/// What stands in the way of one who was just refused, if the store says so in time.
pub(super) async fn in_the_way(semaphore: &Semaphore) -> Option<String> {
    // One more than are named, so that it shows that there are more.
    let inspection = timeout(ANSWER_PATIENCE, semaphore.inspect_first(NAMED as u32 + 1)).await.ok()?.ok()?;
    Some(format!("{}, {} waiting", circumstances(&inspection), inspection.waiting))
}

fn describe(inspection: &Inspection, holder: &str) -> String {
    let Inspection { waiters, waiting, .. } = inspection;
    let ahead = waiters.iter().find(|waiter| waiter.holder == holder).map(|waiter| waiter.position);
    let place = match ahead {
        Some(0) => "first in line".to_owned(),
        Some(ahead) => format!("{ahead} ahead"),
        None => format!("{waiting} in line"),
    };
    format!("{place}, {}", circumstances(inspection))
}

fn circumstances(inspection: &Inspection) -> String {
    let Inspection { held, limit, holders, .. } = inspection;
    let limit = limit.map_or(String::new(), |limit| format!(" of {limit}"));
    let mut text = format!("{held}{limit} held");
    if !holders.is_empty() {
        let names: Vec<&str> = holders.iter().take(NAMED).map(|info| info.holder.as_str()).collect();
        let dots = if holders.len() > NAMED { ", …" } else { "" };
        text += &format!(" by {}{dots}", names.join(", "));
    }
    if inspection.paused {
        text += ", paused";
    }
    if !inspection.recovering.is_zero() {
        let seconds = inspection.recovering.as_secs() + 1;
        text += &format!(", granting in {seconds} s, for the store has restarted");
    }
    text
}
