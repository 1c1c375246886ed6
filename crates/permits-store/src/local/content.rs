//! The content of a semaphore's file: the name that it belongs to, the state, and the news that no message
//! could carry.

use std::fs::File;
use std::path::Path;

use super::directory::{Directory, failure};
use super::record::{Fault, Record};
use super::untold::Untold;
use crate::error::StoreError;
use crate::model::State;
use crate::protocol::{Name, layout};

/// Reads the record of a semaphore's file, whichever boot wrote it.
pub(super) fn read(semaphore: &Name, file: &File, path: &Path) -> Result<Option<Record>, StoreError> {
    Record::read(file).map_err(|error| failure(path, &error))?.map_err(|fault| match fault {
        Fault::OtherLayout(found) => {
            let what = path.display().to_string();
            StoreError::OtherLayout { what, found, supported: layout().into() }
        }
        Fault::Unreadable(reason) => unreadable(semaphore, format!("{}: {reason}", path.display())),
        Fault::Text(_) => unreadable(semaphore, format!("{}: its content is damaged", path.display())),
    })
}

/// Reads the state in a text.
pub(super) fn state(directory: &Directory, semaphore: &Name, text: &[u8]) -> Result<State, StoreError> {
    parse(directory, semaphore, text).map(|(state, _)| state)
}

/// Reads the state in a text, and what sessions were not told of it. Each is a line.
pub(super) fn parse(
    directory: &Directory,
    semaphore: &Name,
    text: &[u8],
) -> Result<(State, Untold), StoreError> {
    let key = directory.key(semaphore);
    let Some(lines) = text.strip_prefix(key.as_bytes()).and_then(|rest| rest.strip_prefix(b"\n")) else {
        return Err(unreadable(semaphore, "its file is of another semaphore".into()));
    };
    let mut lines = lines.splitn(2, |byte| *byte == b'\n');
    let failed = |error: serde_json::Error| unreadable(semaphore, error.to_string());
    let state: State = serde_json::from_slice(lines.next().unwrap_or_default()).map_err(failed)?;
    state.check_invariants().map_err(|reason| unreadable(semaphore, reason))?;
    let untold = lines.next().map(serde_json::from_slice).transpose().map_err(failed)?;
    Ok((state, untold.unwrap_or_default()))
}

/// Makes the text of a state, and of what sessions were not told of it.
pub(super) fn text(
    directory: &Directory,
    semaphore: &Name,
    state: &State,
    untold: &Untold,
) -> Result<Vec<u8>, StoreError> {
    let mut text = directory.key(semaphore).into_bytes();
    text.push(b'\n');
    let failed = |error: serde_json::Error| StoreError::Rejected { reason: error.to_string() };
    serde_json::to_writer(&mut text, state).map_err(failed)?;
    if !untold.is_empty() {
        text.push(b'\n');
        serde_json::to_writer(&mut text, untold).map_err(failed)?;
    }
    Ok(text)
}

pub(super) fn unreadable(semaphore: &Name, reason: String) -> StoreError {
    StoreError::Unreadable { semaphore: semaphore.to_string(), reason }
}
