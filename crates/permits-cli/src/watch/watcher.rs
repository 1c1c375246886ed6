//! One semaphore that is watched.

use std::time::{Instant, SystemTime};

use permits::{AdminError, Inspection, Semaphore};

use super::difference::{differences, first};
use super::event::{StateLine, WatchEvent, WatchLine};
use super::text;
use crate::clock::unix_ms;
use crate::exit::Failure;
use crate::names;
use crate::output::Output;
use crate::report;
use crate::status::summary;
use crate::text::printable;

/// The lines of all watched semaphores.
#[derive(Clone, Copy)]
pub(super) struct Lines<'a> {
    pub(super) output: &'a Output,
    /// The store's URL without passwords.
    pub(super) store: &'a str,
    pub(super) json: bool,
    /// Several semaphores are watched, so that each line has the name.
    pub(super) several: bool,
}

pub(super) struct Watcher {
    semaphore: Semaphore,
    /// The last inspection, and the time of its request.
    last: Option<(Inspection, Instant)>,
    /// The store knew the semaphore at the last inspection.
    pub(super) is_known: bool,
    /// A key of another program looks like one of this semaphore.
    is_unreadable: bool,
    /// The reason why the semaphore could not be inspected, until it could be.
    pub(super) unreachable: Option<String>,
}

impl Watcher {
    pub(super) fn new(semaphore: Semaphore) -> Self {
        Self { semaphore, last: None, is_known: false, is_unreadable: false, unreachable: None }
    }

    /// Inspects the semaphore and prints the events since the last inspection.
    pub(super) async fn look(&mut self, lines: Lines<'_>) -> Result<(), Failure> {
        if self.is_unreadable {
            return Ok(());
        }
        let requested = Instant::now();
        let inspection = match self.semaphore.inspect().await {
            Ok(inspection) => inspection,
            Err(AdminError::Store(error))
                if error.is_temporary() && (self.last.is_some() || lines.several) =>
            {
                self.on_unreachable(report::with_causes(&error), lines);
                return Ok(());
            }
            Err(AdminError::Store(error)) if lines.several && error.concerns_one_semaphore() => {
                report::say(format_args!("not watched: {}", report::with_causes(&error)));
                self.is_unreadable = true;
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        let at = SystemTime::now();
        if self.unreachable.take().is_some() {
            self.print(&WatchEvent::Back, at, Some(&inspection), false, lines);
        }
        self.is_known = names::is_used(&inspection);
        let events = match &self.last {
            None => first(&inspection),
            Some((before, since)) => differences(before, &inspection, since.elapsed()),
        };
        let authored = events.iter().any(|event| matches!(event, WatchEvent::Changed { .. }));
        events.iter().for_each(|event| self.print(event, at, Some(&inspection), authored, lines));
        self.last = Some((inspection, requested));
        Ok(())
    }

    /// Prints that the store cannot be reached, once until it can be.
    fn on_unreachable(&mut self, reason: String, lines: Lines<'_>) {
        if self.unreachable.is_none() {
            let event = WatchEvent::Unreachable { reason: reason.clone() };
            self.print(&event, SystemTime::now(), None, false, lines);
            self.unreachable = Some(reason);
        }
    }

    /// Prints an event. `authored`: a change by an operator is among the events of the inspection.
    fn print(
        &self,
        event: &WatchEvent,
        at: SystemTime,
        inspection: Option<&Inspection>,
        authored: bool,
        lines: Lines<'_>,
    ) {
        let (name, Lines { output, json, several, .. }) = (self.semaphore.name(), lines);
        if !json {
            if text::is_worth_a_line(event, authored) {
                let state = || inspection.map(summary).unwrap_or_default();
                output.write_text(printable(&text::line(event, at, several.then_some(name), state)));
            }
            return;
        }
        let at_ms = unix_ms(at);
        match (event, inspection) {
            (WatchEvent::State, Some(inspection)) => {
                output.write(&StateLine::new(inspection, lines.store, at_ms));
            }
            _ => {
                let (held, waiting) = inspection.map(|seen| (seen.held, seen.waiting)).unzip();
                output.write(&WatchLine { event, at_ms, name, held, waiting });
            }
        }
    }
}
