//! `permits watch`: the changes of one semaphore, a line each.
//!
//! It inspects the semaphore at an interval. [`difference`] makes events of two inspections, [`event`] is their JSON and
//! [`text`] their text. While the reader of standard output is behind, no inspection is taken: the next one shows the
//! changes of a longer time.

mod difference;
mod event;
#[cfg(test)]
mod tests;
mod text;

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use permits::{AdminError, Inspection, Limit, Semaphore};
use rustix::process::Signal;
use tokio::time::{MissedTickBehavior, interval};

use crate::args::{Common, Watched};
use crate::connect::{self, Target};
use crate::detail::Detail;
use crate::exit::{self, Failure};
use crate::output::Output;
use crate::report;
use crate::run::signals::Signals;
use crate::status::{milliseconds, summary};
use difference::{differences, first};
use event::{StateLine, WatchEvent, WatchLine};

/// Signals that end the verb.
const SIGNALS: [Signal; 4] = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT];

/// Prints the changes until a signal arrives or the reader closes standard output.
pub(crate) async fn watch(common: &Common, options: &Watched) -> Result<u8, Failure> {
    let mut signals = Signals::of(&SIGNALS).map_err(Failure::system)?;
    let store = Target::of(common)?.store;
    let client = connect::viewer(common, options.json).await?;
    let semaphore = client.semaphore(&options.name, Limit::Stored)?;
    let output = Output::start().map_err(Failure::system)?;
    let mut watcher =
        Watcher { semaphore, store, options, output: &output, last: None, is_unreachable: false };
    let ended = tokio::select! {
        biased;
        _ = signals.next() => Ok(exit::SUCCESS),
        () = output.failed() => Ok(output.code()),
        code = watcher.run() => code,
    };
    output.flush();
    ended
}

struct Watcher<'a> {
    semaphore: Semaphore,
    /// The store's URL without passwords.
    store: String,
    options: &'a Watched,
    output: &'a Output,
    /// The last inspection, and the time of its request.
    last: Option<(Detail, Instant)>,
    is_unreachable: bool,
}

impl Watcher<'_> {
    /// Runs until the reader has closed standard output, or the store cannot be watched.
    async fn run(&mut self) -> Result<u8, Failure> {
        let mut ticks = interval(self.options.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if self.output.is_closed() {
                return Ok(exit::SUCCESS);
            }
            if !self.output.is_behind() {
                self.look().await?;
            }
        }
    }

    /// Inspects the semaphore and prints the events since the last inspection.
    async fn look(&mut self) -> Result<(), Failure> {
        let requested = Instant::now();
        let inspection = match self.semaphore.inspect().await {
            Ok(inspection) => inspection,
            Err(AdminError::Store(error)) if error.is_temporary() && self.last.is_some() => {
                self.on_unreachable(&report::with_causes(&error));
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        let at = SystemTime::now();
        if std::mem::take(&mut self.is_unreachable) {
            report::say("the store can be reached again");
            self.print(&WatchEvent::Back, at, Some(&inspection), false);
        }
        let detail = Detail::from(inspection.clone());
        let events = match &self.last {
            None => first(&detail),
            Some((before, since)) => differences(before, &detail, since.elapsed()),
        };
        let authored = events.iter().any(|event| matches!(event, WatchEvent::Changed { .. }));
        events.iter().for_each(|event| self.print(event, at, Some(&inspection), authored));
        self.last = Some((detail, requested));
        Ok(())
    }

    /// Prints that the store cannot be reached, once until it can be.
    fn on_unreachable(&mut self, reason: &str) {
        if std::mem::replace(&mut self.is_unreachable, true) {
            return;
        }
        report::say(reason);
        self.print(&WatchEvent::Unreachable { reason: reason.to_owned() }, SystemTime::now(), None, false);
    }

    /// Prints an event. `authored`: a change by an operator is among the events of the inspection.
    fn print(&self, event: &WatchEvent, at: SystemTime, inspection: Option<&Inspection>, authored: bool) {
        let Watched { name, json, .. } = self.options;
        if !json {
            if text::is_worth_a_line(event, authored) {
                self.output.write_text(text::line(event, at, || inspection.map(summary).unwrap_or_default()));
            }
            return;
        }
        let at_ms = milliseconds(at.duration_since(UNIX_EPOCH).unwrap_or_default());
        match (event, inspection) {
            (WatchEvent::State, Some(inspection)) => {
                self.output.write(&StateLine::new(inspection, &self.store, at_ms));
            }
            _ => {
                let (held, waiting) = inspection.map(|seen| (seen.held, seen.waiting)).unzip();
                self.output.write(&WatchLine { event, at_ms, name, held, waiting });
            }
        }
    }
}
