//! The errors of SQLite and of the system, as errors of the store.

use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::path::Path;

use rusqlite::{ErrorCode, ffi};

use crate::store::error::StoreError;

/// The store's error for an error of SQLite on the file at `path`.
pub(crate) fn sqlite_error(path: &Path, error: &rusqlite::Error) -> StoreError {
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
        // A missing table or column.
        Some(ErrorCode::Unknown) => damaged(path, error),
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
            StoreError::Denied {
                reason: format!("{file} and its directory must be writable for this user: {error}"),
            }
        }
        Some(ErrorCode::DiskFull) => {
            StoreError::OutOfMemory { reason: format!("the disk of {file} is full") }
        }
        // A quota, or the process's limit on the size of a file. SQLite reports only "no space left" as
        // DiskFull.
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

/// The store's error for a file whose content cannot be decoded.
pub(super) fn damaged(path: &Path, error: impl Display) -> StoreError {
    let file = path.display();
    StoreError::Malformed {
        reason: format!(
            "{file} is damaged ({error}): move it away together with {file}-wal and {file}-shm, and the next program \
             makes a new file, in which holders keep their permits"
        ),
    }
}

/// A failure to make or open a file.
pub(super) enum CreateError {
    System(io::Error),
    Sqlite(rusqlite::Error),
}

impl From<io::Error> for CreateError {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

impl From<rusqlite::Error> for CreateError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl CreateError {
    /// The store's error for this failure on the file at `path`.
    pub(super) fn at(self, path: &Path) -> StoreError {
        let error = match self {
            Self::Sqlite(error) => return sqlite_error(path, &error),
            Self::System(error) => error,
        };
        let reason = format!("{}: {error}", path.display());
        match error.kind() {
            ErrorKind::StorageFull => StoreError::OutOfMemory { reason },
            ErrorKind::WouldBlock => StoreError::Unreachable { reason },
            ErrorKind::Unsupported => StoreError::Unsupported { reason },
            _ => StoreError::Denied { reason },
        }
    }
}
