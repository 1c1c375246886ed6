//! The fixture of every test: a server, a pool of workers, and an observer.

use std::ops::Deref;
use std::time::Duration;

use permits::{Client, Inspection, Limit, Semaphore};
use permits_testkit::faults::at_rest;
use permits_testkit::real_time::always_counts;
use permits_testkit::sound::Named as _;
use permits_testkit::worker::{SEMAPHORE, Worker, WorkerPool, WorkerSettings, test_command};
use permits_testkit::{Server, wait};

/// A server, the workers that use it, and a client that only inspects.
pub(crate) struct Fixture {
    pub(crate) server: Server,
    pool: WorkerPool,
    observed: Semaphore,
}

impl Deref for Fixture {
    type Target = WorkerPool;

    fn deref(&self) -> &WorkerPool {
        &self.pool
    }
}

impl Fixture {
    pub(crate) fn new(limit: u32, lease: Duration) -> Self {
        Self::on(Server::start(), limit, lease)
    }

    pub(crate) fn on(server: Server, limit: u32, lease: Duration) -> Self {
        let settings = WorkerSettings { url: server.url(), ..WorkerSettings::new(limit, lease) };
        let pool = WorkerPool::new(|| test_command("worker_process"), settings);
        let client = Client::connect(&server.url()).wait().expect("the server is up");
        Self { server, pool, observed: client.named(SEMAPHORE, Limit::Stored) }
    }

    /// Lets the workers ask for the strict recovery window.
    pub(crate) fn strict(mut self) -> Self {
        self.pool.settings.url += "?recovery=strict";
        self
    }

    /// A worker, connected.
    pub(crate) fn worker(&self, label: &str) -> Worker {
        self.start_connected(label, &self.settings.url, self.settings.lease)
    }

    /// The semaphore, once the server answers.
    #[track_caller]
    pub(crate) fn inspect(&self) -> Inspection {
        let mut seen = None;
        wait::until(|| {
            seen = self.observed.inspect().wait().ok();
            seen.is_some()
        });
        seen.expect("the server answers")
    }

    #[track_caller]
    pub(crate) fn await_waiting(&self, waiting: u64) {
        let there = wait::until(|| self.inspect().waiting == waiting);
        assert!(there, "{} wait, not {waiting}\n{}", self.inspect().waiting, self.tail());
    }

    /// P10: the semaphore is idle, and all its units and slots are free.
    #[track_caller]
    pub(crate) fn assert_at_rest(&self) {
        let rest = at_rest(&self.server.url(), self.settings.limit);
        always_counts(|| rest.unwrap_or_else(|left| panic!("{left}\n{}", self.tail())));
    }
}
