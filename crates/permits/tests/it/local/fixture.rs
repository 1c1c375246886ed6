//! The fixture of every test: a directory, and a pool of workers that use it.

use std::fs;
use std::ops::Deref;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use permits::{Client, Semaphore};
use permits::{ConnectError, StoreError};
use permits_testkit::faults::at_rest;
use permits_testkit::sound::Named as _;
use permits_testkit::worker::{SEMAPHORE, Worker, WorkerPool, WorkerSettings, test_command};
use permits_testkit::{HOUR, wait};
use tempfile::TempDir;

/// A directory that does not exist yet, in one that does, and the workers that use it.
pub(crate) struct Fixture {
    directory: TempDir,
    pool: WorkerPool,
}

impl Deref for Fixture {
    type Target = WorkerPool;

    fn deref(&self) -> &WorkerPool {
        &self.pool
    }
}

impl Fixture {
    pub(crate) fn new(limit: u32, lease: Duration) -> Self {
        let pool =
            WorkerPool::new(|| test_command("local::worker_process"), WorkerSettings::new(limit, lease));
        Self { directory: TempDir::new().expect("there is room"), pool }
    }

    /// A fixture for tests of one process.
    pub(crate) fn small() -> Self {
        Self::new(1, Duration::from_secs(10))
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The directory of the store.
    pub(crate) fn path(&self) -> PathBuf {
        self.directory().join("permits")
    }

    /// The file of the workers' semaphore.
    pub(crate) fn state(&self) -> PathBuf {
        state(&self.path(), SEMAPHORE)
    }

    pub(crate) fn url(&self) -> String {
        url(&self.path())
    }

    /// A worker, connected.
    pub(crate) fn worker(&self, label: &str) -> Worker {
        self.pool.start_connected(label, &self.url(), self.settings.lease)
    }

    /// A client in this process.
    #[track_caller]
    pub(crate) fn client(&self) -> Client {
        self.connect().expect("the directory can be used")
    }

    pub(crate) fn connect(&self) -> Result<Client, ConnectError> {
        Client::builder(self.url()).lease(self.settings.lease).connect().wait()
    }

    /// The semaphore of the workers.
    pub(crate) fn semaphore(&self, client: &Client) -> Semaphore {
        client.named(SEMAPHORE, self.settings.limit)
    }

    /// The number of waiters.
    #[track_caller]
    pub(crate) fn waiting(&self) -> u64 {
        let client = self.client();
        let seen = self.semaphore(&client).inspect_up_to(0).wait().expect("the directory can be used");
        client.close().wait().expect("the directory can be used");
        seen.waiting
    }

    /// Waits until `waiting` clients wait.
    #[track_caller]
    pub(crate) fn await_waiting(&self, waiting: u64) {
        let there = wait::until(|| self.waiting() == waiting);
        assert!(there, "{} wait, not {waiting}\n{}", self.waiting(), self.tail());
    }

    /// The semaphore is idle, and all its units and slots are free.
    #[track_caller]
    pub(crate) fn assert_at_rest(&self) {
        let rest = at_rest(&self.url(), self.settings.limit);
        rest.unwrap_or_else(|left| panic!("{left}\n{}", self.tail()));
    }

    /// Makes all files look as if the machine had restarted since: written in an earlier boot, whose clock
    /// was ahead by so many microseconds. Of the processes that have used the directory, the last may be
    /// ending.
    pub(crate) fn restart(&self, ahead_us: i64) {
        assert!(wait::until(|| !self.has_reader()), "a session is open: {:?}", self.entries());
        for path in self.entries().into_iter().filter(|path| path.is_file()) {
            from_an_earlier_boot(&path, ahead_us);
        }
    }

    /// Makes all files look as if another machine, which runs now, had written them.
    pub(crate) fn use_elsewhere(&self) {
        for path in self.entries().into_iter().filter(|path| path.is_file()) {
            from_another_boot(&path, 0);
        }
    }

    fn entries(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.path()).expect("it is there");
        entries.map(|entry| entry.expect("it can be read").path()).collect()
    }

    /// Some process reads a FIFO of the directory.
    fn has_reader(&self) -> bool {
        let is_read = |path: &PathBuf| {
            let is_fifo = fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_fifo());
            let mut options = fs::File::options();
            options.write(true).custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32);
            is_fifo && options.open(path).is_ok()
        };
        self.entries().iter().any(is_read)
    }
}

/// The file of a semaphore in the directory of a store.
pub(crate) fn state(directory: &Path, semaphore: &str) -> PathBuf {
    directory.join(format!("permits:{semaphore}.state"))
}

/// Makes a file look as if written in another boot. `record.rs` of permits-store has the places in its two
/// headers.
pub(crate) fn from_another_boot(path: &Path, ahead_us: i64) {
    let mut bytes = fs::read(path).expect("it is there");
    for header in [0, 512].map(|at| at..at + 80) {
        let Some(header) = bytes.get_mut(header).filter(|header| header.starts_with(b"prmt")) else {
            continue;
        };
        header[8..24].copy_from_slice(&[0x5A; 16]);
        for time in [32, 40] {
            let place = &mut header[time..time + 8];
            let time_us = i64::from_le_bytes(place.as_ref().try_into().expect("it has eight bytes"));
            place.copy_from_slice(&(time_us + ahead_us).to_le_bytes());
        }
        let checksum = crc32fast::hash(&header[..76]);
        header[76..].copy_from_slice(&checksum.to_le_bytes());
    }
    fs::write(path, bytes).expect("it can be written");
}

/// The same, and before this machine started.
pub(crate) fn from_an_earlier_boot(path: &Path, ahead_us: i64) {
    from_another_boot(path, ahead_us);
    let file = fs::File::options().write(true).open(path).expect("it is ours");
    file.set_modified(SystemTime::UNIX_EPOCH + HOUR).expect("it is ours");
}

pub(crate) fn url(path: &Path) -> String {
    format!("local:{}", path.display())
}

/// The error with which the store refuses.
#[track_caller]
pub(crate) fn refusal(result: Result<Client, ConnectError>) -> StoreError {
    match result {
        Err(ConnectError::Store(error)) => error,
        other => panic!("the store does not refuse: {other:?}"),
    }
}
