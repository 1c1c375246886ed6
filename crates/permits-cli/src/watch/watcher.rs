//! The watch of one semaphore.

use std::mem::{replace, take};
use std::time::SystemTime;

use permits::{AdminError, Inspection, Semaphore};

use super::line::{Line, differ, new_changes, state, timestamp};
use crate::clock::unix_ms;
use crate::exit::Failure;
use crate::names;
use crate::output::Output;
use crate::report;
use crate::status::StatusJson;
use crate::text::printable;

/// The lines of all watched semaphores.
#[derive(Clone, Copy)]
pub(super) struct Lines<'a> {
    pub(super) output: &'a Output,
    /// The store's URL without passwords.
    pub(super) store: &'a str,
    pub(super) json: bool,
    /// Several semaphores are watched: what concerns one of them ends nothing.
    pub(super) several: bool,
}

pub(super) struct Watcher {
    semaphore: Semaphore,
    /// The last inspection.
    last: Option<Inspection>,
    /// The store knew the semaphore at the last inspection.
    pub(super) is_known: bool,
    /// A key of another program looks like one of this semaphore, or its keys are damaged. Reported once,
    /// until it can be read again.
    is_unreadable: bool,
    /// The reason why the semaphore could not be inspected, until it could be.
    pub(super) unreachable: Option<String>,
}

impl Watcher {
    pub(super) fn new(semaphore: Semaphore) -> Self {
        Self { semaphore, last: None, is_known: false, is_unreadable: false, unreachable: None }
    }

    /// Inspects the semaphore. Prints the new changes by operators, and the state if it differs from the last
    /// one.
    pub(super) async fn look(&mut self, lines: Lines<'_>) -> Result<(), Failure> {
        let now = match self.semaphore.inspect().await {
            Ok(inspection) => inspection,
            Err(AdminError::Store(error))
                if error.is_temporary() && (self.last.is_some() || lines.several) =>
            {
                self.on_unreachable(report::with_causes(&error), lines);
                return Ok(());
            }
            Err(AdminError::Store(error)) if lines.several && error.concerns_one_semaphore() => {
                if !replace(&mut self.is_unreadable, true) {
                    report::say(format_args!("not watched: {}", report::with_causes(&error)));
                }
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        let was_hidden = self.unreachable.take().is_some() | take(&mut self.is_unreadable);
        self.is_known = names::is_used(&now);
        let before = self.last.as_ref();
        for change in before.map(|before| new_changes(before, &now)).unwrap_or_default() {
            let text = || format!("{}: {} {}", now.name, change.by, change.change);
            lines.print(change.at, text, Line::Changed { name: &now.name, change });
        }
        if was_hidden || before.is_none_or(|before| differ(before, &now)) {
            let at = SystemTime::now();
            let status = StatusJson { inspection: &now, store: lines.store };
            lines.print(at, || state(before, &now), Line::State { at_ms: unix_ms(at), status });
        }
        self.last = Some(now);
        Ok(())
    }

    /// Prints that the store cannot be reached, once until it can be.
    fn on_unreachable(&mut self, reason: String, lines: Lines<'_>) {
        if self.unreachable.is_none() {
            let (at, name) = (SystemTime::now(), self.semaphore.name());
            let line = Line::Unreachable { at_ms: unix_ms(at), name, reason: &reason };
            lines.print(at, || format!("{name}: unreachable: {reason}"), line);
            self.unreachable = Some(reason);
        }
    }
}

impl Lines<'_> {
    fn print(self, at: SystemTime, text: impl FnOnce() -> String, line: Line<'_>) {
        if self.json {
            self.output.write(&line);
        } else {
            self.output.write_text(printable(&format!("{}  {}", timestamp(at), text())));
        }
    }
}
