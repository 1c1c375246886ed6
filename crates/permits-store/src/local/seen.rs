//! [`Seen`]: whether what a message says has happened.
//!
//! A message is sent before the state that has its event counts, and its sender may die in between. So its
//! reader looks at the semaphore, once the sender has unlocked the file.

use super::content::{read, state};
use super::directory::Directory;
use super::record::{Mark, Record};
use crate::clock::Moment;
use crate::error::StoreError;
use crate::model::{EntryState, State};
use crate::protocol::{Event, EventKind, Name};

/// A semaphore after all commands that messages have announced, to check which of these events have come to
/// pass: a process may have died before the half that has its event counted.
#[derive(Default)]
pub(super) struct Seen {
    mark: Option<Mark>,
    /// The number of the last write, in whichever boot.
    number: u64,
    text: Vec<u8>,
    /// The state in the text, once it was needed. With thousands of waiters that takes milliseconds.
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

    /// A semaphore whose file has this record.
    pub(super) fn of_record(directory: &Directory, record: Option<Record>) -> Self {
        let number = record.as_ref().map_or(0, |record| record.mark.number());
        match record.filter(|record| record.stamp.boot == directory.boot.id) {
            Some(Record { mark, text, .. }) => Self { mark: Some(mark), number, text, state: None },
            None => Self { number, ..Self::default() },
        }
    }

    /// Returns true if a message about `half` was sent before the command that has read this and writes next.
    /// Its sender had the lock before, and has counted its half or died.
    pub(super) fn is_behind(&self, half: Option<Mark>) -> bool {
        half.is_none_or(|half| half.number() <= self.number + 1)
    }

    /// Returns true if an event that `half` has came to pass, and nothing has undone it.
    pub(super) fn has(
        &mut self,
        directory: &Directory,
        event: &Event,
        half: Option<Mark>,
    ) -> Result<bool, StoreError> {
        if half.is_some() && self.mark == half {
            return Ok(true);
        }
        // Another command has followed.
        if self.state.is_none() {
            let state = || state(directory, &event.semaphore, &self.text);
            self.state = Some(self.mark.is_some().then(state).transpose()?);
        }
        let entry = self.state.iter().flatten().find_map(|state| state.entries.get(&event.holder));
        let place = entry.filter(|entry| entry.request == event.request).map(|entry| &entry.place);
        Ok(match (&event.kind, place) {
            (EventKind::Granted(grant), Some(EntryState::Holding(held))) => held == grant,
            (EventKind::Granted(_), _) => false,
            // A look without a result is harmless.
            (EventKind::Turn(_), _) => true,
            (
                EventKind::Revoked(_) | EventKind::Refused | EventKind::Superseded | EventKind::LineClosed(_),
                place,
            ) => !matches!(place, Some(EntryState::Waiting(_) | EntryState::Holding(_))),
        })
    }
}
