//! The store of a cell, the workers that use it, and the fenced resource that they write to.

use std::process::Command;
use std::time::Duration;

use permits::{Change, Client, Limit};

use super::{Fault, OTHER, Promise};
use crate::cluster::slot as hash_slot;
use crate::driver::Subject;
use crate::history::{ClientEvent, now};
use crate::sentinel::SERVICE;
use crate::worker::{
    Mix, SEMAPHORE, Wait, Work, Worker, WorkerCommand, WorkerPool, WorkerSettings, parse_unique_holder,
};
use crate::{Cluster, FencedServer, Proxy, Sentinels, Server, wait};

/// The number of processes that use the semaphore.
pub(super) const WORKERS: usize = 10;

/// The lease of all permits.
pub(super) const LEASE: Duration = Duration::from_secs(2);

/// The time for which keepers keep a permit that they do not use: the longest with this lease.
const KEEP: Duration = LEASE.checked_div(3).expect("3 is not 0");

/// The servers on which a semaphore lives.
pub(super) enum Deployment {
    /// A server, with a proxy for each worker, or without proxies.
    Server { server: Server, proxies: Vec<Proxy> },
    /// Servers watched by sentinels, of which every worker knows all.
    Sentinels(Sentinels),
    /// Servers watched by sentinels. Half of the workers know the first sentinel alone, the other half the
    /// other sentinels.
    Parted(Sentinels),
    /// A cluster.
    Cluster(Cluster),
}

impl Deployment {
    pub(super) fn server() -> Self {
        Self::Server { server: Server::start(), proxies: Vec::new() }
    }

    /// A server with an append-only file that is synced `always` or `everysec`.
    pub(super) fn append_only(fsync: &str) -> Self {
        let server = Server::builder().append_only().arg("appendfsync", fsync).start();
        Self::Server { server, proxies: Vec::new() }
    }

    /// Puts a proxy before the server for each worker.
    pub(super) fn proxied(self) -> Self {
        let Self::Server { server, .. } = self else { panic!("only a single server has proxies here") };
        let proxies = (0..WORKERS).map(|_| Proxy::start(server.address())).collect();
        Self::Server { server, proxies }
    }

    /// The URL by which this worker reaches the store.
    pub(super) fn url(&self, worker: usize) -> String {
        match self {
            Self::Server { server, proxies } => proxies.get(worker).map_or_else(|| server.url(), Proxy::url),
            Self::Sentinels(set) => set.url(),
            Self::Parted(set) => {
                let (first, others) = set.sentinels().split_at(1);
                let known = if worker.is_multiple_of(2) { first } else { others };
                let hosts: Vec<String> = known.iter().map(|it| it.address().to_string()).collect();
                format!("redis+sentinel://{}/{SERVICE}", hosts.join(","))
            }
            Self::Cluster(cluster) => cluster.url(),
        }
    }
}

/// The work of all workers. Holds are mostly short, so that much happens; some outlast the lease, so that a
/// fault meets a permit that is being renewed.
fn work(limit: u32) -> Work {
    let millis = |from, to| Duration::from_millis(from)..Duration::from_millis(to);
    Work {
        loops: 2,
        weight: if limit > 1 { Mix(vec![(3, 1), (1, 2)]) } else { Mix::all(1) },
        lease: None,
        lanes: 0,
        lane_limit: 0,
        lane_floor: 0,
        sets: false,
        wait: Mix(vec![
            (8, Wait::Granted),
            (1, Wait::Timeout(millis(50, 1550))),
            (1, Wait::Cancel(millis(0, 300))),
        ]),
        hold: Mix(vec![
            (1, millis(2000, 4500)),
            (2, millis(500, 1500)),
            (6, millis(50, 400)),
            (11, millis(2, 30)),
        ]),
        rest: Mix::all(millis(0, 20)),
        dropped: 0.0,
    }
}

/// The work of a row whose workers keep permits, which they can while no request waits: two fifths of the
/// units are in use on average. A loop takes ten short turns in a row, and then rests.
fn work_of_keepers(limit: u32) -> Work {
    let millis = |from, to| Duration::from_millis(from)..Duration::from_millis(to);
    Work {
        wait: Mix(vec![(9, Wait::Granted), (1, Wait::Timeout(millis(50, 1550)))]),
        hold: Mix(vec![(1, millis(200, 800)), (2, millis(2, 30)), (37, millis(0, 4))]),
        rest: Mix(vec![(9, millis(0, 3)), (1, millis(0, 18_000 / u64::from(limit)))]),
        ..work(limit)
    }
}

/// The command that starts a worker in Rust, and the driver that runs in its place, if there is one.
pub(super) type Workers = (fn() -> Command, Option<Subject>);

/// A store, its workers, and the fenced resource.
pub(super) struct Fixture {
    // Declared before the deployment: workers end before the servers that they use.
    pub(super) workers: Vec<Worker>,
    pub(super) pool: WorkerPool,
    pub(super) deployment: Deployment,
    pub(super) fence: FencedServer,
    pub(super) random: fastrand::Rng,
    promise: Promise,
    /// Nearly all holds are of a few milliseconds, so that much is recorded.
    brief: bool,
}

impl Fixture {
    /// Starts all workers. Every other one keeps permits, if there are keepers; holds are `brief`; every
    /// other worker has `other_prefix`, if that is given.
    pub(super) fn start(
        deployment: Deployment,
        (command, driver): Workers,
        limit: u32,
        promise: Promise,
        (brief, other_prefix): (bool, Option<&str>),
        seed: u64,
    ) -> Self {
        let fence = FencedServer::start();
        let names: &[&str] = if promise.sets { &[SEMAPHORE, OTHER] } else { &[SEMAPHORE] };
        let settings = WorkerSettings {
            seed,
            semaphores: names.iter().map(|name| (*name).to_owned()).collect(),
            fence: Some(fence.path().to_owned()),
            ..WorkerSettings::new(limit, LEASE)
        };
        let mut pool = WorkerPool::new(command, settings);
        pool.driver = driver;
        let random = fastrand::Rng::with_seed(seed);
        let workers = Vec::new();
        let mut fixture = Self { workers, pool, deployment, fence, random, promise, brief };
        for worker in 0..WORKERS {
            let prefix = other_prefix.filter(|_| worker % 2 == 1);
            let started = fixture.start_worker(worker, prefix.unwrap_or(&fixture.pool.settings.prefix));
            fixture.workers.push(started);
        }
        fixture
    }

    fn start_worker(&self, index: usize, prefix: &str) -> Worker {
        let (url, prefix) = (self.deployment.url(index), prefix.to_owned());
        let keeps = self.promise.keep.is_some();
        let keep = (keeps && index.is_multiple_of(2)).then_some(KEEP);
        let mut worker = self.pool.start(WorkerSettings { url, prefix, keep, ..self.pool.settings.clone() });
        let limit = self.pool.settings.limit;
        let mut work = if keeps { work_of_keepers(limit) } else { work(limit) };
        if self.brief {
            let millis = Duration::from_millis;
            work.hold = Mix(vec![(1, millis(2000)..millis(4500)), (3000, millis(0)..millis(3))]);
        }
        let Promise { lanes, lane_limit, lane_floor, sets, .. } = self.promise;
        worker.work(&Work { lanes, lane_limit, lane_floor, sets, ..work });
        worker
    }

    /// Kills a worker (SIGKILL), and starts another in its place.
    pub(super) fn replace(&mut self, index: usize) {
        self.workers[index].kill();
        self.workers[index] = self.start_worker(index, &self.pool.settings.prefix);
    }

    /// Has a worker fork a child.
    pub(super) fn fork(&mut self, index: usize) {
        self.workers[index].send(&WorkerCommand::Fork);
    }

    /// Has an operator make a change. Returns true if it was made.
    pub(super) fn change(&self, change: Change) -> bool {
        let note = |event| self.pool.history().note(0, "operator", event);
        let client = Client::connect(&self.deployment.url(0)).wait().expect("the server is up");
        let semaphore = client.semaphore(SEMAPHORE, Limit::Stored).expect("valid");
        note(ClientEvent::Changing(change.clone()));
        let outcome = semaphore.change(change).wait();
        let made = outcome.is_ok();
        note(ClientEvent::Changed(outcome.map(drop).map_err(|error| error.to_string())));
        made
    }

    /// Waits until every worker has acquired after `since`.
    pub(super) fn await_served(&self, since: u64) -> Result<(), String> {
        let acquires = |event: &ClientEvent| matches!(event, ClientEvent::Acquired { .. });
        let served = self.pool.await_each(&self.workers, since, acquires);
        served.map_err(|missing| format!("workers {missing:?} got no permit"))
    }

    /// Waits until a worker has used what it kept after `since`, if workers keep permits.
    pub(super) fn await_kept(&self, since: u64) -> Result<(), String> {
        let is_again = |event: &ClientEvent| matches!(event, ClientEvent::Acquired { again: true, .. });
        let kept = self.promise.keep.is_none() || self.pool.await_any(since, is_again);
        kept.then_some(()).ok_or_else(|| "no worker keeps a permit any more".to_owned())
    }

    /// The indexes of the workers that hold now, by their own reports.
    fn holders(&self) -> Vec<usize> {
        let now = now();
        let grants = self.pool.grants();
        let holding = |number| grants.iter().any(|it| it.worker == number && it.end() > now);
        (0..WORKERS).filter(|index| holding(self.workers[*index].number)).collect()
    }

    /// Some of the workers, at least one and at most `most`; mostly those that hold.
    pub(super) fn victims(&mut self, most: usize) -> Vec<usize> {
        let count = self.random.usize(1..=most);
        let mut holders = self.holders();
        self.random.shuffle(&mut holders);
        if self.random.u32(0..3) == 0 {
            holders.clear();
        }
        let mut others: Vec<usize> = (0..WORKERS).filter(|index| !holders.contains(index)).collect();
        self.random.shuffle(&mut others);
        holders.into_iter().chain(others).take(count).collect()
    }

    /// Some of the workers that keep permits and have units now, by the store: at most `most`. Waits until
    /// there is one.
    pub(super) fn keepers(&mut self, most: usize) -> Vec<usize> {
        let mut keepers = Vec::new();
        wait::until(|| {
            keepers = self.with_units();
            !keepers.is_empty()
        });
        self.random.shuffle(&mut keepers);
        keepers.truncate(self.random.usize(1..=most));
        keepers
    }

    /// The workers that have units now, by the store.
    fn with_units(&self) -> Vec<usize> {
        let [waiters, all] = ["queue", "leases"].map(|part| {
            let names = self.server().command(&["ZRANGE", &key(part), "0", "-1"]);
            names.array().iter().map(|name| name.text().to_owned()).collect::<Vec<_>>()
        });
        let holders = all.iter().filter(|name| !waiters.contains(name));
        let processes: Vec<u32> = holders.filter_map(|name| parse_unique_holder(name)).collect();
        (0..WORKERS).filter(|index| processes.contains(&self.workers[*index].pid())).collect()
    }

    /// A time out of this range of milliseconds.
    pub(super) fn millis(&mut self, range: std::ops::Range<u64>) -> Duration {
        Duration::from_millis(self.random.u64(range))
    }

    pub(super) fn server(&self) -> &Server {
        let Deployment::Server { server, .. } = &self.deployment else {
            panic!("this row is for a single server")
        };
        server
    }

    pub(super) fn proxies(&self) -> &[Proxy] {
        let Deployment::Server { proxies, .. } = &self.deployment else {
            panic!("this row is for a single server")
        };
        assert!(!proxies.is_empty(), "this row needs proxies");
        proxies
    }

    pub(super) fn sentinels(&self) -> &Sentinels {
        match &self.deployment {
            Deployment::Sentinels(set) | Deployment::Parted(set) => set,
            _ => panic!("this row is for sentinels"),
        }
    }

    pub(super) fn cluster(&self) -> &Cluster {
        let Deployment::Cluster(cluster) = &self.deployment else { panic!("this row is for a cluster") };
        cluster
    }

    /// The hash slot of the semaphore in a cluster.
    pub(super) fn hash_slot() -> u16 {
        hash_slot(&key("state"))
    }
}

/// The key of a part of the semaphore.
pub(super) fn key(part: &str) -> String {
    format!("permits:{{{SEMAPHORE}}}:{part}")
}

impl Fault {
    /// A fault that is over now.
    pub(super) fn over_now(effects: usize) -> Self {
        Self { over: now(), effects }
    }
}
