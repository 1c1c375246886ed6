//! The fixture of every test: a directory, a file in it, and a pool of workers.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::Duration;

use permits::{Client, Semaphore};
use permits::{ConnectError, StoreError};
use permits_testkit::sound::Named as _;
use permits_testkit::worker::{SEMAPHORE, Worker, WorkerPool, WorkerSettings, test_command};
use permits_testkit::{HANGS, wait};
use rusqlite::Connection;
use tempfile::TempDir;

/// A file that does not exist yet, and the workers that use it.
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

    /// For tests of one process.
    pub(crate) fn small() -> Self {
        Self::new(1, Duration::from_secs(10))
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory().join("semaphores.db")
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
        self.connect().expect("the file can be used")
    }

    pub(crate) fn connect(&self) -> Result<Client, ConnectError> {
        Client::builder(self.url()).lease(self.settings.lease).connect().wait()
    }

    /// The semaphore of the workers.
    pub(crate) fn semaphore(&self, client: &Client) -> Semaphore {
        client.named(SEMAPHORE, self.settings.limit)
    }

    /// The file, opened as by any program. In any other way it must not be opened: that would give up the
    /// client's locks.
    pub(crate) fn sqlite(&self) -> Connection {
        let connection = Connection::open(self.path()).expect("it can be opened");
        connection.busy_timeout(HANGS).expect("it can wait");
        connection
    }

    /// The waiters in the file. An inspection by a client would let time take effect.
    pub(crate) fn waiting(&self) -> i64 {
        let sql = "SELECT count(*) FROM semaphores, json_each(state, '$.queue') WHERE name = ?1";
        self.sqlite().query_row(sql, [SEMAPHORE], |row| row.get(0)).expect("it has the table")
    }

    /// Waits until `waiting` clients wait.
    #[track_caller]
    pub(crate) fn await_waiting(&self, waiting: i64) {
        let there = wait::until(|| self.waiting() == waiting);
        assert!(there, "{} wait, not {waiting}\n{}", self.waiting(), self.tail());
    }

    /// The semaphore is idle, all its slots can be had, and the file is sound.
    #[track_caller]
    pub(crate) fn assert_at_rest(&self) {
        let client = self.client();
        let semaphore = self.semaphore(&client);
        let left = || {
            let seen = semaphore.inspect().wait().expect("the file can be used");
            (seen.held, seen.waiting)
        };
        assert!(wait::until(|| left() == (0, 0)), "left: {:?}\n{}", left(), self.tail());
        let all = (0..self.settings.limit).map(|_| semaphore.try_acquire().wait().expect("all are free"));
        let mut slots: Vec<u32> = all.collect::<Vec<_>>().iter().map(|permit| permit.slot()).collect();
        slots.sort_unstable();
        assert!(slots.iter().copied().eq(0..slots.len() as u32), "each slot once: {slots:?}");
        client.close().wait().expect("the file can be used");
        self.assert_sound();
    }

    #[track_caller]
    pub(crate) fn assert_sound(&self) {
        let check: String = self
            .sqlite()
            .query_row("PRAGMA integrity_check", [], |row| row.get(0))
            .expect("it is a database");
        assert_eq!(check, "ok");
    }
}

pub(crate) fn url(path: &Path) -> String {
    format!("local:{}", path.display())
}

/// Waits until this process has no file of this directory open. A client may close its file a moment after
/// its own close.
#[track_caller]
pub(crate) fn await_closed(directory: &Path) {
    let is_open = || {
        let descriptors = std::fs::read_dir("/proc/self/fd").expect("the system lists them");
        let mut targets = descriptors.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
        targets.any(|target| target.starts_with(directory))
    };
    assert!(wait::until(|| !is_open()), "something in {} stays open", directory.display());
}

/// The error with which the store refuses.
#[track_caller]
pub(crate) fn refusal(result: Result<Client, ConnectError>) -> StoreError {
    match result {
        Err(ConnectError::Store(error)) => error,
        other => panic!("the store does not refuse: {other:?}"),
    }
}
