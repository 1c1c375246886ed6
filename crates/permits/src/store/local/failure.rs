//! What an error of SQLite's means, and what to do about it.

use std::fmt::Display;
use std::path::Path;

use rusqlite::{ErrorCode, ffi};

use crate::store::StoreError;

/// An error of SQLite's, for the session and for whoever reads it.
pub(crate) fn failure(path: &Path, error: &rusqlite::Error) -> StoreError {
    let file = path.display();
    let extended = error.sqlite_error().map(|error| error.extended_code).unwrap_or_default();
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::Unreachable {
            reason: format!("{file} is locked by another process; is one of its users stopped?"),
        },
        Some(ErrorCode::NotADatabase) => {
            StoreError::Unsupported { reason: format!("{file} is not a database: name another file") }
        }
        Some(ErrorCode::DatabaseCorrupt) => damaged(path, error),
        // A table or column is not there.
        Some(ErrorCode::Unknown) => damaged(path, error),
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
            StoreError::Denied {
                reason: format!("{file} and its directory must be writable for this user: {error}"),
            }
        }
        Some(ErrorCode::DiskFull) => {
            StoreError::OutOfMemory { reason: format!("the disk of {file} is full") }
        }
        // What is not "no space left": a quota, or the largest size that a file of this process may have.
        Some(ErrorCode::SystemIoFailure)
            if [ffi::SQLITE_IOERR_WRITE, ffi::SQLITE_IOERR_SHMSIZE].contains(&extended) =>
        {
            StoreError::OutOfMemory {
                reason: format!(
                    "{file} cannot be written; is a quota or a file size limit used up? ({error})"
                ),
            }
        }
        _ => StoreError::Rejected { reason: format!("{file}: {error}") },
    }
}

/// What stands in the file makes no sense.
pub(super) fn damaged(path: &Path, error: impl Display) -> StoreError {
    let file = path.display();
    StoreError::Malformed {
        reason: format!(
            "{file} is damaged ({error}): move it away with what is beside it, {file}-wal and {file}-shm, and a \
             new one is made; permits that are held go on in it"
        ),
    }
}
