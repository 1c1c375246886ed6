//! The fixture of every test: a server, and a pool of workers.

use std::ops::Deref;
use std::time::Duration;

use permits::Recovery;
use permits_testkit::real_time::always_counts;
use permits_testkit::worker::{SEMAPHORE, Worker, WorkerPool, WorkerSettings, test_command};
use permits_testkit::{Resp, Server, wait};

use crate::packed;

/// A server, and the workers that use it.
pub(crate) struct Fixture {
    pub(crate) server: Server,
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
        Self::on(Server::start(), limit, lease)
    }

    pub(crate) fn on(server: Server, limit: u32, lease: Duration) -> Self {
        let settings = WorkerSettings { url: server.url(), ..WorkerSettings::new(limit, lease) };
        let pool = WorkerPool::new(|| test_command("worker_process"), settings);
        Self { server, pool }
    }

    /// Sets the recovery window of the workers. By default a server that has just been started counts as
    /// restarted, and grants its first permit after a third of the lease.
    pub(crate) fn recovery(mut self, recovery: Recovery) -> Self {
        self.pool.settings.recovery = recovery;
        self
    }

    /// A worker, connected.
    pub(crate) fn worker(&self, label: &str) -> Worker {
        self.start_connected(label, &self.server.url(), self.settings.lease)
    }

    /// A field of the state; 0 without one.
    pub(crate) fn state(&self, field: &str) -> u64 {
        packed::field(&self.server.command(&packed::reading_state(&key("state"))), field).unwrap_or(0)
    }

    /// The waiters, by the server.
    pub(crate) fn waiting(&self) -> usize {
        count(&self.server.command(&["ZCARD", &key("queue")]))
    }

    /// The holders and waiters, by the server.
    pub(crate) fn entries(&self) -> usize {
        count(&self.server.command(&["ZCARD", &key("leases")]))
    }

    /// The holders in the queue, in order.
    pub(crate) fn queue(&self) -> Vec<String> {
        let reply = self.server.command(&["ZRANGE", &key("queue"), "0", "-1"]);
        reply.array().iter().map(|holder| holder.text().to_owned()).collect()
    }

    #[track_caller]
    pub(crate) fn await_waiting(&self, waiting: usize) {
        let there = wait::until(|| self.waiting() == waiting);
        assert!(there, "{} wait, not {waiting}\n{}", self.waiting(), self.tail());
    }

    /// P10: the semaphore is idle, and all its slots are free.
    #[track_caller]
    pub(crate) fn assert_at_rest(&self) {
        let left = || {
            let free = count(&self.server.command(&["EXISTS", &key("free")]));
            let leases = count(&self.server.command(&["ZCARD", &key("leases")]));
            let [held, slots_made] = ["held", "slots_made"].map(|field| self.state(field));
            (held, slots_made, self.waiting(), self.entries(), leases, free)
        };
        let at_rest = wait::until(|| left() == (0, 0, 0, 0, 0, 0));
        let names = "(held, slots made, waiting, entries, leases, ranges of free slots)";
        always_counts(|| {
            assert!(at_rest, "left behind: {names} = {:?}\n{}", left(), self.tail());
        });
    }
}

fn key(part: &str) -> String {
    format!("permits:{{{SEMAPHORE}}}:{part}")
}

fn count(reply: &Resp) -> usize {
    usize::try_from(reply.int()).expect("a count is not negative")
}
