//! The file: where it is, who may use it, and what is in it.
//!
//! Three tables: `semaphores` with the model's state of each as JSON, `news` for sessions of other processes,
//! and `meta` with the clock. The application id tells our files from others, the user version their form.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension as _, TransactionBehavior};

use super::clock::{Boot, wall_us};
use crate::model::{self, Server, State};
use crate::protocol::{Command, Event, Id, Invalid, Name, Reply};
use crate::store::StoreError;

/// Marks a file as ours: "prmt".
pub(super) const APPLICATION_ID: i64 = 0x7072_6D74;

/// The form of the tables.
pub(super) const VERSION: i64 = 1;

/// How long to wait for another process's transaction.
const BUSY: Duration = Duration::from_secs(5);

/// Idle semaphores and news that nobody fetched are cleared away every so many commands.
const SWEEP_EVERY: u64 = 256;

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
    CREATE TABLE news (id INTEGER PRIMARY KEY, session TEXT NOT NULL, made_ms INTEGER NOT NULL, event TEXT NOT NULL);
    CREATE INDEX news_of ON news (session);
    CREATE TABLE meta (boot TEXT NOT NULL, base_us INTEGER NOT NULL, last_us INTEGER NOT NULL);
    INSERT INTO meta VALUES ('', 0, 0);
";

/// An open file.
pub(super) struct Database {
    connection: Connection,
    path: PathBuf,
    prefix: String,
    boot: Boot,
    /// What to add to the time since the machine started.
    base_us: i64,
    executed: u64,
}

/// Where the file is unless said otherwise: in the user's state directory, else in the runtime directory.
pub(crate) fn default_path() -> Result<PathBuf, String> {
    let variable = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = variable("XDG_STATE_HOME").or_else(|| Some(variable("HOME")?.join(".local/state")));
    match state.or_else(|| variable("XDG_RUNTIME_DIR")) {
        Some(directory) => Ok(directory.join("permits/semaphores.db")),
        None => Err(
            "neither HOME nor XDG_STATE_HOME nor XDG_RUNTIME_DIR is set: name a file, local:/path/file.db"
                .into(),
        ),
    }
}

impl Database {
    pub(super) fn open(path: &Path, prefix: &str) -> Result<Self, StoreError> {
        let denied = |error: io::Error| StoreError::Denied { reason: format!("{}: {error}", path.display()) };
        prepare(path).map_err(denied)?;
        let boot = Boot::current().map_err(denied)?;
        let failed = |error| failure(path, error);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags).map_err(failed)?;
        connection.busy_timeout(BUSY).map_err(failed)?;
        let mut database = Self {
            connection,
            path: path.to_owned(),
            prefix: prefix.to_owned(),
            boot,
            base_us: 0,
            executed: 0,
        };
        database.begin()?;
        Ok(database)
    }

    /// Makes the tables in a new file, refuses one that is not ours, and notices a restart of the machine.
    fn begin(&mut self) -> Result<(), StoreError> {
        let failed = |error| failure(&self.path, error);
        let connection = &mut self.connection;
        // Survives the death of any process at any moment. After a loss of power the last commands may be
        // missing, but then the machine has restarted, and no lease counts any more.
        connection.pragma_update(None, "synchronous", "NORMAL").map_err(failed)?;
        let ours = |id: i64, tables: i64| id == APPLICATION_ID || (id == 0 && tables == 0);
        let transaction =
            connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
        let id: i64 =
            transaction.pragma_query_value(None, "application_id", |row| row.get(0)).map_err(failed)?;
        let tables = transaction
            .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
            .map_err(failed)?;
        let version: i64 =
            transaction.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(failed)?;
        if !ours(id, tables) {
            let reason = format!("{} is a database of another program", self.path.display());
            return Err(StoreError::Unsupported { reason });
        }
        if tables == 0 {
            transaction.execute_batch(SCHEMA).map_err(failed)?;
            transaction.pragma_update(None, "application_id", APPLICATION_ID).map_err(failed)?;
            transaction.pragma_update(None, "user_version", VERSION).map_err(failed)?;
        } else if version != VERSION {
            let reason = format!(
                "{} has form {version}, this program knows form {VERSION}: use another file, or the newer program",
                self.path.display()
            );
            return Err(StoreError::Unsupported { reason });
        }
        let (boot, base_us, last_us): (String, i64, i64) = transaction
            .query_row("SELECT boot, base_us, last_us FROM meta", [], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?))
            })
            .map_err(failed)?;
        self.base_us = base_us;
        if boot != self.boot.id {
            let elapsed_us = self.boot.elapsed_us();
            self.base_us = wall_us().max(last_us + 1) - elapsed_us;
            transaction
                .execute("UPDATE meta SET boot = ?1, base_us = ?2", (&self.boot.id, self.base_us))
                .map_err(failed)?;
            end_all(&transaction).map_err(failed)?;
        }
        transaction.commit().map_err(failed)?;
        // Outside of a transaction, and remembered by the file.
        let connection = &self.connection;
        connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(())).map_err(failed)
    }

    /// Executes a command. Returns the reply, and the events that are for `session` itself.
    pub(super) fn execute(
        &mut self,
        command: &Command,
        session: &Id,
    ) -> Result<(Reply, Vec<Event>), StoreError> {
        let malformed = |error: serde_json::Error| StoreError::Malformed { reason: error.to_string() };
        let failed = |error| failure(&self.path, error);
        self.executed += 1;
        let sweep = self.executed.is_multiple_of(SWEEP_EVERY);
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
        // Read under the lock, so that time does not run backwards from one command to the next.
        let now_us = self.base_us + self.boot.elapsed_us();
        let now_ms = now_us / 1000;
        let key = (self.prefix.as_str(), command.semaphore.as_str());
        let stored: Option<String> = transaction
            .prepare_cached("SELECT state FROM semaphores WHERE prefix = ?1 AND name = ?2")
            .and_then(|mut select| select.query_row(key, |row| row.get(0)).optional())
            .map_err(failed)?;
        let existed = stored.is_some();
        let mut state: Option<State> =
            stored.map(|text| serde_json::from_str(&text)).transpose().map_err(malformed)?;
        let now = u64::try_from(now_us).unwrap_or_default();
        // Nothing is lost while the machine is up, so there is nothing to recover from.
        let server = Server { now_us: now, run_id: "local", uptime_ms: u64::MAX };
        let (reply, events) = model::apply(&mut state, &server, command);
        if let Some(state) = &state {
            let text = serde_json::to_string(state).map_err(malformed)?;
            let expires_ms =
                (!state.pinned && !state.paused).then(|| i64::try_from(state.expires_ms).unwrap_or(i64::MAX));
            transaction
                .prepare_cached("INSERT OR REPLACE INTO semaphores VALUES (?1, ?2, ?3, ?4)")
                .and_then(|mut insert| insert.execute((key.0, key.1, text, expires_ms)))
                .map_err(failed)?;
        } else if existed {
            transaction
                .execute("DELETE FROM semaphores WHERE prefix = ?1 AND name = ?2", key)
                .map_err(failed)?;
        }
        let (own, others): (Vec<Event>, Vec<Event>) =
            events.into_iter().partition(|event| event.session == *session);
        for event in others {
            let text = serde_json::to_string(&event).map_err(malformed)?;
            transaction
                .prepare_cached("INSERT INTO news (session, made_ms, event) VALUES (?1, ?2, ?3)")
                .and_then(|mut insert| insert.execute((event.session.as_str(), now_ms, text)))
                .map_err(failed)?;
        }
        transaction
            .prepare_cached("UPDATE meta SET last_us = ?1")
            .and_then(|mut update| update.execute([now_us]))
            .map_err(failed)?;
        if sweep {
            transaction.execute("DELETE FROM semaphores WHERE expires_ms <= ?1", [now_ms]).map_err(failed)?;
            transaction.execute("DELETE FROM news WHERE made_ms < ?1", [now_ms - NEWS_MS]).map_err(failed)?;
        }
        transaction.commit().map_err(failed)?;
        Ok((reply, own))
    }

    /// The semaphores of this prefix that are in use or kept.
    pub(super) fn list(&self) -> Result<Vec<Name>, StoreError> {
        let failed = |error| failure(&self.path, error);
        let now_ms = (self.base_us + self.boot.elapsed_us()) / 1000;
        let mut select = self
            .connection
            .prepare_cached(
                "SELECT name FROM semaphores WHERE prefix = ?1 AND (expires_ms IS NULL OR expires_ms > ?2) ORDER BY name",
            )
            .map_err(failed)?;
        let names = select.query_map((&self.prefix, now_ms), |row| row.get(0)).map_err(failed)?;
        let names: Vec<String> = names.collect::<Result<_, _>>().map_err(failed)?;
        let malformed = |invalid: Invalid| StoreError::Malformed { reason: invalid.to_string() };
        names.iter().map(|name| Name::new(name).map_err(malformed)).collect()
    }

    /// Changes when another process has written.
    pub(super) fn version(&self) -> Result<i64, StoreError> {
        self.connection
            .prepare_cached("PRAGMA data_version")
            .and_then(|mut pragma| pragma.query_row([], |row| row.get(0)))
            .map_err(|error| failure(&self.path, error))
    }

    /// Takes what other processes have left for `session`.
    pub(super) fn take_news(&mut self, session: &Id) -> Result<Vec<Event>, StoreError> {
        let failed = |error| failure(&self.path, error);
        let any: Option<i64> = self
            .connection
            .prepare_cached("SELECT 1 FROM news WHERE session = ?1 LIMIT 1")
            .and_then(|mut select| select.query_row([session.as_str()], |row| row.get(0)).optional())
            .map_err(failed)?;
        if any.is_none() {
            return Ok(Vec::new());
        }
        let mut delete = self
            .connection
            .prepare_cached("DELETE FROM news WHERE session = ?1 RETURNING id, event")
            .map_err(failed)?;
        let rows =
            delete.query_map([session.as_str()], |row| Ok((row.get(0)?, row.get(1)?))).map_err(failed)?;
        let mut rows: Vec<(i64, String)> = rows.collect::<Result<_, _>>().map_err(failed)?;
        rows.sort_unstable();
        let read = |(_, text): &(i64, String)| serde_json::from_str(text);
        rows.iter()
            .map(read)
            .collect::<Result<_, _>>()
            .map_err(|error: serde_json::Error| StoreError::Malformed { reason: error.to_string() })
    }
}

/// The machine has restarted: nobody of before is alive.
fn end_all(transaction: &rusqlite::Transaction<'_>) -> rusqlite::Result<()> {
    transaction.execute("DELETE FROM news", [])?;
    let mut select = transaction.prepare("SELECT prefix, name, state FROM semaphores")?;
    let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    let rows: Vec<(String, String, String)> = rows.collect::<Result<_, _>>()?;
    for (prefix, name, text) in rows {
        let Ok(mut state) = serde_json::from_str::<State>(&text) else { continue };
        state.end_all();
        let text = serde_json::to_string(&state)
            .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
        transaction.execute(
            "UPDATE semaphores SET state = ?3 WHERE prefix = ?1 AND name = ?2",
            (prefix, name, text),
        )?;
    }
    Ok(())
}

/// Makes the file and the directory above it, for this user alone, and refuses another user's.
///
/// A file that is there is never opened here: closing it again would give up the locks of whoever has it open in
/// this process. A new one gets its name when it has been closed.
fn prepare(path: &Path) -> io::Result<()> {
    if !path.exists() {
        make(path)?;
    }
    let metadata = fs::metadata(path)?;
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no file"));
    }
    #[cfg(unix)]
    check_owner(&metadata)?;
    Ok(())
}

fn make(path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new("."));
    if !directory.exists() {
        let mut builder = DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(directory)?;
    }
    let own = directory.join(format!(".permits-{}-{:016x}", std::process::id(), fastrand::u64(..)));
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    drop(options.open(&own)?);
    let named = fs::hard_link(&own, path);
    fs::remove_file(&own)?;
    match named {
        // Another process was faster: its file will do.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        named => named,
    }
}

#[cfg(unix)]
fn check_owner(metadata: &fs::Metadata) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt as _;
    let (owner, user) = (metadata.uid(), rustix::process::geteuid().as_raw());
    let refused = |reason: String| Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
    if owner != user {
        return refused(format!("it belongs to user {owner}, not to user {user}"));
    }
    if metadata.mode() & 0o022 != 0 {
        return refused("others may write to it: chmod 600".into());
    }
    Ok(())
}

/// What an error of SQLite's means.
pub(super) fn failure(path: &Path, error: rusqlite::Error) -> StoreError {
    let reason = format!("{}: {error}", path.display());
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::Unreachable { reason },
        Some(ErrorCode::NotADatabase) => {
            StoreError::Unsupported { reason: format!("{} is not a database", path.display()) }
        }
        Some(ErrorCode::DatabaseCorrupt) => StoreError::Malformed { reason },
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
            StoreError::Denied { reason }
        }
        Some(ErrorCode::DiskFull) => StoreError::OutOfMemory { reason },
        _ => StoreError::Rejected { reason },
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    /// The locks of this process on a file, as the system lists them.
    fn locks(path: &Path) -> usize {
        let inode = fs::metadata(path).expect("it is there").ino();
        let (pid, inode) = (format!(" {} ", std::process::id()), format!(":{inode} "));
        let all = fs::read_to_string("/proc/locks").expect("the system lists locks");
        all.lines().filter(|line| line.contains(&pid) && line.contains(&inode)).count()
    }

    /// Closing any descriptor of a file gives up all locks that the process has on it, whoever took them. So a
    /// second client's look at the file once took the first one's lock away, and another process that closed
    /// the file would have taken itself for the last one, and deleted the log that the first one still used.
    #[test]
    fn opening_a_file_again_leaves_the_locks_of_who_has_it_open() {
        let directory = tempfile::TempDir::new().expect("there is room");
        let path = directory.path().join("semaphores.db");
        let mut first = Database::open(&path, "permits").expect("it is new");
        // Locked from the first use on.
        first.take_news(&Id::new("s").expect("valid")).expect("it is open");
        let before = locks(&path);
        assert!(before > 0, "an open file is locked");
        prepare(&path).expect("it is ours");
        assert_eq!(locks(&path), before);
        drop(first);
    }

    #[test]
    fn a_new_file_and_its_directory_are_for_this_user_alone() {
        let directory = tempfile::TempDir::new().expect("there is room");
        let path = directory.path().join("new/semaphores.db");
        drop(Database::open(&path, "permits").expect("it is new"));
        let mode = |path: &Path| fs::metadata(path).expect("it is there").mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().expect("it has one"))), (0o600, 0o700));
        let entries = fs::read_dir(directory.path().join("new")).expect("it is there").count();
        assert_eq!(entries, 1, "nothing else is left in it");
    }
}
