//! The file: how it is opened, followed when it is replaced, read and written.
//!
//! **Safe at any moment.** A write-ahead log with `synchronous=NORMAL`: a process may be killed, or the machine
//! lose power, at any moment, and the file is as some command left it. Only after a loss of power may that be an
//! earlier one than the last, but then the machine has restarted, and no lease counts any more. What an operator
//! sets is to outlast that: the log is synchronized before the answer.
//!
//! **Nothing on the way in or out.** The log stays when the last process closes the file, so that a short
//! program does not wait for the disk. The next one reads it over, so it is kept short.

use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::busy;
use super::clock::Boot;
use super::failure::{damaged, failure};
use super::place::{Files, Place};
use super::tables::{
    APPLICATION_ID, Format, RESERVE, RESERVE_PAGES, VERSION, begin_writing, clock, forget, initialize, leave,
    restart, store, stored, sweep, tick,
};
use crate::clock::Moment;
use crate::model::{self, ServerClock, State};
use crate::protocol::{Command, Event, InvalidInput, Name, Operation, Reply, SessionId};
use crate::store::StoreError;

/// How long to wait for other processes while opening.
pub(super) const OPENING: Duration = Duration::from_secs(5);

/// How long it may take from the deletion of the file or a companion to that of its directory.
const DELETING: Duration = Duration::from_millis(50);

/// How long it may take another program to make the companions, after it has begun to use the file.
const COMPLETING: Duration = Duration::from_millis(50);

/// How many pages the log has before its content is moved to where it belongs, which waits for the disk twice.
/// The first process that opens the file reads as many, at some 2 µs each.
const LOG_PAGES: u32 = 128;

/// The same for a process that has executed so many commands: it would wait for the disk often, and its log is
/// read over by the next process alone.
const BUSY_AFTER: u32 = 100;
const BUSY_LOG_PAGES: u32 = 1000;

/// Idle semaphores and news that nobody fetched are cleared away with one in so many commands.
const SWEEP_EVERY: u32 = 256;

/// An open file.
pub(super) struct Database {
    connection: Connection,
    place: Place,
    files: Files,
    prefix: String,
    boot: Boot,
    /// What to add to the time since the machine started.
    base_us: i64,
    /// The news up to here has been read, and can be deleted.
    read: i64,
    executed: u32,
}

impl Database {
    /// Opens the file, making it and the directories above it if there are none. Waits for other processes until
    /// `deadline`.
    pub(super) fn open(path: &Path, prefix: &str, deadline: Moment) -> Result<Self, StoreError> {
        busy::until(deadline);
        let explain = |trouble: Trouble| trouble.explain(path);
        for tries in 0.. {
            if tries > 0 && !busy::wait(tries) {
                break;
            }
            let place = Place::of(path).map_err(|error| explain(error.into()))?;
            place.prepare(fill).map_err(explain)?;
            // What is not there yet, or any more, is tried again.
            let Ok(before) = place.files() else { continue };
            let attempt = Self::attempt(&place, before, prefix);
            let same = place.files().is_ok_and(|after| after.is_file_of(&before));
            match attempt {
                Ok(Some(database)) if same => return Ok(database),
                Err(error) if same => return Err(error),
                Ok(_) | Err(_) => {}
            }
        }
        let reason = format!("{} is replaced again and again while it is opened", path.display());
        Err(StoreError::Unreachable { reason })
    }

    /// Opens the file that is there. Returns `None` if that has to be tried again, because the file or a companion is
    /// another now, or has been deleted here.
    ///
    /// In use, a file has both companions. If one is not there, either no process uses the file, or the companion was
    /// deleted: the users still see it, but would not see a connection that makes another.
    fn attempt(place: &Place, before: Files, prefix: &str) -> Result<Option<Self>, StoreError> {
        let explain = |trouble: Trouble| trouble.explain(place.named());
        let system = |error: std::io::Error| explain(error.into());
        let mut alone = None;
        if !before.are_complete() {
            let directory = place.alone().map_err(system)?;
            if is_without_its_companions(place).map_err(explain)? {
                place.discard(&directory).map_err(system)?;
                return Ok(None);
            }
            alone = Some(directory);
        }
        let connection = connect(place.file()).map_err(|error| explain(error.into()))?;
        let boot = Boot::current().map_err(system)?;
        let (place, prefix) = (place.clone(), prefix.to_owned());
        let mut database =
            Self { connection, place, files: before, prefix, boot, base_us: 0, read: 0, executed: 0 };
        database.accept()?;
        match database.place.files() {
            Ok(after) if after == before || alone.is_some() && after.are_complete() => database.files = after,
            // Among others: this process has a connection to the file already, and they share companions that were
            // deleted.
            _ => return Ok(None),
        }
        database.begin()?;
        Ok(Some(database))
    }

    /// Refuses a file that is not ours. Reads it, so that SQLite has opened the companions then.
    fn accept(&mut self) -> Result<(), StoreError> {
        let failed = |error| failure(self.place.named(), &error);
        let unsupported = |reason: String| Err(StoreError::Unsupported { reason });
        let file = self.place.named().display();
        let mut format = Format::read(&self.connection).map_err(failed)?;
        if format.is_empty() {
            // Empty, such as `mktemp` makes it; or just being filled by another process.
            initialize(&mut self.connection).map_err(failed)?;
            format = Format::read(&self.connection).map_err(failed)?;
            // That it is ours stands in the file itself from now on.
            let checkpoint = self.connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
            checkpoint.map_err(failed)?;
        }
        if !format.is_ours() {
            return unsupported(format!("{file} is a database of another program: name another file"));
        }
        let version = format.version;
        if version != VERSION {
            return unsupported(format!(
                "{file} has format version {version}, this program knows version {VERSION}: use the program that made it, or \
                 another file"
            ));
        }
        if self.connection.is_readonly(rusqlite::MAIN_DB).map_err(failed)? {
            let error = rusqlite::Error::SqliteFailure(
                rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_READONLY),
                None,
            );
            return Err(failed(error));
        }
        Ok(())
    }

    /// Notices a restart of the machine.
    fn begin(&mut self) -> Result<(), StoreError> {
        let failed = |error| failure(self.place.named(), &error);
        self.connection.pragma_update(None, "synchronous", "NORMAL").map_err(failed)?;
        limit_log(&self.connection, LOG_PAGES).map_err(failed)?;
        let boot = &self.boot;
        let known = clock(&self.connection).map_err(failed)?;
        self.base_us = if known.boot == boot.id {
            known.base_us
        } else {
            let transaction = begin_writing(&mut self.connection).map_err(failed)?;
            let base_us = restart(&transaction, boot).map_err(failed)?;
            transaction.commit().map_err(failed)?;
            base_us
        };
        Ok(())
    }

    /// The time since the file was first opened; as long as can be where that is not known.
    pub(super) fn age(&self) -> Duration {
        self.place.opened().ok().and_then(|opened| opened.elapsed().ok()).unwrap_or(Duration::MAX)
    }

    /// Opens the file that has the name now, if that is another than the one that is open. Says whether it was.
    ///
    /// The file that is open was deleted, or a companion: then the rest is deleted too, for new connections would not
    /// see this one. To its users it is as if the store had lost all it knew: holders that renew come back, if what
    /// they hold still fits.
    pub(super) fn follow(&mut self, deadline: Moment) -> Result<bool, StoreError> {
        match self.place.files() {
            Ok(files) if files == self.files => return Ok(false),
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                // Perhaps the process has given up rights that it needed to open it.
                return Ok(false);
            }
            Ok(files) if files.are_complete() => {}
            // The directory may be about to go too. Not to be in the way of that.
            Ok(_) | Err(_) => std::thread::sleep(DELETING),
        }
        if !self.place.directory().exists() {
            let reason = format!("{} was deleted, with its directory", self.place.named().display());
            return Err(StoreError::Unreachable { reason });
        }
        busy::until(deadline);
        self.discard().map_err(|error| Trouble::from(error).explain(self.place.named()))?;
        *self = Self::open(self.place.named(), &self.prefix, deadline)?;
        Ok(true)
    }

    /// Deletes the file, if it is still the one that is open, and its companions are others. Of several processes that
    /// notice, the first deletes it, and all follow to the same new one.
    fn discard(&self) -> std::io::Result<()> {
        let is_open = |files: &Files| files.is_file_of(&self.files) && *files != self.files;
        if !self.place.files().is_ok_and(|files| is_open(&files)) {
            return Ok(());
        }
        let alone = self.place.alone()?;
        if self.place.files().is_ok_and(|files| is_open(&files)) {
            self.place.discard(&alone)?;
        }
        Ok(())
    }

    /// Executes a command, waiting for other processes until `deadline`. Returns the reply, and the events that
    /// are for `session` itself.
    pub(super) fn execute(
        &mut self,
        command: &Command,
        session: &SessionId,
        deadline: Moment,
    ) -> Result<(Reply, Vec<Event>), StoreError> {
        busy::until(deadline);
        self.executed = self.executed.saturating_add(1);
        if self.executed == BUSY_AFTER {
            limit_log(&self.connection, BUSY_LOG_PAGES)
                .map_err(|error| failure(self.place.named(), &error))?;
        }
        let lasting = matches!(command.operation, Operation::SetLimit { .. } | Operation::Pause(_));
        if lasting {
            self.synchronize("FULL")?;
        }
        let result = match self.write(command, session) {
            // The log cannot grow.
            Err(StoreError::OutOfMemory { .. }) if self.make_room(&command.operation) => {
                self.write(command, session)
            }
            result => result,
        };
        if lasting {
            self.synchronize("NORMAL")?;
        }
        result
    }

    fn synchronize(&self, how: &str) -> Result<(), StoreError> {
        let set = self.connection.pragma_update(None, "synchronous", how);
        set.map_err(|error| failure(self.place.named(), &error))
    }

    fn write(&mut self, command: &Command, session: &SessionId) -> Result<(Reply, Vec<Event>), StoreError> {
        let failed = |error| failure(self.place.named(), &error);
        let (path, prefix, name) = (self.place.named(), self.prefix.as_str(), command.semaphore.as_str());
        let transaction = begin_writing(&mut self.connection).map_err(failed)?;
        // Read under the lock, so that time does not run backwards from one command to the next.
        let elapsed_us = self.base_us + self.boot.elapsed_us();
        let now_us = tick(&transaction, elapsed_us, &self.boot).map_err(failed)?;
        let Some(now_us) = now_us else {
            let reason = format!("another machine uses {} too: share a server instead", path.display());
            return Err(StoreError::Unsupported { reason });
        };
        let stored = stored(&transaction, prefix, name).map_err(failed)?;
        let mut state = stored.as_deref().map(|text| read_state(path, name, text)).transpose()?;
        let now = u64::try_from(now_us).unwrap_or_default();
        // Nothing is lost while the machine is up, so there is nothing to recover from.
        let server = ServerClock { now_us: now, run_id: "local", uptime_ms: u64::MAX };
        let (reply, events) = model::apply(&mut state, &server, command);
        match &state {
            Some(state) => store(&transaction, prefix, name, state).map_err(failed)?,
            None if stored.is_some() => forget(&transaction, prefix, name).map_err(failed)?,
            None => {}
        }
        let (own, others): (Vec<Event>, Vec<Event>) =
            events.into_iter().partition(|event| event.session == *session);
        leave(&transaction, &others, now_us / 1000).map_err(failed)?;
        if self.read > 0 {
            transaction
                .prepare_cached("DELETE FROM news WHERE session = ?1 AND id <= ?2")
                .and_then(|mut delete| delete.execute((session.as_str(), self.read)))
                .map_err(failed)?;
        }
        if fastrand::u32(..SWEEP_EVERY) == 0 {
            sweep(&transaction, now_us / 1000).map_err(failed)?;
        }
        transaction.commit().map_err(failed)?;
        self.read = 0;
        Ok((reply, own))
    }

    /// Moves what is in the log to where it belongs, so that the next command overwrites the log. Says whether
    /// that has been done, and whether there is room for this operation too: nobody is to be let in who might take
    /// the room that those inside need to renew and to release.
    fn make_room(&self, operation: &Operation) -> bool {
        let number = |sql| self.connection.query_row(sql, [], |row| row.get::<_, i64>(0));
        let blocked = number("PRAGMA wal_checkpoint(RESTART)");
        let takes_room = matches!(operation, Operation::Acquire { .. });
        let room = || number("PRAGMA freelist_count").is_ok_and(|pages| pages >= RESERVE_PAGES * 3 / 4);
        matches!(blocked, Ok(0)) && (!takes_room || room())
    }

    /// The semaphores of this prefix that are in use or kept.
    pub(super) fn list(&self, deadline: Moment) -> Result<Vec<Name>, StoreError> {
        busy::until(deadline);
        let failed = |error| failure(self.place.named(), &error);
        let now_ms = (self.base_us + self.boot.elapsed_us()) / 1000;
        let mut select = self
            .connection
            .prepare_cached(
                "SELECT name FROM semaphores WHERE prefix = ?1 AND (expires_ms IS NULL OR expires_ms > ?2) ORDER BY name",
            )
            .map_err(failed)?;
        let names = select.query_map((&self.prefix, now_ms), |row| row.get(0)).map_err(failed)?;
        let names: Vec<String> = names.collect::<Result<_, _>>().map_err(failed)?;
        let damaged = |invalid: InvalidInput| damaged(self.place.named(), invalid);
        names.iter().map(|name| Name::new(name).map_err(damaged)).collect()
    }

    /// Changes when another process has written.
    pub(super) fn version(&self) -> Result<i64, StoreError> {
        self.connection
            .prepare_cached("PRAGMA data_version")
            .and_then(|mut pragma| pragma.query_row([], |row| row.get(0)))
            .map_err(|error| failure(self.place.named(), &error))
    }

    /// What other processes have left for `session` since the last time. It is deleted with its next command:
    /// so whoever is granted something hears of it without waiting for anybody who writes.
    pub(super) fn news(&mut self, session: &SessionId) -> Result<Vec<Event>, StoreError> {
        let failed = |error| failure(self.place.named(), &error);
        let mut select = self
            .connection
            .prepare_cached("SELECT id, event FROM news WHERE session = ?1 AND id > ?2 ORDER BY id")
            .map_err(failed)?;
        let rows = select
            .query_map((session.as_str(), self.read), |row| Ok((row.get(0)?, row.get(1)?)))
            .map_err(failed)?;
        let rows: Vec<(i64, String)> = rows.collect::<Result<_, _>>().map_err(failed)?;
        let read = |(_, text): &(i64, String)| serde_json::from_str(text);
        let events = rows.iter().map(read).collect::<Result<_, _>>();
        self.read = rows.last().map_or(self.read, |(id, _)| *id);
        events.map_err(|error: serde_json::Error| damaged(self.place.named(), error))
    }

    /// How many stand in this line before the first of `session`'s.
    pub(super) fn position(&self, semaphore: &Name, session: &SessionId) -> Result<Option<u64>, StoreError> {
        let stored = stored(&self.connection, &self.prefix, semaphore.as_str())
            .map_err(|error| failure(self.place.named(), &error))?;
        let Some(text) = stored else { return Ok(None) };
        let state = read_state(self.place.named(), semaphore.as_str(), &text)?;
        let ours = |holder| state.entries.get(holder).is_some_and(|entry| entry.session == *session);
        Ok(state.queue.values().position(ours).map(|position| position as u64))
    }
}

/// What may go wrong while a file is made or opened.
enum Trouble {
    System(std::io::Error),
    Sqlite(rusqlite::Error),
}

impl From<std::io::Error> for Trouble {
    fn from(error: std::io::Error) -> Self {
        Self::System(error)
    }
}

impl From<rusqlite::Error> for Trouble {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl Trouble {
    fn explain(self, path: &Path) -> StoreError {
        let reason = |error: std::io::Error| format!("{}: {error}", path.display());
        match self {
            Self::System(error) if error.kind() == std::io::ErrorKind::StorageFull => {
                StoreError::OutOfMemory { reason: reason(error) }
            }
            Self::System(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                StoreError::Unreachable { reason: reason(error) }
            }
            Self::System(error) if error.kind() == std::io::ErrorKind::Unsupported => {
                StoreError::Unsupported { reason: reason(error) }
            }
            Self::System(error) => StoreError::Denied { reason: reason(error) },
            Self::Sqlite(error) => failure(path, &error),
        }
    }
}

/// Fills a new file, which has another name yet.
fn fill(path: &Path) -> Result<(), Trouble> {
    let filled = connect(path).and_then(|mut connection| {
        initialize(&mut connection)?;
        connection.execute_batch(RESERVE)?;
        // Closed without a log: it would keep the name that the file has now.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
        connection.close().map_err(|(_, error)| error)
    });
    filled.map_err(Trouble::Sqlite)
}

/// Whether a file that lacks a companion is in use: its users see companions that were deleted. If it is not, and is
/// ours, the content of its log is moved into it, and the companions are deleted. Called with the directory locked.
///
/// SQLite gives a connection the file for itself alone only if there is no other connection, in any process.
fn is_without_its_companions(place: &Place) -> Result<bool, Trouble> {
    let began = Moment::now();
    loop {
        match place.files() {
            Ok(files) if files.are_complete() => return Ok(false),
            Ok(_) => {}
            // What is not there is not in use; the caller notices.
            Err(_) => return Ok(false),
        }
        let connection = connect(place.file())?;
        connection.busy_timeout(Duration::ZERO)?;
        connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
        match Format::read(&connection) {
            Err(error) if is_busy(&error) => {}
            Ok(format) if format.is_ours() => {
                connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
                connection.close().map_err(|(_, error)| error)?;
                place.remove_companions()?;
                return Ok(false);
            }
            // Opening it tells.
            _ => return Ok(false),
        }
        if Moment::now().since(began) >= COMPLETING {
            break;
        }
        std::thread::sleep(COMPLETING / 50);
    }
    // Another program's file is not to be deleted, whatever is the matter with it.
    if is_ours(place.file())? {
        return Ok(true);
    }
    let reason = "it is in use, but not by this library, or its -wal or -shm was deleted: name another file";
    Err(std::io::Error::new(std::io::ErrorKind::Unsupported, reason).into())
}

/// Whether it stands in the file that it is ours. The companions are not looked at.
fn is_ours(path: &Path) -> rusqlite::Result<bool> {
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

fn is_busy(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{DatabaseBusy, DatabaseLocked};
    matches!(error.sqlite_error_code(), Some(DatabaseBusy | DatabaseLocked))
}

pub(crate) fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    // Before anything else: another program's file is not to be touched by closing it either.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    busy::install(&connection)?;
    Ok(connection)
}

fn limit_log(connection: &Connection, pages: u32) -> rusqlite::Result<()> {
    connection.pragma_update_and_check(None, "wal_autocheckpoint", pages, |_| Ok(()))
}

fn read_state(path: &Path, name: &str, text: &str) -> Result<State, StoreError> {
    let state: State =
        serde_json::from_str(text).map_err(|error| damaged(path, format!("semaphore {name:?}: {error}")))?;
    match state.check_invariants() {
        Some(reason) => Err(damaged(path, format!("semaphore {name:?}: {reason}"))),
        None => Ok(state),
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    fn open(path: &Path) -> Database {
        Database::open(path, "permits", Moment::now() + OPENING).expect("it is new")
    }

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
        let mut first = open(&path);
        // Locked from the first use on.
        first.news(&SessionId::new("s").expect("valid")).expect("it is open");
        let before = locks(&path);
        assert!(before > 0, "an open file is locked");
        Place::of(&path).expect("it is there").prepare(fill).ok().expect("it is ours");
        assert_eq!(locks(&path), before);
        drop(first);
    }

    #[test]
    fn a_new_file_and_its_directory_are_for_this_user_alone() {
        let directory = tempfile::TempDir::new().expect("there is room");
        let path = directory.path().join("new/semaphores.db");
        drop(open(&path));
        let mode = |path: &Path| fs::metadata(path).expect("it is there").mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().expect("it has one"))), (0o600, 0o700));
        for entry in fs::read_dir(directory.path().join("new")).expect("it is there") {
            let entry = entry.expect("it can be read").path();
            assert!(entry.to_string_lossy().contains("/semaphores.db"), "something else is left: {entry:?}");
            assert_eq!(mode(&entry), 0o600, "{entry:?}");
        }
    }
}
