//! The schema of a file, and the statements that read and write it.
//!
//! The table `semaphores` has the model's state of each semaphore as JSON, `news` the events for sessions of
//! other processes, `meta` the clock. SQLite's application id marks the library's files, its user version is
//! the layout.

use rusqlite::{Connection, OptionalExtension as _, Transaction, TransactionBehavior};

use super::clock::{Boot, wall_us};
use crate::model::State;
use crate::protocol::{Event, Name, SessionId, layout};

/// The application id of the library's files: "prmt".
pub(super) const APPLICATION_ID: i64 = 0x7072_6D74;

/// The time after which an event is deleted that its session has not read. The session's renewals get the
/// same answer.
const EVENT_LIFETIME_MS: i64 = 600_000;

const SCHEMA: &str = "
    CREATE TABLE semaphores (
        prefix TEXT NOT NULL,
        name TEXT NOT NULL,
        state TEXT NOT NULL,
        expires_ms INTEGER,
        PRIMARY KEY (prefix, name)
    ) WITHOUT ROWID;
    CREATE TABLE news (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        session TEXT NOT NULL,
        made_ms INTEGER NOT NULL,
        event TEXT NOT NULL
    );
    CREATE INDEX news_of ON news (session);
    CREATE TABLE meta (boot TEXT NOT NULL, base_us INTEGER NOT NULL, last_us INTEGER NOT NULL);
    INSERT INTO meta VALUES ('', 0, 0);
";

/// Free pages in a new file, enough for a few hundred holders and waiters. SQLite writes new content before
/// it frees the old. So while the content needs at most half of these pages, the file does not grow, and on a
/// full disk the log can be emptied.
pub(super) const RESERVE_PAGES: i64 = 64;

pub(super) const FILL_RESERVE: &str = "
    CREATE TABLE reserve (room BLOB);
    INSERT INTO reserve VALUES (zeroblob(262144));
    PRAGMA wal_checkpoint(TRUNCATE);
    DROP TABLE reserve;
";

/// The marks of a file: the program that made it, and the layout.
pub(crate) struct Format {
    application_id: i64,
    pub(crate) layout: i64,
    tables: i64,
}

impl Format {
    pub(crate) fn read(connection: &Connection) -> rusqlite::Result<Self> {
        let number = |sql| connection.query_row(sql, [], |row| row.get(0));
        let tables = number("SELECT count(*) FROM sqlite_schema")?;
        let application_id = number("PRAGMA application_id")?;
        Ok(Self { application_id, layout: number("PRAGMA user_version")?, tables })
    }

    /// Returns true if the file has no content yet: `mktemp` makes such files.
    pub(crate) fn is_empty(&self) -> bool {
        (self.application_id, self.tables) == (0, 0)
    }

    /// Returns true if this library made the file, in any version.
    pub(crate) fn is_ours(&self) -> bool {
        self.application_id == APPLICATION_ID
    }
}

/// Makes the tables in an empty file, unless another process has made them.
pub(super) fn initialize(connection: &mut Connection) -> rusqlite::Result<()> {
    // Outside of a transaction, as SQLite demands. The file keeps the mode.
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    let transaction = begin_writing(connection)?;
    let format = Format::read(&transaction)?;
    if format.is_empty() && format.layout == 0 {
        transaction.execute_batch(SCHEMA)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.pragma_update(None, "user_version", layout())?;
    }
    transaction.commit()
}

pub(super) fn begin_writing(connection: &mut Connection) -> rusqlite::Result<Transaction<'_>> {
    connection.transaction_with_behavior(TransactionBehavior::Immediate)
}

/// The clock as the file stores it.
pub(crate) struct StoredClock {
    /// The boot in which the file was last used.
    pub(crate) boot: String,
    /// The store's time at the start of that boot.
    pub(crate) base_us: i64,
    /// The store's time of the last command.
    pub(crate) last_us: i64,
}

pub(crate) fn clock(connection: &Connection) -> rusqlite::Result<StoredClock> {
    connection.query_row("SELECT boot, base_us, last_us FROM meta", [], |row| {
        Ok(StoredClock { boot: row.get(0)?, base_us: row.get(1)?, last_us: row.get(2)? })
    })
}

/// Begins the time of this boot and ends all leases, unless another process has done so. Returns the store's
/// time at the start of the boot.
pub(super) fn begin_boot(transaction: &Transaction<'_>, boot: &Boot) -> rusqlite::Result<i64> {
    let stored = clock(transaction)?;
    if stored.boot == boot.id {
        return Ok(stored.base_us);
    }
    let base_us = wall_us().max(stored.last_us + 1) - boot.elapsed_us();
    transaction.execute("UPDATE meta SET boot = ?1, base_us = ?2", (&boot.id, base_us))?;
    end_all_leases(transaction)?;
    Ok(base_us)
}

/// Ends every lease: the machine restarted, so no earlier holder is alive.
fn end_all_leases(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    transaction.execute("DELETE FROM news", [])?;
    let mut select = transaction.prepare("SELECT prefix, name, state FROM semaphores")?;
    let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    let rows: Vec<(String, String, String)> = rows.collect::<Result<_, _>>()?;
    for (prefix, name, text) in rows {
        // A damaged state is reported to the next command on it.
        let Ok(mut state) = serde_json::from_str::<State>(&text) else { continue };
        state.clear_entries();
        save(transaction, &prefix, &name, &state)?;
    }
    Ok(())
}

/// Advances the file's clock to `elapsed_us` at least, and beyond every earlier time. `None` if the file was
/// used in another boot: by another machine, because this one has not restarted.
pub(super) fn advance_clock(
    transaction: &Transaction<'_>,
    elapsed_us: i64,
    boot: &Boot,
) -> rusqlite::Result<Option<i64>> {
    let sql = "UPDATE meta SET last_us = max(last_us + 1, ?1) WHERE boot = ?2 RETURNING last_us";
    transaction.prepare_cached(sql)?.query_row((elapsed_us, &boot.id), |row| row.get(0)).optional()
}

/// The time as [`advance_clock`] would make it, for a reader.
pub(super) fn read_clock(
    connection: &Connection,
    elapsed_us: i64,
    boot: &Boot,
) -> rusqlite::Result<Option<i64>> {
    let sql = "SELECT max(last_us, ?1) FROM meta WHERE boot = ?2";
    connection.prepare_cached(sql)?.query_row((elapsed_us, &boot.id), |row| row.get(0)).optional()
}

/// The stored state of a semaphore, as JSON.
pub(super) fn load(connection: &Connection, prefix: &str, name: &str) -> rusqlite::Result<Option<String>> {
    let sql = "SELECT state FROM semaphores WHERE prefix = ?1 AND name = ?2";
    connection.prepare_cached(sql)?.query_row((prefix, name), |row| row.get(0)).optional()
}

pub(super) fn save(
    transaction: &Transaction<'_>,
    prefix: &str,
    name: &str,
    state: &State,
) -> rusqlite::Result<()> {
    let text = serde_json::to_string(state)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
    let expires_ms = (!state.is_kept()).then(|| i64::try_from(state.expires_ms).unwrap_or(i64::MAX));
    let sql = "INSERT OR REPLACE INTO semaphores VALUES (?1, ?2, ?3, ?4)";
    transaction.prepare_cached(sql)?.execute((prefix, name, text, expires_ms))?;
    Ok(())
}

pub(super) fn delete(transaction: &Transaction<'_>, prefix: &str, name: &str) -> rusqlite::Result<()> {
    transaction.execute("DELETE FROM semaphores WHERE prefix = ?1 AND name = ?2", (prefix, name))?;
    Ok(())
}

/// A message to a session.
#[derive(serde::Serialize, serde::Deserialize)]
pub(super) enum News {
    Event(Event),
    /// Others need what the session keeps of this semaphore.
    Recall(Name),
}

/// Writes messages for the sessions of other processes.
pub(super) fn write_news(
    transaction: &Transaction<'_>,
    news: &[(SessionId, News)],
    now_ms: i64,
) -> rusqlite::Result<()> {
    for (session, news) in news {
        let text = serde_json::to_string(news)
            .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
        transaction
            .prepare_cached("INSERT INTO news (session, made_ms, event) VALUES (?1, ?2, ?3)")?
            .execute((session.as_str(), now_ms, text))?;
    }
    Ok(())
}

/// Deletes idle semaphores, and events that no session has read.
pub(super) fn sweep(transaction: &Transaction<'_>, now_ms: i64) -> rusqlite::Result<()> {
    transaction.execute("DELETE FROM semaphores WHERE expires_ms <= ?1", [now_ms])?;
    transaction.execute("DELETE FROM news WHERE made_ms < ?1", [now_ms - EVENT_LIFETIME_MS])?;
    Ok(())
}
