//! The tables: what the statements are that read and write them.
//!
//! `semaphores` has the model's state of each as JSON, `news` what sessions of other processes are to hear, `meta`
//! the clock. The application id tells our files from others, the user version their form.

use rusqlite::{Connection, OptionalExtension as _, Transaction, TransactionBehavior};

use super::clock::{Boot, wall_us};
use crate::model::State;
use crate::protocol::Event;

/// Marks a file as ours: "prmt".
pub(super) const APPLICATION_ID: i64 = 0x7072_6D74;

/// The form of the tables.
pub(crate) const VERSION: i64 = 1;

/// How long news is kept for a session that does not come for it. Its renewals tell it the same.
const NEWS_MS: i64 = 600_000;

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

/// Room in a new file that nothing uses yet, for a few hundred holders and waiters. As long as what is stored takes
/// up no more than half of it (it is written anew before the old is given up), the file does not grow, so that
/// on a full disk the log can be emptied.
pub(super) const RESERVE_PAGES: i64 = 64;

pub(super) const RESERVE: &str = "
    CREATE TABLE reserve (room BLOB);
    INSERT INTO reserve VALUES (zeroblob(262144));
    PRAGMA wal_checkpoint(TRUNCATE);
    DROP TABLE reserve;
";

/// The marks by which a file shows its program and its schema.
pub(crate) struct Format {
    application_id: i64,
    pub(crate) version: i64,
    tables: i64,
}

impl Format {
    pub(crate) fn read(connection: &Connection) -> rusqlite::Result<Self> {
        let number = |sql| connection.query_row(sql, [], |row| row.get(0));
        let tables = number("SELECT count(*) FROM sqlite_schema")?;
        let application_id = number("PRAGMA application_id")?;
        Ok(Self { application_id, version: number("PRAGMA user_version")?, tables })
    }

    /// Whether the file has no content yet: `mktemp` makes such files.
    pub(crate) fn is_empty(&self) -> bool {
        (self.application_id, self.tables) == (0, 0)
    }

    /// Whether this library made the file, in any version.
    pub(crate) fn is_ours(&self) -> bool {
        self.application_id == APPLICATION_ID
    }
}

/// Makes the tables in an empty file, if nobody else has.
pub(super) fn initialize(connection: &mut Connection) -> rusqlite::Result<()> {
    // First, and outside of a transaction: it is remembered by the file.
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    let transaction = begin_writing(connection)?;
    let format = Format::read(&transaction)?;
    if format.is_empty() && format.version == 0 {
        transaction.execute_batch(SCHEMA)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.pragma_update(None, "user_version", VERSION)?;
    }
    transaction.commit()
}

pub(super) fn begin_writing(connection: &mut Connection) -> rusqlite::Result<Transaction<'_>> {
    connection.transaction_with_behavior(TransactionBehavior::Immediate)
}

/// The clock as the file has it.
pub(crate) struct Known {
    pub(crate) boot: String,
    pub(crate) base_us: i64,
    pub(crate) last_us: i64,
}

pub(crate) fn clock(connection: &Connection) -> rusqlite::Result<Known> {
    connection.query_row("SELECT boot, base_us, last_us FROM meta", [], |row| {
        Ok(Known { boot: row.get(0)?, base_us: row.get(1)?, last_us: row.get(2)? })
    })
}

/// The machine has restarted, unless another process has noticed meanwhile. Returns what to add to the time
/// since then.
pub(super) fn restart(transaction: &Transaction<'_>, boot: &Boot) -> rusqlite::Result<i64> {
    let known = clock(transaction)?;
    if known.boot == boot.id {
        return Ok(known.base_us);
    }
    let base_us = wall_us().max(known.last_us + 1) - boot.elapsed_us();
    transaction.execute("UPDATE meta SET boot = ?1, base_us = ?2", (&boot.id, base_us))?;
    end_all(transaction)?;
    Ok(base_us)
}

/// Nobody of before is alive.
fn end_all(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    transaction.execute("DELETE FROM news", [])?;
    let mut select = transaction.prepare("SELECT prefix, name, state FROM semaphores")?;
    let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    let rows: Vec<(String, String, String)> = rows.collect::<Result<_, _>>()?;
    for (prefix, name, text) in rows {
        // One that makes no sense is reported to whoever uses it.
        let Ok(mut state) = serde_json::from_str::<State>(&text) else { continue };
        state.end_all();
        store(transaction, &prefix, &name, &state)?;
    }
    Ok(())
}

/// Lets the file's clock go on to `elapsed_us` at least, and later than any time it had. `None` if somebody in
/// another boot has used the file since: another machine, for this one has not restarted.
pub(super) fn tick(
    transaction: &Transaction<'_>,
    elapsed_us: i64,
    boot: &Boot,
) -> rusqlite::Result<Option<i64>> {
    let sql = "UPDATE meta SET last_us = max(last_us + 1, ?1) WHERE boot = ?2 RETURNING last_us";
    transaction.prepare_cached(sql)?.query_row((elapsed_us, &boot.id), |row| row.get(0)).optional()
}

pub(super) fn stored(connection: &Connection, prefix: &str, name: &str) -> rusqlite::Result<Option<String>> {
    let sql = "SELECT state FROM semaphores WHERE prefix = ?1 AND name = ?2";
    connection.prepare_cached(sql)?.query_row((prefix, name), |row| row.get(0)).optional()
}

pub(super) fn store(
    transaction: &Transaction<'_>,
    prefix: &str,
    name: &str,
    state: &State,
) -> rusqlite::Result<()> {
    let text = serde_json::to_string(state)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
    let expires_ms =
        (!state.pinned && !state.paused).then(|| i64::try_from(state.expires_ms).unwrap_or(i64::MAX));
    let sql = "INSERT OR REPLACE INTO semaphores VALUES (?1, ?2, ?3, ?4)";
    transaction.prepare_cached(sql)?.execute((prefix, name, text, expires_ms))?;
    Ok(())
}

pub(super) fn forget(transaction: &Transaction<'_>, prefix: &str, name: &str) -> rusqlite::Result<()> {
    transaction.execute("DELETE FROM semaphores WHERE prefix = ?1 AND name = ?2", (prefix, name))?;
    Ok(())
}

/// Leaves events for the sessions of other processes.
pub(super) fn leave(transaction: &Transaction<'_>, events: &[Event], now_ms: i64) -> rusqlite::Result<()> {
    for event in events {
        let text = serde_json::to_string(event)
            .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
        transaction
            .prepare_cached("INSERT INTO news (session, made_ms, event) VALUES (?1, ?2, ?3)")?
            .execute((event.session.as_str(), now_ms, text))?;
    }
    Ok(())
}

pub(super) fn sweep(transaction: &Transaction<'_>, now_ms: i64) -> rusqlite::Result<()> {
    transaction.execute("DELETE FROM semaphores WHERE expires_ms <= ?1", [now_ms])?;
    transaction.execute("DELETE FROM news WHERE made_ms < ?1", [now_ms - NEWS_MS])?;
    Ok(())
}
