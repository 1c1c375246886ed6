//! Faults in the configuration and the state of a server, as INFO and CONFIG GET report them. Pure: it sends
//! no command.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::server::info::{check_version, field, mode};
use crate::timing::renew_every;
use permits_store::Finding;

/// The names of the settings that the findings depend on.
pub(super) const NAMES: [&str; 6] = [
    "appendfsync",
    "save",
    "stop-writes-on-bgsave-error",
    "min-replicas-to-write",
    "min-replicas-max-lag",
    "maxclients",
];

/// The share of a bound from which on it is nearly reached.
const NEARLY: f64 = 0.9;

/// The replies to CONFIG GET.
pub(super) enum Configuration {
    /// The values by name.
    Known(BTreeMap<&'static str, String>),
    /// Unreadable. Contains the server's error.
    Hidden(String),
}

/// The configuration and the state of a server.
pub(super) struct Settings<'a> {
    pub(super) info: &'a str,
    pub(super) configuration: &'a Configuration,
    /// True if the server should be a node of a cluster.
    pub(super) in_cluster: bool,
    /// The caller's usual lease.
    pub(super) lease: Duration,
}

/// The finding about a server that is a node of a cluster or a sentinel, where the URL is for a single
/// server.
pub(super) fn another_mode(info: &str) -> Option<Finding> {
    let (observed, scheme) = match mode(info)? {
        "cluster" => ("this server is a node of a cluster", "redis+cluster://"),
        "sentinel" => ("this is a sentinel, which watches servers and serves no keys", "redis+sentinel://"),
        _ => return None,
    };
    let advice = format!("The URL is for a single server. For this one it begins with {scheme}.");
    Some(Finding::problem("mode", observed, advice))
}

impl Settings<'_> {
    /// Returns true if the server is still loading its data.
    pub(super) fn is_loading(&self) -> bool {
        self.count("loading") == Some(1) || self.count("async_loading") == Some(1)
    }

    /// All findings.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let mut findings = vec![self.version()];
        if self.is_loading() {
            let advice =
                "It refuses commands until it has loaded its data, and programs wait for it. Try again then.";
            findings.push(Finding::problem("loading", "the server is loading its data from disk", advice));
            return findings;
        }
        if let Configuration::Hidden(reason) = self.configuration {
            let advice = "This user may not read the server's configuration, so these settings could not be \
                           checked: min-replicas-to-write, save, appendfsync. Check them by hand, or allow \
                           it: ACL SETUSER name +config|get.";
            findings.push(Finding::note("configuration", format!("CONFIG GET: {reason}"), advice));
        }
        findings.push(self.role());
        findings.push(self.eviction());
        findings.extend(self.memory());
        findings.push(self.persistence());
        findings.extend(self.replication());
        findings.push(self.connections());
        findings
    }

    fn text(&self, name: &str) -> &str {
        field(self.info, name).unwrap_or_default()
    }

    fn count(&self, name: &str) -> Option<u64> {
        field(self.info, name)?.parse().ok()
    }

    fn setting(&self, name: &str) -> Option<&str> {
        match self.configuration {
            Configuration::Known(settings) => settings.get(name).map(String::as_str),
            Configuration::Hidden(_) => None,
        }
    }

    fn setting_count(&self, name: &str) -> Option<u64> {
        self.setting(name)?.parse().ok()
    }

    fn version(&self) -> Finding {
        let redis = self.text("redis_version");
        let observed = match field(self.info, "valkey_version") {
            Some(valkey) => format!("Valkey {valkey}, compatible with Redis {redis}"),
            None => format!("Redis {redis}"),
        };
        match check_version(self.info, self.in_cluster) {
            Ok(()) => Finding::fine("version", observed),
            Err(error) => Finding::problem(
                "version",
                format!("{observed}: {error}"),
                "Use a newer server; Valkey will do.",
            ),
        }
    }

    fn role(&self) -> Finding {
        if self.text("role") != "slave" {
            return Finding::fine("role", "a primary");
        }
        let (host, port) = (self.text("master_host"), self.text("master_port"));
        let advice = "A replica refuses all writes, and every operation on a permit is a write. Connect to the \
                       primary; if failovers change the primary, connect by its sentinels (redis+sentinel://).";
        Finding::problem("role", format!("a replica, of {host}:{port}"), advice)
    }

    fn eviction(&self) -> Finding {
        let policy = self.text("maxmemory_policy");
        match (policy, self.count("maxmemory")) {
            ("", _) | (_, None) => Finding::note(
                "eviction",
                "the server does not report its eviction policy",
                "It must not evict keys (maxmemory-policy noeviction): a server that evicts a key forgets permits \
                 that are held.",
            ),
            ("noeviction", _) => Finding::fine("eviction", "noeviction: no key is dropped to make room"),
            (policy, Some(0)) => Finding::note(
                "eviction",
                format!("{policy}, but without a memory limit (maxmemory 0)"),
                "Nothing is evicted now. With maxmemory set, the server would evict keys of semaphores in use: CONFIG \
                 SET maxmemory-policy noeviction.",
            ),
            (policy, Some(_)) => Finding::problem(
                "eviction",
                format!("{policy}, with a memory limit"),
                "When its memory is full, the server evicts keys of semaphores in use and forgets their holders: more \
                 than the limit are admitted. CONFIG SET maxmemory-policy noeviction (and in the configuration file), \
                 or use a server of its own for permits.",
            ),
        }
    }

    fn memory(&self) -> Option<Finding> {
        let (used, most) = (self.count("used_memory")?, self.count("maxmemory")?);
        if most == 0 || share(used, most) < NEARLY {
            return None;
        }
        let observed = format!("{:.0} % of maxmemory are used", 100.0 * share(used, most));
        let advice = "When it is full, nothing can be acquired; permits that are held can be renewed and released. \
                       Raise maxmemory, or find the keys that fill it (redis-cli --bigkeys).";
        Some(Finding::problem("memory", observed, advice))
    }

    fn persistence(&self) -> Finding {
        // A server without save points does not refuse writes after a snapshot that failed.
        let refuses =
            self.setting("stop-writes-on-bgsave-error") != Some("no") && self.setting("save") != Some("");
        let failed = [
            (self.text("aof_last_write_status") == "err", "the append-only file could not be written"),
            (
                self.text("rdb_last_bgsave_status") == "err" && refuses,
                "the last snapshot could not be written",
            ),
        ];
        if let Some((_, observed)) = failed.iter().find(|(failed, _)| *failed) {
            let advice = "The server refuses all writes, and so every operation on a permit, until it can write to \
                           its disk again. Is the disk full, or its directory not writable? See the server's log.";
            return Finding::problem("persistence", *observed, advice);
        }
        if self.count("aof_enabled") == Some(1) {
            let sync =
                self.setting("appendfsync").map(|sync| format!(", appendfsync {sync}")).unwrap_or_default();
            return Finding::fine("persistence", format!("append-only file{sync}"));
        }
        let (observed, after) = match self.setting("save") {
            Some("") => ("nothing is written to disk", "has lost its state"),
            Some(_) => ("snapshots only", "has the state of its last snapshot"),
            None => ("no append-only file", "has lost its state, or has that of its last snapshot"),
        };
        let advice = format!(
            "After a restart this server {after}. Connected holders keep their permits and no others are admitted, \
             because for a renewal interval ({} s by your lease) only units of known permits are handed over. But what \
             operators have set, such as pinned limits, is lost. To keep it: CONFIG SET appendonly yes (and in the \
             configuration file).",
            renew_every(self.lease).as_secs_f64()
        );
        Finding::note("persistence", observed, advice)
    }

    fn replication(&self) -> Option<Finding> {
        let replicas = self.count("connected_slaves").unwrap_or(0);
        if self.text("role") == "slave" {
            return None;
        }
        // INFO has this field only where a minimum is set, and every user may read INFO.
        let good = self.count("min_slaves_good_slaves");
        let least = self.setting_count("min-replicas-to-write").unwrap_or(u64::from(good.is_some()));
        if let Some(good) = good.filter(|good| *good < least) {
            let observed = format!("replicas that follow: {good}, and {least} must (min-replicas-to-write)");
            let advice = "The server refuses all writes, and so every operation on a permit, until enough replicas \
                           are connected. Bring them back, or lower min-replicas-to-write.";
            return Some(Finding::problem("replication", observed, advice));
        }
        if replicas == 0 {
            return Some(Finding::fine("replication", "no replicas"));
        }
        if good.is_none() {
            let advice = "After a failover, a primary that was cut off grants until it learns of the failover, and \
                           those grants are lost: up to twice the limit may be held, until a lease after its last \
                           grant. CONFIG SET min-replicas-to-write 1 and CONFIG SET \
                           min-replicas-max-lag 2 (and in the configuration file) make it refuse after 2 s.";
            let observed =
                format!("replicas: {replicas}, and writes need none of them (min-replicas-to-write 0)");
            return Some(Finding::problem("replication", observed, advice));
        }
        let lag = self.setting_count("min-replicas-max-lag");
        let bound = lag.map(|lag| format!(" within {lag} s (min-replicas-max-lag)")).unwrap_or_default();
        let observed = format!("replicas: {replicas}, of which {least} must follow{bound}");
        if lag.is_some_and(|lag| Duration::from_secs(lag) >= self.lease) {
            let advice = "A primary that was cut off by a failover grants for min-replicas-max-lag, which is not \
                           less than your lease: more than the limit may be held then. CONFIG SET \
                           min-replicas-max-lag 2.";
            return Some(Finding::note("replication", observed, advice));
        }
        Some(Finding::fine("replication", observed))
    }

    fn connections(&self) -> Finding {
        let connected = self.count("connected_clients").unwrap_or(0);
        let most = self.setting_count("maxclients").or_else(|| self.count("maxclients"));
        let observed = match most {
            Some(most) => format!("{connected} of at most {most}"),
            None => format!("{connected}"),
        };
        if most.is_some_and(|most| share(connected, most) >= NEARLY) {
            let advice = "At the maximum the server refuses connections, and a session that must reconnect loses its \
                           permits. A session has one connection: raise maxclients, or find the programs with the \
                           most (CLIENT LIST).";
            return Finding::problem("connections", observed, advice);
        }
        Finding::fine("connections", observed)
    }
}

/// The used share of `most`. Precise enough, since f64 rounds only above 2^53.
fn share(used: u64, most: u64) -> f64 {
    used as f64 / most as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use permits_store::Severity::{self, Fine, Note, Problem};

    const LEASE: Duration = Duration::from_secs(15);

    /// A server without faults. Of a field that occurs twice, the first counts.
    const WELL: &str = "redis_version:7.0.15\r\nrole:master\r\nmaxmemory:1000\r\nmaxmemory_policy:noeviction\r\n\
        used_memory:100\r\nloading:0\r\naof_enabled:1\r\naof_last_write_status:ok\r\nrdb_last_bgsave_status:ok\r\n\
        connected_slaves:0\r\nconnected_clients:1\r\nmaxclients:100\r\n";

    /// The findings about a server with these differences, by subject.
    fn found(info: &str, settings: &[(&'static str, &str)]) -> Vec<(&'static str, Severity)> {
        let settings = settings.iter().map(|(name, value)| (*name, (*value).to_owned()));
        let configuration = Configuration::Known(settings.collect());
        let info = format!("{info}\r\n{WELL}");
        let settings =
            Settings { info: &info, configuration: &configuration, in_cluster: false, lease: LEASE };
        let findings = settings.findings();
        for finding in &findings {
            assert_eq!(finding.advice.is_empty(), finding.severity == Fine, "{finding:?}");
        }
        findings.iter().map(|finding| (finding.subject, finding.severity)).collect()
    }

    #[track_caller]
    fn assert_found(info: &str, settings: &[(&'static str, &str)], expected: (&str, Severity)) {
        let findings = found(info, settings);
        assert!(findings.contains(&expected), "{info:?}, {settings:?}: {findings:?}");
    }

    #[test]
    fn a_server_without_faults_is_fine() {
        let findings = found("", &[("appendfsync", "everysec"), ("maxclients", "100")]);
        assert!(findings.iter().all(|(_, severity)| *severity == Fine), "{findings:?}");
        let subjects: Vec<_> = findings.iter().map(|(subject, _)| *subject).collect();
        let expected = ["version", "role", "eviction", "persistence", "replication", "connections"];
        assert_eq!(subjects, expected);
    }

    #[test]
    fn faults_are_found() {
        for (info, expected) in [
            ("redis_version:6.0.16", ("version", Problem)),
            ("redis_version:7.2.4\r\nvalkey_version:8.0.1", ("version", Fine)),
            ("loading:1", ("loading", Problem)),
            ("async_loading:1", ("loading", Problem)),
            ("role:slave\r\nmaster_host:h\r\nmaster_port:1", ("role", Problem)),
            ("maxmemory_policy:volatile-lru", ("eviction", Problem)),
            ("maxmemory_policy:volatile-lru\r\nmaxmemory:0", ("eviction", Note)),
            ("maxmemory_policy:", ("eviction", Note)),
            ("used_memory:900", ("memory", Problem)),
            ("aof_last_write_status:err", ("persistence", Problem)),
            ("rdb_last_bgsave_status:err", ("persistence", Problem)),
            ("aof_enabled:0", ("persistence", Note)),
            ("connected_slaves:1", ("replication", Problem)),
            ("connected_slaves:1\r\nmin_slaves_good_slaves:1", ("replication", Fine)),
            ("connected_slaves:0\r\nmin_slaves_good_slaves:0", ("replication", Problem)),
            ("connected_clients:90", ("connections", Problem)),
        ] {
            assert_found(info, &[], expected);
        }
        assert_found("", &[("maxclients", "1")], ("connections", Problem));
        let followed = "connected_slaves:2\r\nmin_slaves_good_slaves:2";
        for (lag, severity) in [("2", Fine), ("15", Note)] {
            let settings = [("min-replicas-to-write", "2"), ("min-replicas-max-lag", lag)];
            assert_found(followed, &settings, ("replication", severity));
        }
        let failed = "rdb_last_bgsave_status:err";
        assert_found(failed, &[("stop-writes-on-bgsave-error", "no")], ("persistence", Fine));
        assert_found(failed, &[("save", "")], ("persistence", Fine));
    }

    #[test]
    fn memory_without_a_limit_has_no_finding() {
        let findings = found("maxmemory:0\r\nused_memory:1", &[]);
        assert!(!findings.iter().any(|(subject, _)| *subject == "memory"), "{findings:?}");
    }

    #[test]
    fn kinds_of_persistence_are_distinguished() {
        for (save, words) in [("", "nothing is written"), ("3600 1", "snapshots only")] {
            let configuration = Configuration::Known([("save", save.to_owned())].into());
            let info = format!("aof_enabled:0\r\n{WELL}");
            let settings =
                Settings { info: &info, configuration: &configuration, in_cluster: false, lease: LEASE };
            assert!(settings.persistence().observed.contains(words), "{:?}", settings.persistence());
        }
    }

    #[test]
    fn a_node_and_a_sentinel_have_another_url() {
        assert_eq!(another_mode("redis_mode:standalone\r\n"), None);
        for (mode, scheme) in [("cluster", "redis+cluster://"), ("sentinel", "redis+sentinel://")] {
            for field in ["redis_mode", "server_mode"] {
                let found = another_mode(&format!("{field}:{mode}\r\n")).expect("it is another mode");
                assert!(found.severity == Problem && found.advice.contains(scheme), "{found:?}");
            }
        }
    }
}
