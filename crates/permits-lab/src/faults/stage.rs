//! What a cell of the matrix stands on: a store, the workers that use it, and a fenced resource.

use std::time::Duration;

use permits_testkit::cluster::slot;
use permits_testkit::history::now;
use permits_testkit::sentinel::SERVICE;
use permits_testkit::{Cluster, FencedServer, Proxy, Sentinels, Server};

use super::crew::Crew;
use super::worker::{SEMAPHORE, Settings};

/// How many processes use the semaphore.
pub(crate) const WORKERS: usize = 10;

/// The lease of all permits.
pub(crate) const LEASE: Duration = Duration::from_secs(2);

/// The prefix of the keys.
pub(crate) const PREFIX: &str = "permits";

/// Where the semaphore lives.
pub(crate) enum Place {
    /// One server, with a proxy before it for each worker, or none.
    Server { server: Server, proxies: Vec<Proxy> },
    /// Servers watched by sentinels, of which every worker knows all.
    Sentinels(Sentinels),
    /// The same, but half of the workers know the first sentinel alone, and half the others.
    Parted(Sentinels),
    /// A cluster.
    Cluster(Cluster),
}

impl Place {
    pub(crate) fn server() -> Self {
        Self::Server { server: Server::start(), proxies: Vec::new() }
    }

    /// Keeps what it has in an append-only file, written to disk `always` or `everysec`.
    pub(crate) fn append_only(fsync: &str) -> Self {
        let server = Server::builder().append_only().arg("appendfsync", fsync).start();
        Self::Server { server, proxies: Vec::new() }
    }

    /// Puts a proxy before the server for each worker.
    pub(crate) fn proxied(self) -> Self {
        let Self::Server { server, .. } = self else { panic!("only a single server has proxies here") };
        let proxies = (0..WORKERS).map(|_| Proxy::start(server.address())).collect();
        Self::Server { server, proxies }
    }

    /// The URL by which this worker reaches it.
    pub(crate) fn url(&self, worker: usize) -> String {
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

/// A store, the workers that use it, and what they write to.
pub(crate) struct Stage {
    // Declared before the place: workers end before what they use.
    pub(crate) crew: Crew,
    pub(crate) place: Place,
    pub(crate) fence: FencedServer,
    pub(crate) random: fastrand::Rng,
}

impl Stage {
    /// With all workers started; the odd ones with this prefix, if it is given.
    pub(crate) fn start(place: Place, limit: u32, seed: u64, odd: Option<&str>) -> Self {
        let fence = FencedServer::start();
        let mut crew = Crew::new(Settings {
            url: String::new(),
            number: 0,
            limit,
            lease: LEASE,
            seed,
            prefix: PREFIX.to_owned(),
            fence: fence.path().display().to_string(),
        });
        for worker in 0..WORKERS {
            let prefix = odd.filter(|_| worker % 2 == 1).unwrap_or(PREFIX);
            crew.start(&place.url(worker), prefix);
        }
        Self { crew, place, fence, random: fastrand::Rng::with_seed(seed) }
    }

    pub(crate) fn server(&self) -> &Server {
        let Place::Server { server, .. } = &self.place else { panic!("this row is for a single server") };
        server
    }

    pub(crate) fn proxies(&self) -> &[Proxy] {
        let Place::Server { proxies, .. } = &self.place else { panic!("this row is for a single server") };
        assert!(!proxies.is_empty(), "this row needs proxies");
        proxies
    }

    pub(crate) fn sentinels(&self) -> &Sentinels {
        match &self.place {
            Place::Sentinels(set) | Place::Parted(set) => set,
            _ => panic!("this row is for sentinels"),
        }
    }

    pub(crate) fn cluster(&self) -> &Cluster {
        let Place::Cluster(cluster) = &self.place else { panic!("this row is for a cluster") };
        cluster
    }

    /// The slot of a cluster in which the semaphore is.
    pub(crate) fn slot() -> u16 {
        slot(&key("state"))
    }

    /// Some of the workers, at least one and at most `most`; mostly those that hold.
    pub(crate) fn victims(&mut self, most: usize) -> Vec<usize> {
        let count = self.random.usize(1..=most);
        let mut holders = self.crew.holders();
        self.random.shuffle(&mut holders);
        if self.random.u32(0..3) == 0 {
            holders.clear();
        }
        let mut others: Vec<usize> = (0..WORKERS).filter(|index| !holders.contains(index)).collect();
        self.random.shuffle(&mut others);
        holders.into_iter().chain(others).take(count).collect()
    }

    /// A while of so many milliseconds.
    pub(crate) fn millis(&mut self, range: std::ops::Range<u64>) -> Duration {
        Duration::from_millis(self.random.u64(range))
    }
}

/// The key of a part of the semaphore.
pub(crate) fn key(part: &str) -> String {
    format!("{PREFIX}:{{{SEMAPHORE}}}:{part}")
}

/// What was done to the store or its clients.
pub(crate) struct Fault {
    /// From when recovery is measured: the end of the fault, or where it ends nothing, its beginning.
    pub(crate) over: u64,
    /// How much it has done: a row in which this is 0 throughout has shown nothing.
    pub(crate) effects: usize,
}

impl Fault {
    /// One that is over now.
    pub(crate) fn over_now(effects: usize) -> Self {
        Self { over: now(), effects }
    }
}
