//! An open file: making it if there is none, refusing files of other programs, and following to another file
//! when it or a companion is replaced.
//!
//! A file in use has both companions. If one is missing, either no process uses the file, or the companion
//! was deleted: its users still have it open, but a new connection would make another companion and not see
//! those users.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::Duration;

use rusqlite::Connection;

use super::busy;
use super::clock::Boot;
use super::connection::{close_with_checkpoint, connect, has_application_id, is_locked, set_log_pages};
use super::error::{CreateError, sqlite_error};
use super::path::{FilePaths, Files};
use super::schema::{FILL_RESERVE, Format, begin_boot, begin_writing, clock, initialize};
use crate::clock::Moment;
use crate::protocol::layout;
use crate::store::error::StoreError;

/// The timeout of opening a file, while other processes have locks.
pub(super) const OPEN_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest time from the deletion of the file or a companion to the deletion of its directory.
const DELETING: Duration = Duration::from_millis(50);

/// The longest time that another program takes to make the companions after it has begun to use the file.
const COMPLETING: Duration = Duration::from_millis(50);

/// The number of pages of the log from which on its content is moved into the file, which waits for the disk
/// twice. The first process that opens the file reads the whole log, at some 2 µs a page.
const LOG_PAGES: u32 = 128;

/// An open file.
pub(super) struct OpenFile {
    pub(super) connection: Connection,
    pub(super) paths: FilePaths,
    /// The file and its companions that the connection has open.
    pub(super) files: Files,
    pub(super) boot: Boot,
    /// The store's time when the machine started.
    pub(super) base_us: i64,
}

impl OpenFile {
    /// Opens the file, and makes it and the directories above it if there are none. Waits for other processes
    /// until `deadline`.
    pub(super) fn open(path: &Path, deadline: Moment) -> Result<Self, StoreError> {
        busy::set_deadline(deadline);
        let failed = |error: CreateError| error.at(path);
        for tries in 0.. {
            if tries > 0 && !busy::wait(tries) {
                break;
            }
            let paths = FilePaths::of(path).map_err(|error| failed(error.into()))?;
            paths.prepare(fill).map_err(failed)?;
            // A file that is deleted meanwhile is made by the next attempt.
            let Ok(before) = paths.files() else { continue };
            let attempt = Self::attempt(&paths, before);
            let same = paths.files().is_ok_and(|after| after.is_file_of(&before));
            match attempt {
                Ok(Some(file)) if same => return Ok(file),
                Err(error) if same => return Err(error),
                Ok(_) | Err(_) => {}
            }
        }
        let reason = format!("{} is replaced again and again while it is opened", path.display());
        Err(StoreError::Unreachable { reason })
    }

    /// Opens the existing file. Returns `None` if the caller must retry, because the file or a companion was
    /// replaced, or was deleted here.
    fn attempt(paths: &FilePaths, before: Files) -> Result<Option<Self>, StoreError> {
        let failed = |error: CreateError| error.at(paths.named());
        let system = |error: io::Error| failed(error.into());
        let mut lock = None;
        if !before.are_complete() {
            let directory = paths.lock_directory().map_err(system)?;
            if lost_its_companions(paths).map_err(failed)? {
                paths.delete(&directory).map_err(system)?;
                return Ok(None);
            }
            lock = Some(directory);
        }
        let connection = connect(paths.file()).map_err(|error| failed(error.into()))?;
        let boot = Boot::current().map_err(system)?;
        let mut file = Self { connection, paths: paths.clone(), files: before, boot, base_us: 0 };
        file.check_format()?;
        match file.paths.files() {
            Ok(after) if after == before || lock.is_some() && after.are_complete() => file.files = after,
            // This includes a process with another connection to the file, whose companions were deleted:
            // SQLite gives the new connection the same ones.
            _ => return Ok(None),
        }
        file.begin()?;
        Ok(Some(file))
    }

    /// Refuses a file of another program or format. The check reads the file, so SQLite has opened the
    /// companions after it.
    fn check_format(&mut self) -> Result<(), StoreError> {
        let failed = |error| sqlite_error(self.paths.named(), &error);
        let unsupported = |reason: String| Err(StoreError::Unsupported { reason });
        let file = self.paths.named().display();
        let mut format = Format::read(&self.connection).map_err(failed)?;
        if format.is_empty() {
            // `mktemp` makes empty files; or another process is just making the tables.
            initialize(&mut self.connection).map_err(failed)?;
            format = Format::read(&self.connection).map_err(failed)?;
            // Moves the application id from the log into the file, where `has_application_id` reads it.
            let checkpoint = self.connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
            checkpoint.map_err(failed)?;
        }
        if !format.is_ours() {
            return unsupported(format!("{file} is a database of another program: name another file"));
        }
        if format.layout != i64::from(layout()) {
            let found = u32::try_from(format.layout).unwrap_or_default();
            return Err(StoreError::OtherLayout {
                what: file.to_string(),
                found,
                supported: layout().into(),
            });
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

    /// Sets the connection up, and reads the clock. After a restart of the machine, ends all leases.
    fn begin(&mut self) -> Result<(), StoreError> {
        let failed = |error| sqlite_error(self.paths.named(), &error);
        self.connection.pragma_update(None, "synchronous", "NORMAL").map_err(failed)?;
        set_log_pages(&self.connection, LOG_PAGES).map_err(failed)?;
        let stored = clock(&self.connection).map_err(failed)?;
        self.base_us = if stored.boot == self.boot.id {
            stored.base_us
        } else {
            let transaction = begin_writing(&mut self.connection).map_err(failed)?;
            let base_us = begin_boot(&transaction, &self.boot).map_err(failed)?;
            transaction.commit().map_err(failed)?;
            base_us
        };
        Ok(())
    }

    /// The store's time by this process's clock. The file's clock may be ahead: see
    /// [`super::schema::advance_clock`].
    pub(super) fn elapsed_us(&self) -> i64 {
        self.base_us + self.boot.elapsed_us()
    }

    /// The time since the file was first opened; [`Duration::MAX`] if the system does not know it.
    pub(super) fn age(&self) -> Duration {
        self.paths.opened_at().ok().and_then(|opened| opened.elapsed().ok()).unwrap_or(Duration::MAX)
    }

    /// Opens the file that has the name now, if it is another file than the open one, or has other
    /// companions. Returns whether it has opened another.
    ///
    /// If the open file or a companion was deleted, deletes the rest, because new connections would not see
    /// this one. For the sessions it is as if the store had lost its state: holders reclaim their permits if
    /// those still fit.
    pub(super) fn follow(&mut self, deadline: Moment) -> Result<bool, StoreError> {
        match self.paths.files() {
            Ok(files) if files == self.files => return Ok(false),
            // The process may have given up rights that it needed to open the file.
            Err(error) if error.kind() != ErrorKind::NotFound => return Ok(false),
            Ok(files) if files.are_complete() => {}
            // A new file would obstruct a program that is deleting the directory.
            Ok(_) | Err(_) => std::thread::sleep(DELETING),
        }
        let path = self.paths.named();
        if !self.paths.directory().exists() {
            let reason = format!("{} was deleted, with its directory", path.display());
            return Err(StoreError::Unreachable { reason });
        }
        busy::set_deadline(deadline);
        self.delete_without_companions().map_err(|error| CreateError::from(error).at(path))?;
        *self = Self::open(path, deadline)?;
        Ok(true)
    }

    /// Deletes the file if it has other companions now. Of several processes that notice it, the first
    /// deletes the file, and all follow to the same new one.
    fn delete_without_companions(&self) -> io::Result<()> {
        let has_others =
            || self.paths.files().is_ok_and(|files| files.is_file_of(&self.files) && files != self.files);
        if !has_others() {
            return Ok(());
        }
        let lock = self.paths.lock_directory()?;
        if has_others() {
            self.paths.delete(&lock)?;
        }
        Ok(())
    }
}

/// Makes the tables and the reserve in a new file, which has a temporary name.
fn fill(path: &Path) -> Result<(), CreateError> {
    let mut connection = connect(path)?;
    initialize(&mut connection)?;
    connection.execute_batch(FILL_RESERVE)?;
    // Without a log, because a log would keep the temporary name.
    Ok(close_with_checkpoint(connection)?)
}

/// Returns true if a file without a companion is in use, so that its users have companions that were deleted.
/// If the file is the library's and not in use, moves the content of its log into it and deletes the
/// companions. The caller has locked the directory.
///
/// SQLite gives a connection exclusive access only if no process has another connection.
fn lost_its_companions(paths: &FilePaths) -> Result<bool, CreateError> {
    let began = Moment::now();
    loop {
        match paths.files() {
            Ok(files) if files.are_complete() => return Ok(false),
            Ok(_) => {}
            // A file that was deleted is not in use; the caller finds it missing.
            Err(_) => return Ok(false),
        }
        let connection = connect(paths.file())?;
        connection.busy_timeout(Duration::ZERO)?;
        connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
        match Format::read(&connection) {
            Err(error) if is_locked(&error) => {}
            Ok(format) if format.is_ours() => {
                close_with_checkpoint(connection)?;
                paths.delete_companions()?;
                return Ok(false);
            }
            // The caller opens the file and finds its fault.
            _ => return Ok(false),
        }
        if Moment::now().since(began) >= COMPLETING {
            break;
        }
        std::thread::sleep(COMPLETING / 50);
    }
    // Another program's file is never deleted.
    if has_application_id(paths.file())? {
        return Ok(true);
    }
    let reason = "it is in use, but not by this library, or its -wal or -shm was deleted: name another file";
    Err(io::Error::new(ErrorKind::Unsupported, reason).into())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    fn open(path: &Path) -> OpenFile {
        OpenFile::open(path, Moment::now() + OPEN_TIMEOUT).expect("it is new")
    }

    /// The number of this process's locks on a file, as the system lists them.
    fn locks(path: &Path) -> usize {
        let inode = fs::metadata(path).expect("it is there").ino();
        let (pid, inode) = (format!(" {} ", std::process::id()), format!(":{inode} "));
        let all = fs::read_to_string("/proc/locks").expect("the system lists locks");
        all.lines().filter(|line| line.contains(&pid) && line.contains(&inode)).count()
    }

    /// Closing any descriptor of a file gives up all locks that the process has on it. So a second client
    /// that only inspected the file once took the first client's lock away, and another process that closed
    /// the file would have taken itself for the last one, and deleted the log that the first client still
    /// used.
    #[test]
    fn opening_a_file_again_leaves_the_locks_of_its_other_connections() {
        let directory = tempfile::TempDir::new().expect("there is room");
        let path = directory.path().join("semaphores.db");
        let first = open(&path);
        // The first read takes the lock.
        first.connection.query_row("PRAGMA data_version", [], |_| Ok(())).expect("it is open");
        Format::read(&first.connection).expect("it is open");
        let before = locks(&path);
        assert!(before > 0, "an open file is locked");
        FilePaths::of(&path).expect("it is there").prepare(fill).ok().expect("it is ours");
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
