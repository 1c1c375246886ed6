//! Connections of SQLite to a file: their flags, and the queries that need no schema.

use std::path::Path;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::busy;
use super::schema::APPLICATION_ID;

/// Opens an existing file. A statement on the connection waits for other processes until
/// [`busy::set_deadline`] says.
pub(crate) fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    // First, so that even closing the connection leaves another program's file as it is.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    busy::install(&connection)?;
    Ok(connection)
}

/// Closes the connection. If it is the last one, SQLite empties the log and deletes it.
pub(super) fn close_with_checkpoint(connection: Connection) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
    connection.close().map_err(|(_, error)| error)
}

/// Sets the number of pages of the log from which on a commit moves its content into the file.
pub(super) fn set_log_pages(connection: &Connection, pages: u32) -> rusqlite::Result<()> {
    connection.pragma_update_and_check(None, "wal_autocheckpoint", pages, |_| Ok(()))
}

/// Returns true if the file has the library's application id. Ignores the companions.
pub(super) fn has_application_id(path: &Path) -> rusqlite::Result<bool> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    let mut url = String::from("file:");
    for byte in path.as_os_str().as_encoded_bytes() {
        url.push_str(&format!("%{byte:02x}"));
    }
    url.push_str("?immutable=1");
    let connection = Connection::open_with_flags(url, flags)?;
    connection.query_row("PRAGMA application_id", [], |row| Ok(row.get::<_, i64>(0)? == APPLICATION_ID))
}

/// Returns true if another connection has a lock that excludes this one.
pub(super) fn is_locked(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{DatabaseBusy, DatabaseLocked};
    matches!(error.sqlite_error_code(), Some(DatabaseBusy | DatabaseLocked))
}
