//! [`Seen`]: finds out whether the event of a message has happened.
//!
//! A process sends a message before the state with the event counts, and may die in between. So the reader
//! looks at the semaphore once the sender has unlocked the file.

use super::content::{read, state};
use super::directory::Directory;
use super::record::{Mark, Record};
use crate::clock::Moment;
use crate::error::StoreError;
use crate::model::{EntryState, State};
use crate::protocol::{Event, EventKind, Name};

/// A semaphore at a time when all commands that have sent messages are over. It shows which of their events
/// have happened: a process may have died before its half of the file counted.
#[derive(Default)]
pub(super) struct Seen {
    mark: Option<Mark>,
    /// The number of the last write, whichever boot made it.
    number: u64,
    text: Vec<u8>,
    /// The state in the text, once it is needed: with thousands of waiters, parsing it takes milliseconds.
    state: Option<Option<State>>,
}

impl Seen {
    /// Reads a semaphore when the commands that have begun are over. Waits for them until `deadline`.
    pub(super) fn of(directory: &Directory, semaphore: &Name, deadline: Moment) -> Result<Self, StoreError> {
        let paths = directory.paths(semaphore);
        let Some(file) = directory.lock_existing(&paths.state, deadline)? else { return Ok(Self::default()) };
        let record = read(semaphore, &file, &paths.state)?;
        Ok(Self::of_record(directory, record))
    }

    /// The semaphore whose file has this record.
    pub(super) fn of_record(directory: &Directory, record: Option<Record>) -> Self {
        let number = record.as_ref().map_or(0, |record| record.mark.number());
        match record.filter(|record| record.stamp.boot == directory.boot.id) {
            Some(Record { mark, text, .. }) => Self { mark: Some(mark), number, text, state: None },
            None => Self { number, ..Self::default() },
        }
    }

    /// Returns true if a message about `half` was sent before the command that has read this and writes next.
    /// Then its sender had the lock before that command, and has made its half count, or has died. The number
    /// of a sender that has died is used again by this command: hence the 1.
    pub(super) fn is_behind(&self, half: Option<Mark>) -> bool {
        half.is_none_or(|half| half.number() <= self.number + 1)
    }

    /// Returns true if the event in `half` has happened, and nothing has undone it.
    pub(super) fn has(
        &mut self,
        directory: &Directory,
        event: &Event,
        half: Option<Mark>,
    ) -> Result<bool, StoreError> {
        if half.is_some() && self.mark == half {
            return Ok(true);
        }
        // Another command has followed, so look into the state.
        if self.state.is_none() {
            let state = || state(directory, &event.semaphore, &self.text);
            self.state = Some(self.mark.is_some().then(state).transpose()?);
        }
        let entry = self.state.iter().flatten().find_map(|state| state.entries.get(&event.holder));
        let place = entry.filter(|entry| entry.request == event.request).map(|entry| &entry.place);
        Ok(match (&event.kind, place) {
            (EventKind::Granted(grant), Some(EntryState::Holding(held))) => held == grant,
            (EventKind::Granted(_), _) => false,
            // The event only lets the session look again, which is harmless.
            (EventKind::Turn(_), _) => true,
            (
                EventKind::Revoked(_) | EventKind::Refused | EventKind::Superseded | EventKind::LineClosed(_),
                place,
            ) => !matches!(place, Some(EntryState::Waiting(_) | EntryState::Holding(_))),
        })
    }
}
