//! The surroundings of a case: a store, a semaphore, and another client's permits.
//!
//! Each test has a [`Fixture`] of its own. [`Fixture::end`] is the last check of every case: all units of
//! each semaphore can be acquired at once, its queue is empty, and a server has only idle state left, which
//! expires.

use std::future::Future;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use permits::{AclRules, Client, Permit, Semaphore, acl_rules};
use permits::{AcquireError, AcquireOptions, ClientBuilder, Inspection, Limit, Recovery};
use permits_testkit::sound::{Named as _, Succeeds as _};
use permits_testkit::{Cluster, HANGS, HOUR, Resp, Server};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// The interval between two inspections, where a change can only be observed.
const INTERVAL: Duration = Duration::from_millis(2);

/// The store of a case's semaphore, and the units that the case can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Provider {
    /// The memory store.
    Memory,
    /// A file of its own.
    Local,
    /// A server of its own, by a user with the documented rights.
    Redis,
    /// A cluster that all cases share, each under a prefix of its own.
    Cluster,
    /// A server, under another key prefix, while another client holds all units of the same name under the
    /// default prefix.
    OtherPrefix,
    /// A limit of 1: a mutex.
    Mutex,
    /// A limit of 5, of which another client holds 4: the last unit must behave as a mutex.
    Drained,
}

impl Provider {
    /// Returns true if a case can have any number of units. Otherwise it has one.
    pub(crate) fn has_several_units(self) -> bool {
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

    /// The number of units of the semaphore that another client holds.
    fn held_by_other(self) -> u32 {
        if self == Self::Drained { 4 } else { 0 }
    }
}

/// Makes a user with only the documented rights, for two prefixes. Returns the URL by which the user logs in.
fn log_in(server: &Server, prefix: &str) -> String {
    for (index, prefix) in [prefix, "permits"].into_iter().enumerate() {
        let rights = acl_rules(prefix).expect("the prefix is valid");
        // A server before 7.0 refuses the rules for clusters.
        let known = |rules: &&AclRules| !rules.rules.iter().any(|rule| rule == "+spublish");
        let rules = rights.iter().filter(known).flat_map(|rights| &rights.rules);
        // The second prefix's rules must not take the first one's rights away.
        let kept = rules.filter(|rule| index == 0 || rule.starts_with(['~', '&'])).map(String::as_str);
        let command: Vec<&str> = ["ACL", "SETUSER", "exporter", ">secret"].into_iter().chain(kept).collect();
        assert_eq!(server.command(&command).text(), "OK");
    }
    format!("redis://exporter:secret@{}/", server.address())
}

/// The surroundings of a case.
pub(crate) struct Fixture {
    provider: Provider,
    name: String,
    url: String,
    prefix: String,
    server: Option<Server>,
    /// Deleted with the file in it when dropped.
    _directory: Option<TempDir>,
    other_client: Option<(Client, Permit)>,
}

impl Fixture {
    /// Sets the fixture up. Blocks while the server starts.
    pub(crate) fn new(provider: Provider) -> Self {
        static MEMORIES: AtomicU64 = AtomicU64::new(0);
        let (mut server, mut directory) = (None, None);
        let (name, prefix) = ("exports".into(), provider.prefix());
        let url = match provider {
            Provider::Memory => format!("memory:conformance-{}", MEMORIES.fetch_add(1, Ordering::Relaxed)),
            Provider::Local => {
                let directory = directory.insert(TempDir::new().expect("there is room"));
                format!("local:{}", directory.path().join("permits").display())
            }
            Provider::Cluster => cluster().url(),
            _ => log_in(server.insert(Server::start()), &prefix),
        };
        Self { provider, name, url, prefix, server, _directory: directory, other_client: None }
    }

    /// Lets the other client of the provider acquire its units.
    pub(crate) async fn connect_other_client(&mut self) {
        let (prefix, limit, weight) = match self.provider {
            Provider::Drained => (self.prefix.as_str(), 5, 4),
            Provider::OtherPrefix => ("permits", 1, 1),
            _ => return,
        };
        let client = self.plain_builder().prefix(prefix).label("other").connect().succeeds().await;
        let options = AcquireOptions::new().weight(weight).holder("other");
        let permit = client.named(&self.name, limit).acquire_with(options).succeeds().await;
        self.other_client = Some((client, permit));
    }

    fn plain_builder(&self) -> ClientBuilder {
        // The new server is younger than a recovery window, but has lost nothing. The lease is so long that
        // no permit is lost while a busy machine does not run the test.
        Client::builder(&self.url).recovery(Recovery::Off).lease(HOUR)
    }

    /// The settings of the case's clients.
    pub(crate) fn builder(&self) -> ClientBuilder {
        self.plain_builder().prefix(&self.prefix)
    }

    /// A new client.
    pub(crate) async fn client(&self) -> Client {
        self.connect(self.builder()).await
    }

    /// A new client with settings made from [`Fixture::builder`].
    pub(crate) async fn connect(&self, builder: ClientBuilder) -> Client {
        builder.connect().succeeds().await
    }

    /// The name of the semaphore.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The limit of a semaphore of which the case can have `units`.
    pub(crate) fn limit(&self, units: u32) -> u32 {
        assert!(units == 1 || self.provider.has_several_units(), "mark the case `units`");
        self.provider.held_by_other() + units
    }

    /// The number of units that the other client holds now.
    fn held_by_other(&self) -> u32 {
        if self.other_client.is_some() { self.provider.held_by_other() } else { 0 }
    }

    /// The semaphore, of which the case can have `units`.
    pub(crate) fn semaphore(&self, client: &Client, units: u32) -> Semaphore {
        client.named(&self.name, self.limit(units))
    }

    /// The semaphore of a new client.
    pub(crate) async fn new_semaphore(&self, units: u32) -> Semaphore {
        self.semaphore(&self.client().await, units)
    }

    /// The semaphores of two new clients.
    pub(crate) async fn two_semaphores(&self, units: u32) -> [Semaphore; 2] {
        [self.new_semaphore(units).await, self.new_semaphore(units).await]
    }

    /// The semaphores of a new client and of an operator, who declares no limit.
    pub(crate) async fn administered(&self, units: u32) -> [Semaphore; 2] {
        let operator = self.client().await;
        [self.new_semaphore(units).await, operator.named(&self.name, Limit::Stored)]
    }

    /// The inspection of `semaphore` without the other client.
    pub(crate) async fn inspect(&self, semaphore: &Semaphore) -> Inspection {
        let mut inspection = semaphore.inspect().succeeds().await;
        inspection.holders.retain(|holder| holder.holder != "other");
        if inspection.name == self.name {
            inspection.held -= u64::from(self.held_by_other());
        }
        inspection
    }

    /// Frees the units that cool, so that [`Fixture::end`] does not wait until they have cooled.
    pub(crate) async fn frees_what_cools(&self, semaphore: &Semaphore) {
        for info in self.inspect(semaphore).await.holders.iter().filter(|info| info.cooling) {
            assert!(semaphore.revoke_cooling(&info.holder, info.token).succeeds().await, "{info:?}");
        }
    }

    /// Sends a request and returns when it waits in the queue.
    #[track_caller]
    pub(crate) fn queued<'a>(
        &'a self,
        semaphore: &'a Semaphore,
        options: AcquireOptions,
    ) -> impl Future<Output = Waiter> + 'a {
        let caller = std::panic::Location::caller();
        async move {
            let before = self.inspect(semaphore).await.waiting;
            let waiter = Waiter::start(semaphore, options);
            let deadline = tokio::time::Instant::now() + HANGS;
            while self.inspect(semaphore).await.waiting == before {
                assert!(tokio::time::Instant::now() < deadline, "{caller}: it does not get into the queue");
                sleep(INTERVAL).await;
            }
            waiter
        }
    }

    /// Waits until the only holder's lease becomes longer, because its client has renewed it.
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
        timeout(HANGS, renewed).succeeds().await;
    }

    /// Waits until the case holds `held` units and `waiting` requests wait.
    #[track_caller]
    pub(crate) fn settles<'a>(
        &'a self,
        semaphore: &'a Semaphore,
        held: u64,
        waiting: u64,
    ) -> impl Future<Output = ()> + 'a {
        let caller = std::panic::Location::caller();
        async move {
            let deadline = tokio::time::Instant::now() + HANGS;
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

    /// Asserts that no server has a key of the semaphore of this name.
    #[track_caller]
    pub(crate) fn has_no_key_of(&self, name: &str) {
        let pattern = format!("{}:{{{name}}}*", self.prefix);
        for server in self.servers() {
            assert_eq!(server.command(&["KEYS", &pattern]).array(), []);
        }
    }

    /// The servers that may have keys of the case.
    fn servers(&self) -> &[Server] {
        match (&self.server, self.provider) {
            (Some(server), _) => std::slice::from_ref(server),
            (None, Provider::Cluster) => cluster().nodes(),
            (None, _) => &[],
        }
    }

    /// The end of every case: dropped permits have been released, and closed clients have left nothing.
    pub(crate) async fn end(mut self) {
        if let Some((client, permit)) = self.other_client.take() {
            assert!(permit.is_held(), "the other client lost its permit: {:?}", permit.status());
            permit.release().succeeds().await;
            client.close().succeeds().await;
        }
        let client = self.client().await;
        for name in client.list().succeeds().await {
            let semaphore = client.named(&name, Limit::Stored);
            self.settles(&semaphore, 0, 0).await;
            let left = self.inspect(&semaphore).await;
            assert!(
                !left.pinned && !left.paused && left.closed.is_none(),
                "the case left it pinned, paused or closed: {left:?}"
            );
            if let Some(limit) = left.limit {
                let all = AcquireOptions::new().weight(limit).timeout(HANGS);
                let permit = semaphore.acquire_with(all).await.expect("all units are free");
                assert_eq!(permit.slot(), 0, "all slots are free");
                permit.release().succeeds().await;
            }
        }
        client.close().succeeds().await;
        // Only in a cluster do other cases share the servers, under other prefixes.
        let pattern =
            if self.provider == Provider::Cluster { format!("{}:*", self.prefix) } else { "*".into() };
        for server in self.servers() {
            only_idle_state_is_left(server, &pattern);
        }
    }
}

/// A cluster of three nodes, which ends with the process.
fn cluster() -> &'static Cluster {
    static CLUSTER: LazyLock<Cluster> = LazyLock::new(|| Cluster::builder().replicas(0).start());
    &CLUSTER
}

/// Asserts that only `state` keys are left, and that they expire.
fn only_idle_state_is_left(server: &Server, pattern: &str) {
    let mut connection = server.connect().expect("the server is up");
    let keys = connection.call(&["KEYS", pattern]).expect("the server is up");
    for key in keys.array().iter().map(Resp::text) {
        assert!(key.ends_with(":state"), "{key} is left");
        let expiry = connection.call(&["PTTL", key]).expect("the server is up").int();
        assert!(expiry > 0, "{key} does not expire: {expiry}");
    }
}

/// Waits until the permit is lost, or `limit` has passed.
pub(crate) async fn lost_within(permit: &Permit, limit: Duration) -> Option<permits::Lost> {
    timeout(limit, permit.lost()).await.ok()
}

/// A request in progress.
pub(crate) struct Waiter {
    task: JoinHandle<Result<Permit, AcquireError>>,
}

impl Waiter {
    /// Sends a request, which may be granted at once.
    pub(crate) fn start(semaphore: &Semaphore, options: AcquireOptions) -> Self {
        let semaphore = semaphore.clone();
        Self { task: tokio::spawn(async move { semaphore.acquire_with(options).await }) }
    }

    /// The outcome of the request.
    pub(crate) async fn outcome(self) -> Result<Permit, AcquireError> {
        let outcome = timeout(HANGS, self.task).await.expect("it is answered in time");
        outcome.expect("acquiring does not panic")
    }

    /// The permit of the request.
    pub(crate) async fn permit(self) -> Permit {
        self.outcome().await.expect("it is granted")
    }

    /// Returns true if it has been answered.
    pub(crate) fn is_answered(&self) -> bool {
        self.task.is_finished()
    }
}
