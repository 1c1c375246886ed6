//! The forming of a set of sentinels.
//!
//! A sentinel learns of replicas from the primary's `INFO`, every 10 seconds and once at its start: so it is
//! started when the primary has them all. It learns of other sentinels from their messages, every 2 seconds:
//! so each is sent the same messages right away.

use std::net::SocketAddr;

use super::{SERVICE, Sentinels};
use crate::group::{self, Options, deployment_options};
use crate::resp::Resp;
use crate::server::Server;
use crate::server::launch::{ServerBuilder, quoted};

/// The seconds for which a replica may be silent and still count for `min-replicas-to-write`.
const MAX_LAG: &str = "2";

/// The milliseconds of silence after which a sentinel considers a server down. A busy machine or disk may
/// cause an unwanted failover; the shorter this is, the more often.
const DOWN_AFTER_MS: u32 = 1000;

/// The milliseconds after which a failover is given up. After twice that, the sentinels try another one.
const FAILOVER_TIMEOUT_MS: u32 = 3000;

/// A primary with replicas and sentinels to be configured; made by [`Sentinels::builder`].
#[derive(Debug)]
#[must_use = "a builder does nothing until it is started"]
pub struct SentinelsBuilder {
    sentinels: usize,
    replicas: usize,
    quorum: usize,
    min_replicas_to_write: usize,
    options: Options,
    sentinel_password: Option<String>,
}

impl SentinelsBuilder {
    pub(super) fn new() -> Self {
        Self {
            sentinels: 3,
            replicas: 2,
            quorum: 2,
            min_replicas_to_write: 0,
            options: Options::default(),
            sentinel_password: None,
        }
    }

    /// The sentinels; 3 by default.
    pub fn sentinels(mut self, sentinels: usize) -> Self {
        self.sentinels = sentinels;
        self
    }

    /// The replicas of the primary; 2 by default.
    pub fn replicas(mut self, replicas: usize) -> Self {
        self.replicas = replicas;
        self
    }

    /// The sentinels that must agree that the primary is down; 2 by default.
    pub fn quorum(mut self, quorum: usize) -> Self {
        self.quorum = quorum;
        self
    }

    /// Lets a primary refuse writes unless this many replicas have reported within 2 seconds; 0 by default.
    pub fn min_replicas_to_write(mut self, replicas: usize) -> Self {
        self.min_replicas_to_write = replicas;
        self
    }

    /// Requires `password` of every client of the sentinels, and of the sentinels among themselves.
    pub fn sentinel_password(mut self, password: &str) -> Self {
        self.sentinel_password = Some(password.to_owned());
        self
    }

    deployment_options!();

    /// Starts everything; returns once every replica has its first copy and every sentinel knows all servers
    /// and all the other sentinels.
    #[track_caller]
    pub fn start(self) -> Sentinels {
        assert!(self.sentinels > 0, "a set of sentinels needs a sentinel");
        let servers: Vec<Server> = (0..=self.replicas).map(|_| self.server().start()).collect();
        let mut set = Sentinels {
            servers,
            sentinels: Vec::new(),
            min_replicas_to_write: self.min_replicas_to_write,
            password: self.options.password.clone(),
            sentinel_password: self.sentinel_password.clone(),
        };
        set.attach_replicas();
        let primary = set.servers[0].address();
        set.sentinels = (0..self.sentinels).map(|_| self.sentinel(primary).start()).collect();
        set.hurry();
        set.introduce();
        set.wait_until_ok();
        set
    }

    fn server(&self) -> ServerBuilder {
        let server = ServerBuilder::new()
            .arg("min-replicas-to-write", &self.min_replicas_to_write.to_string())
            .arg("min-replicas-max-lag", MAX_LAG);
        self.options.apply(server)
    }

    fn sentinel(&self, primary: SocketAddr) -> ServerBuilder {
        let mut sentinel = ServerBuilder::sentinel();
        if let Some(password) = &self.sentinel_password {
            sentinel =
                sentinel.password(password).arg("sentinel", &format!("sentinel-pass {}", quoted(password)));
        }
        let mut lines = vec![
            format!("monitor {SERVICE} {} {} {}", primary.ip(), primary.port(), self.quorum),
            format!("down-after-milliseconds {SERVICE} {DOWN_AFTER_MS}"),
            format!("failover-timeout {SERVICE} {FAILOVER_TIMEOUT_MS}"),
        ];
        if let Some(password) = &self.options.password {
            lines.push(format!("auth-pass {SERVICE} {}", quoted(password)));
        }
        lines.iter().fold(sentinel, |sentinel, line| sentinel.arg("sentinel", line))
    }
}

impl Sentinels {
    /// Makes all servers but the first replicas of the first, and waits until the first counts them.
    #[track_caller]
    fn attach_replicas(&self) {
        let primary = self.servers[0].address();
        let (host, port) = (primary.ip().to_string(), primary.port().to_string());
        for server in &self.servers[1..] {
            group::order(server, &["REPLICAOF", &host, &port]);
            group::order(server, &["CONFIG", "REWRITE"]);
        }
        self.wait_for("the primary has its replicas", || {
            let info = group::ask_text(&self.servers()[0], &["INFO", "replication"])?;
            let online = |replica: &usize| {
                info.contains(&format!("port={},state=online", self.servers[*replica].port()))
            };
            match (1..self.servers().len()).find(|replica| !online(replica)) {
                Some(replica) => Err(format!("replica {replica} is not online")),
                None => Ok(()),
            }
        });
    }

    /// Shortens the periods of the sentinels: by default they poll a replica every 10 seconds, and after a
    /// failover they need two polls.
    fn hurry(&self) {
        for sentinel in &self.sentinels {
            // Servers before version 7 refuse this, and everything takes longer. Shorter periods would not
            // do: a sentinel that does not learn of a failover within four times the second period undoes the
            // failover.
            sentinel.command(&["SENTINEL", "DEBUG", "INFO-PERIOD", "1000", "PUBLISH-PERIOD", "1000"]);
        }
    }

    /// Sends each sentinel the message of each other one.
    #[track_caller]
    fn introduce(&self) {
        let primary = self.servers[0].address();
        let (host, port) = (primary.ip(), primary.port());
        for sentinel in &self.sentinels {
            let address = sentinel.address();
            let id = sentinel.command(&["SENTINEL", "MYID"]).text().to_owned();
            let hello = format!("{},{},{id},0,{SERVICE},{host},{port},0", address.ip(), address.port());
            for other in &self.sentinels {
                if other.port() != sentinel.port() {
                    let reply = other.command(&["PUBLISH", "__sentinel__:hello", &hello]);
                    assert_eq!(reply, Resp::Int(1), "the sentinel receives the message");
                }
            }
        }
    }
}
