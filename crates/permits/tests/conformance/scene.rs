//! What a case runs in: a store, a semaphore of its own, and what strangers hold there.
//!
//! A [`Scene`] is laid for each test and taken down by [`Scene::end`], which is also the last word of every
//! case: all units can be had at once, nobody waits, and on a server nothing but idle state is left, which
//! expires.

use std::future::Future;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use permits::store::redis::{AclRules, acl_rules};
use permits::{AcquireError, AcquireOptions, ClientBuilder, Inspection, Recovery};
use permits_testkit::{Cluster, Resp, Server};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::face::{Client, Face, Permit, Semaphore};

/// More than anything here should take on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// How long to sleep between two looks at what can only be observed.
const INTERVAL: Duration = Duration::from_millis(2);

crate::listed! {
    /// Where a case finds its semaphore, and how much of it.
    pub(crate) enum Provider {
        /// The memory store.
        Memory,
        /// A file of its own.
        Local,
        /// A server of its own, as a user with the rights that are asked for.
        Redis,
        /// A cluster that all cases share, each under a prefix of its own.
        Cluster,
        /// A server, under another key prefix, while a stranger holds all of the same name under the usual one.
        OtherPrefix,
        /// A limit of 1: a mutex.
        Mutex,
        /// A limit of 5, of which a stranger holds 4: what is left must do all that a mutex does.
        Drained,
    }
}

impl Provider {
    /// Whether a case may have as many units as it asks for. Otherwise it has one.
    pub(crate) fn is_roomy(self) -> bool {
        match self {
            Self::Memory | Self::Local | Self::Redis | Self::Cluster | Self::OtherPrefix => true,
            Self::Mutex | Self::Drained => false,
        }
    }

    /// A prefix for a case.
    fn prefix(self) -> String {
        static CASES: AtomicU64 = AtomicU64::new(0);
        match self {
            Self::OtherPrefix => "team-b:permits".into(),
            Self::Cluster => format!("case-{}", CASES.fetch_add(1, Ordering::Relaxed)),
            _ => "permits".into(),
        }
    }

    /// How many units strangers hold of the semaphore under test.
    fn taken(self) -> u32 {
        if self == Self::Drained { 4 } else { 0 }
    }
}

/// Makes a user with the rights that the library asks for, for two prefixes, and no other. Returns the URL by
/// which it logs in.
fn log_in(server: &Server, prefix: &str) -> String {
    for (index, prefix) in [prefix, "permits"].into_iter().enumerate() {
        let rights = acl_rules(prefix).expect("the prefix is valid");
        // A server before 7.0 does not know what is for clusters.
        let known = |rules: &&AclRules| !rules.rules.iter().any(|rule| rule == "+spublish");
        let rules = rights.iter().filter(known).flat_map(|rights| &rights.rules);
        // The second time, what the first allowed is not to be taken away.
        let kept = rules.filter(|rule| index == 0 || rule.starts_with(['~', '&'])).map(String::as_str);
        let command: Vec<&str> = ["ACL", "SETUSER", "exporter", ">secret"].into_iter().chain(kept).collect();
        assert_eq!(server.command(&command).text(), "OK");
    }
    format!("redis://exporter:secret@{}/", server.address())
}

/// See the module.
pub(crate) struct Scene {
    provider: Provider,
    face: Face,
    name: String,
    url: String,
    prefix: String,
    server: Option<Server>,
    /// Goes with the file in it.
    _directory: Option<TempDir>,
    stranger: Option<(permits::Client, permits::Permit)>,
}

impl Scene {
    /// Lays it. Blocks while the server starts.
    pub(crate) fn new(provider: Provider, face: Face) -> Self {
        static MEMORIES: AtomicU64 = AtomicU64::new(0);
        let (mut server, mut directory) = (None, None);
        let (name, prefix) = ("exports".into(), provider.prefix());
        let url = match provider {
            Provider::Memory => format!("memory:conformance-{}", MEMORIES.fetch_add(1, Ordering::Relaxed)),
            Provider::Local => {
                let directory = directory.insert(TempDir::new().expect("there is room"));
                format!("local:{}", directory.path().join("semaphores.db").display())
            }
            Provider::Cluster => cluster().url(),
            _ => log_in(server.insert(Server::start()), &prefix),
        };
        Self { provider, face, name, url, prefix, server, _directory: directory, stranger: None }
    }

    /// Lets the strangers of the provider take their units.
    pub(crate) async fn enter_strangers(&mut self) {
        let (prefix, limit, weight) = match self.provider {
            Provider::Drained => (self.prefix.as_str(), 5, 4),
            Provider::OtherPrefix => ("permits", 1, 1),
            _ => return,
        };
        let client = self.plain_builder().prefix(prefix).label("stranger").connect().await.expect("it is up");
        let options = AcquireOptions::new().weight(weight).holder("stranger");
        let permit = client.semaphore(&self.name, limit).acquire_with(options).await.expect("it is free");
        self.stranger = Some((client, permit));
    }

    fn plain_builder(&self) -> ClientBuilder {
        // The server is younger than a recovery window, and remembers all there was.
        permits::Client::builder(&self.url).recovery(Recovery::Off)
    }

    /// The settings of a client for the case.
    pub(crate) fn builder(&self) -> ClientBuilder {
        self.plain_builder().prefix(&self.prefix)
    }

    /// A client of the case's own.
    pub(crate) async fn client(&self) -> Client {
        self.connect(self.builder()).await
    }

    /// A client with settings of the case's own, from [`Scene::builder`].
    pub(crate) async fn connect(&self, builder: ClientBuilder) -> Client {
        Client::connect(self.face, builder).await.expect("the store is up")
    }

    /// The name of the semaphore.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The limit of a semaphore of which the case can have so many units.
    pub(crate) fn limit(&self, units: u32) -> u32 {
        assert!(units == 1 || self.provider.is_roomy(), "mark the case `units`");
        self.provider.taken() + units
    }

    /// How many units strangers hold now.
    fn taken(&self) -> u32 {
        if self.stranger.is_some() { self.provider.taken() } else { 0 }
    }

    /// The semaphore, of which the case can have so many units.
    pub(crate) fn semaphore(&self, client: &Client, units: u32) -> Semaphore {
        client.semaphore(&self.name, self.limit(units))
    }

    /// What the case itself holds of `semaphore`, and who waits.
    pub(crate) async fn inspect(&self, semaphore: &Semaphore) -> Inspection {
        let mut inspection = semaphore.inspect().await.expect("the store is up");
        inspection.holders.retain(|holder| holder.holder != "stranger");
        inspection.held -= u64::from(self.taken());
        inspection
    }

    /// Sends a request and returns when it stands in line.
    #[track_caller]
    pub(crate) fn in_line<'a>(
        &'a self,
        semaphore: &'a Semaphore,
        options: AcquireOptions,
    ) -> impl Future<Output = Waiter> + 'a {
        let caller = std::panic::Location::caller();
        async move {
            let before = self.inspect(semaphore).await.waiting;
            let waiter = Waiter::start(semaphore, options);
            let deadline = tokio::time::Instant::now() + LIMIT;
            while self.inspect(semaphore).await.waiting == before {
                assert!(tokio::time::Instant::now() < deadline, "{caller}: it does not get in line");
                sleep(INTERVAL).await;
            }
            waiter
        }
    }

    /// Waits until somebody renews the only holder: until its lease has become longer by itself.
    pub(crate) async fn sees_a_renewal(&self, semaphore: &Semaphore) {
        let mut before = Duration::MAX;
        let renewed = async {
            loop {
                let seen = self.inspect(semaphore).await;
                let [holder] = &seen.holders[..] else { panic!("not one holder: {seen:?}") };
                if holder.lease_remaining > before {
                    return;
                }
                before = holder.lease_remaining;
                sleep(INTERVAL).await;
            }
        };
        timeout(LIMIT, renewed).await.expect("it is renewed");
    }

    /// Waits until the case holds so many units and so many wait.
    #[track_caller]
    pub(crate) fn settles<'a>(
        &'a self,
        semaphore: &'a Semaphore,
        held: u64,
        waiting: u64,
    ) -> impl Future<Output = ()> + 'a {
        let caller = std::panic::Location::caller();
        async move {
            let deadline = tokio::time::Instant::now() + LIMIT;
            loop {
                let seen = self.inspect(semaphore).await;
                if (seen.held, seen.waiting) == (held, waiting) {
                    return;
                }
                let late = tokio::time::Instant::now() >= deadline;
                assert!(!late, "{caller}: not {held} held and {waiting} waiting, but {seen:?}");
                sleep(INTERVAL).await;
            }
        }
    }

    /// On a server, there is no key of the semaphore of this name.
    #[track_caller]
    pub(crate) fn knows_no_key_of(&self, name: &str) {
        let pattern = format!("{}:{{{name}}}*", self.prefix);
        for server in self.servers() {
            assert_eq!(server.command(&["KEYS", &pattern]).array(), []);
        }
    }

    /// The servers that have keys of the case.
    fn servers(&self) -> &[Server] {
        match (&self.server, self.provider) {
            (Some(server), _) => std::slice::from_ref(server),
            (None, Provider::Cluster) => cluster().nodes(),
            (None, _) => &[],
        }
    }

    /// The end of every case: what was dropped has come back, what was closed left nothing.
    pub(crate) async fn end(mut self) {
        if let Some((client, permit)) = self.stranger.take() {
            assert!(permit.is_held(), "the stranger lost its permit: {:?}", permit.status());
            permit.release().await.expect("the stranger still held it");
            client.close().await.expect("the store is up");
        }
        let client = self.client().await;
        let semaphore = client.open(&self.name);
        self.settles(&semaphore, 0, 0).await;
        let left = self.inspect(&semaphore).await;
        assert!(!left.pinned && !left.paused, "the case left it pinned or paused: {left:?}");
        if let Some(limit) = left.limit {
            let all = AcquireOptions::new().weight(limit).wait(LIMIT);
            let permit = semaphore.acquire_with(all).await.expect("all units are free");
            assert_eq!(permit.slot(), 0, "all slots are free");
            permit.release().await.expect("it is held");
        }
        client.close().await.expect("the store is up");
        // Where there are others, they have a server of their own, or another prefix.
        let pattern =
            if self.provider == Provider::Cluster { format!("{}:*", self.prefix) } else { "*".into() };
        for server in self.servers() {
            only_idle_state_is_left(server, &pattern);
        }
    }
}

/// A cluster of three, which ends with the process.
fn cluster() -> &'static Cluster {
    static CLUSTER: LazyLock<Cluster> = LazyLock::new(|| Cluster::builder().replicas(0).start());
    &CLUSTER
}

/// Of all keys only `state` is left, of any semaphore, and it expires.
fn only_idle_state_is_left(server: &Server, pattern: &str) {
    let mut connection = server.connect().expect("the server is up");
    let keys = connection.call(&["KEYS", pattern]).expect("the server is up");
    for key in keys.array().iter().map(Resp::text) {
        assert!(key.ends_with(":state"), "{key} is left");
        let expiry = connection.call(&["PTTL", key]).expect("the server is up").int();
        assert!(expiry > 0, "{key} does not expire: {expiry}");
    }
}

/// A request in progress.
pub(crate) struct Waiter {
    task: JoinHandle<Result<Permit, AcquireError>>,
}

impl Waiter {
    /// Sends a request; it may be granted at once.
    pub(crate) fn start(semaphore: &Semaphore, options: AcquireOptions) -> Self {
        let semaphore = semaphore.clone();
        Self { task: tokio::spawn(async move { semaphore.acquire_with(options).await }) }
    }

    /// Its outcome.
    pub(crate) async fn outcome(self) -> Result<Permit, AcquireError> {
        let outcome = timeout(LIMIT, self.task).await.expect("it is answered in time");
        outcome.expect("acquiring does not panic")
    }

    /// Its permit.
    pub(crate) async fn permit(self) -> Permit {
        self.outcome().await.expect("it is granted")
    }

    /// Whether it has been answered.
    pub(crate) fn is_answered(&self) -> bool {
        self.task.is_finished()
    }
}
