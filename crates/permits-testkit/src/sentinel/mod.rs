//! A real primary with replicas, and sentinels that watch over them.
//!
//! [`Sentinels`] owns the servers and the sentinels, each a [`Server`] that can be killed and paused like any
//! other, and waits for the sentinels' agreement. Servers have indexes, the primary of the start is 0; an
//! index stays with its server, also when the server's role changes. Forming a set is in `launch`.

mod launch;

use std::collections::HashMap;

pub use launch::SentinelsBuilder;

use crate::group;
use crate::resp::Resp;
use crate::server::Server;
use crate::server::launch::{info_field, percent_encoded};

/// The name under which the sentinels know the primary.
pub const SERVICE: &str = "service";

/// A primary, its replicas and their sentinels, all of them killed when this is dropped.
#[derive(Debug)]
pub struct Sentinels {
    // Declared first: without a sentinel, the end of the servers causes no failover.
    sentinels: Vec<Server>,
    servers: Vec<Server>,
    min_replicas_to_write: usize,
    password: Option<String>,
    sentinel_password: Option<String>,
}

impl Sentinels {
    /// Starts a primary with 2 replicas and 3 sentinels, of which 2 must agree; see
    /// [`SentinelsBuilder::start`].
    #[track_caller]
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// A set to be configured before its start.
    pub fn builder() -> SentinelsBuilder {
        SentinelsBuilder::new()
    }

    /// The URL by which a client finds the primary: `redis+sentinel://127.0.0.1:port,…/service`, with every
    /// sentinel; before them the servers' password, and as the parameter `sentinel_password` the sentinels',
    /// if there is one.
    pub fn url(&self) -> String {
        let password = self.password.as_deref().map(|password| format!(":{}@", percent_encoded(password)));
        let hosts: Vec<String> = self.sentinels.iter().map(|it| it.address().to_string()).collect();
        let query = self.sentinel_password.as_deref().map(percent_encoded);
        let query = query.map(|password| format!("?sentinel_password={password}"));
        let (password, query) = (password.unwrap_or_default(), query.unwrap_or_default());
        format!("redis+sentinel://{password}{}/{SERVICE}{query}", hosts.join(","))
    }

    /// The primary and its replicas; the primary of the start is the first.
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// The sentinels.
    pub fn sentinels(&self) -> &[Server] {
        &self.sentinels
    }

    /// The index of the primary, once all sentinels that are up name the same.
    #[track_caller]
    pub fn primary(&self) -> usize {
        self.wait_for("the sentinels name the same primary", || self.named())
    }

    /// Has a sentinel replace the primary by a replica (`SENTINEL FAILOVER`), without a vote. Returns the
    /// index of the new primary, once all sentinels name it.
    ///
    /// The old primary works until it is demoted; the writes that it accepts meanwhile are lost.
    #[track_caller]
    pub fn failover(&self) -> usize {
        let old = self.primary();
        // A sentinel refuses until it has polled the replicas since the last failover.
        self.wait_for("a sentinel begins a failover", || {
            let sentinel = self.sentinels.iter().find(|it| it.is_up()).ok_or("no sentinel is up")?;
            group::ask_text(sentinel, &["SENTINEL", "FAILOVER", SERVICE])
        });
        self.wait_for_switch(old)
    }

    /// Waits until all sentinels that are up name the same primary, other than `old`, and that has taken
    /// over. Returns its index.
    #[track_caller]
    pub fn wait_for_switch(&self, old: usize) -> usize {
        self.wait_for("the sentinels have switched", || {
            let new = self.named()?;
            if new == old {
                return Err(format!("the primary is still server {old}"));
            }
            self.replication(new, "role", "master")?;
            Ok(new)
        })
    }

    /// Waits until the primary is up and has enough replicas to write, every replica that is up has a copy of
    /// its data, and every sentinel that is up sees this, and enough others for a failover.
    #[track_caller]
    pub fn wait_until_ok(&self) {
        self.wait_for("the servers and sentinels are ok", || self.is_ok());
    }

    fn is_ok(&self) -> Result<(), String> {
        let primary = self.named()?;
        if !self.servers()[primary].is_up() {
            return Err(format!("the primary, server {primary}, is down"));
        }
        let replicas: Vec<usize> = group::up(&self.servers).filter(|server| *server != primary).collect();
        for &replica in &replicas {
            self.replication(replica, "role", "slave")?;
            self.replication(replica, "master_port", &self.servers[primary].port().to_string())?;
            self.replication(replica, "master_link_status", "up")?;
        }
        if self.min_replicas_to_write > 0 {
            let info = group::ask_text(&self.servers()[primary], &["INFO", "replication"])?;
            let good = info_field(&info, "min_slaves_good_slaves").and_then(|good| good.parse().ok());
            if good.is_none_or(|good: usize| good < self.min_replicas_to_write) {
                return Err(format!("the primary counts {good:?} replicas"));
            }
        }
        let up = self.sentinels.iter().filter(|sentinel| sentinel.is_up());
        up.enumerate().try_for_each(|(number, sentinel)| {
            self.sees(sentinel, primary, &replicas).map_err(|reason| format!("sentinel {number}: {reason}"))
        })
    }

    /// Checks that a sentinel knows all servers and sentinels, and that the primary and these replicas are
    /// well in its view.
    fn sees(&self, sentinel: &Server, primary: usize, replicas: &[usize]) -> Result<(), String> {
        let master = fields(&group::ask(sentinel, &["SENTINEL", "MASTER", SERVICE])?);
        let others = (self.sentinels.len() - 1).to_string();
        for (field, expected) in [("flags", "master"), ("num-other-sentinels", &others)] {
            if master.get(field).map(String::as_str) != Some(expected) {
                return Err(format!("{field} is {:?}", master.get(field)));
            }
        }
        let known = group::ask(sentinel, &["SENTINEL", "REPLICAS", SERVICE])?;
        let known: Vec<HashMap<String, String>> = known.array().iter().map(fields).collect();
        if known.len() != self.servers().len() - 1 {
            return Err(format!("it knows {} replicas", known.len()));
        }
        let primary = self.servers[primary].port().to_string();
        for &replica in replicas {
            let port = self.servers[replica].port().to_string();
            let seen = known.iter().find(|it| it["port"] == port).ok_or("it does not know a replica")?;
            for (field, expected) in
                [("flags", "slave"), ("master-link-status", "ok"), ("master-port", &primary)]
            {
                if seen[field] != expected {
                    return Err(format!("{field} of replica {replica} is {}", seen[field]));
                }
            }
        }
        group::ask_text(sentinel, &["SENTINEL", "CKQUORUM", SERVICE]).map(drop)
    }

    /// The server that all sentinels which are up name as the primary.
    fn named(&self) -> Result<usize, String> {
        let mut named = Vec::new();
        for sentinel in self.sentinels.iter().filter(|sentinel| sentinel.is_up()) {
            let reply = group::ask(sentinel, &["SENTINEL", "get-master-addr-by-name", SERVICE])?;
            let port = reply.array()[1].text().to_owned();
            let server = self.servers.iter().position(|server| server.port().to_string() == port);
            named.push(server.ok_or_else(|| format!("port {port} is not ours"))?);
        }
        let first = *named.first().ok_or("no sentinel is up")?;
        if named.iter().all(|it| *it == first) { Ok(first) } else { Err(format!("they name {named:?}")) }
    }

    /// Checks that a field of a server's `INFO replication` has this value.
    fn replication(&self, server: usize, field: &str, expected: &str) -> Result<(), String> {
        let info = group::ask_text(&self.servers()[server], &["INFO", "replication"])?;
        let value = info_field(&info, field);
        if value == Some(expected) { Ok(()) } else { Err(format!("{field} of server {server} is {value:?}")) }
    }

    /// Waits until `condition` succeeds; otherwise panics with its last error and all logs.
    #[track_caller]
    fn wait_for<T>(&self, what: &str, condition: impl FnMut() -> Result<T, String>) -> T {
        group::wait_for(what, self.sentinels.iter().chain(self.servers()), condition)
    }
}

/// A reply that alternates names and values.
fn fields(reply: &Resp) -> HashMap<String, String> {
    let (pairs, _) = reply.array().as_chunks::<2>();
    pairs.iter().map(|[name, value]| (name.text().to_owned(), value.text().to_owned())).collect()
}
