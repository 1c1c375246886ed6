//! What the settings and the state of a server mean, as INFO and CONFIG GET tell them. Nothing is asked here.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::examine::Finding;
use crate::store::redis::server::info::{check_version, field, mode};

/// The settings that matter.
pub(super) const NAMES: [&str; 7] = [
    "appendfsync",
    "save",
    "stop-writes-on-bgsave-error",
    "min-replicas-to-write",
    "min-replicas-max-lag",
    "timeout",
    "maxclients",
];

/// From this share on a bound is nearly reached.
const NEARLY: f64 = 0.9;

/// Connections that are used are never idle for longer: sessions send a ping at least so often.
const PING_EVERY: Duration = Duration::from_secs(5);

/// What CONFIG GET tells.
pub(super) enum Configuration {
    /// By name.
    Known(BTreeMap<&'static str, String>),
    /// Nothing, in these words.
    Hidden(String),
}

/// What a server tells about itself.
pub(super) struct Settings<'a> {
    pub(super) info: &'a str,
    pub(super) configuration: &'a Configuration,
    /// Whether it should be a node of a cluster.
    pub(super) in_cluster: bool,
    /// The usual lease of whoever asks.
    pub(super) lease: Duration,
}

/// A server that is part of a cluster, or watches others, is no single server.
pub(super) fn another_mode(info: &str) -> Option<Finding> {
    let (observed, scheme) = match mode(info)? {
        "cluster" => ("this server is a node of a cluster", "redis+cluster://"),
        "sentinel" => ("this is a Sentinel, which watches servers and is none", "redis+sentinel://"),
        _ => return None,
    };
    let meaning = format!("The URL is for a single server. For this one it begins with {scheme}.");
    Some(Finding::problem("mode", observed, meaning))
}

impl Settings<'_> {
    /// Whether the server does not serve yet.
    pub(super) fn is_loading(&self) -> bool {
        self.count("loading") == Some(1) || self.count("async_loading") == Some(1)
    }

    /// All findings.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let mut findings = vec![self.version()];
        if self.is_loading() {
            let meaning =
                "It answers nothing until it has read its data. Programs wait for it: try again then.";
            findings.push(Finding::problem("loading", "the server is loading its data from disk", meaning));
            return findings;
        }
        if let Configuration::Hidden(reason) = self.configuration {
            let meaning = "This user may not read the server's configuration, so what follows from it cannot be \
                           told: min-replicas-to-write, save, appendfsync, timeout. Look there yourself, or \
                           allow it: ACL SETUSER name +config|get.";
            findings.push(Finding::note("configuration", format!("CONFIG GET: {reason}"), meaning));
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
        let meaning = "A replica refuses all writes, and permits are writes. Connect to the primary; if that \
                       changes by failover, connect by way of Sentinel (redis+sentinel://).";
        Finding::problem("role", format!("a replica, of {host}:{port}"), meaning)
    }

    fn eviction(&self) -> Finding {
        let policy = self.text("maxmemory_policy");
        match (policy, self.count("maxmemory")) {
            ("", _) | (_, None) => Finding::note(
                "eviction",
                "the server does not say what it does when its memory is full",
                "It must not evict keys (maxmemory-policy noeviction): an evicted key is a permit that is held \
                 and forgotten.",
            ),
            ("noeviction", _) => Finding::fine("eviction", "noeviction: no key is dropped to make room"),
            (policy, Some(0)) => Finding::note(
                "eviction",
                format!("{policy}, but without a memory limit (maxmemory 0)"),
                "Nothing is evicted as it is. Once somebody sets maxmemory, keys of semaphores in use would be: \
                 CONFIG SET maxmemory-policy noeviction.",
            ),
            (policy, Some(_)) => Finding::problem(
                "eviction",
                format!("{policy}, with a memory limit"),
                "When memory is full the server drops keys of semaphores in use, and forgets who holds: more than \
                 the limit are admitted. CONFIG SET maxmemory-policy noeviction (and in the configuration file), \
                 or give permits a server of its own.",
            ),
        }
    }

    fn memory(&self) -> Option<Finding> {
        let (used, most) = (self.count("used_memory")?, self.count("maxmemory")?);
        if most == 0 || share(used, most) < NEARLY {
            return None;
        }
        let observed = format!("{:.0} % of maxmemory are used", 100.0 * share(used, most));
        let meaning = "When it is full, nothing can be acquired; what is held can still be renewed and released. \
                       Raise maxmemory, or find out what fills it (redis-cli --bigkeys).";
        Some(Finding::problem("memory", observed, meaning))
    }

    fn persistence(&self) -> Finding {
        let refuses = self.setting("stop-writes-on-bgsave-error") != Some("no");
        let failed = [
            (self.text("aof_last_write_status") == "err", "the append-only file could not be written"),
            (
                self.text("rdb_last_bgsave_status") == "err" && refuses,
                "the last snapshot could not be written",
            ),
        ];
        if let Some((_, observed)) = failed.iter().find(|(failed, _)| *failed) {
            let meaning = "The server refuses all writes until it can write to its disk again, and permits are \
                           writes. Is the disk full, or its directory not writable? Its log says.";
            return Finding::problem("persistence", *observed, meaning);
        }
        if self.count("aof_enabled") == Some(1) {
            let sync =
                self.setting("appendfsync").map(|sync| format!(", appendfsync {sync}")).unwrap_or_default();
            return Finding::fine("persistence", format!("append-only file{sync}"));
        }
        let (observed, after) = match self.setting("save") {
            Some("") => ("nothing is written to disk", "has forgotten everything"),
            Some(_) => ("snapshots only", "knows what its last snapshot knew"),
            None => ("no append-only file", "has forgotten everything, or all since its last snapshot"),
        };
        let meaning = format!(
            "After a restart this server {after}. Whoever is connected then keeps its permits and nobody extra is \
             admitted, because for a renewal interval ({} s by your lease) only what is known is handed on; but \
             limits that operators pinned, and pauses, are forgotten. To keep them: CONFIG SET appendonly yes (and \
             in the configuration file).",
            self.lease.as_secs_f64() / 3.0
        );
        Finding::note("persistence", observed, meaning)
    }

    fn replication(&self) -> Option<Finding> {
        let replicas = self.count("connected_slaves").unwrap_or(0);
        if self.text("role") == "slave" {
            return None;
        }
        // INFO has this field only where a minimum is set, and everybody may read it.
        let good = self.count("min_slaves_good_slaves");
        let least = self.setting_count("min-replicas-to-write").unwrap_or(u64::from(good.is_some()));
        if let Some(good) = good.filter(|good| *good < least) {
            let observed = format!("replicas that follow: {good}, and {least} must (min-replicas-to-write)");
            let meaning = "The server refuses all writes until enough replicas are connected, and permits are \
                           writes. Bring them back, or lower min-replicas-to-write.";
            return Some(Finding::problem("replication", observed, meaning));
        }
        if replicas == 0 {
            return Some(Finding::fine("replication", "no replicas"));
        }
        if good.is_none() {
            let meaning = "After a failover, a primary that was cut off goes on granting until it learns of it, and \
                           all it granted is forgotten: up to twice the limit may be held, for as long as it goes \
                           on and a lease more. CONFIG SET min-replicas-to-write 1 and CONFIG SET \
                           min-replicas-max-lag 2 (and in the configuration file) make it refuse after 2 s.";
            let observed =
                format!("replicas: {replicas}, and writes need none of them (min-replicas-to-write 0)");
            return Some(Finding::problem("replication", observed, meaning));
        }
        let lag = self.setting_count("min-replicas-max-lag");
        let bound = lag.map(|lag| format!(" within {lag} s (min-replicas-max-lag)")).unwrap_or_default();
        let observed = format!("replicas: {replicas}, of which {least} must follow{bound}");
        if lag.is_some_and(|lag| Duration::from_secs(lag) >= self.lease) {
            let meaning = "A primary that was cut off by a failover goes on granting for that long, which is not \
                           less than your lease: more than the limit may be held then. CONFIG SET \
                           min-replicas-max-lag 2.";
            return Some(Finding::note("replication", observed, meaning));
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
            let meaning = "Then nobody can connect any more, and who loses its connection loses its permits. Each \
                           session has two connections: raise maxclients, or find out who has so many.";
            return Finding::problem("connections", observed, meaning);
        }
        match self.setting_count("timeout") {
            Some(seconds @ 1..) if Duration::from_secs(seconds) <= PING_EVERY => {
                let meaning = "The server closes connections that are idle for that long, and sessions send a ping \
                               every 5 s at least: they will connect again and again. CONFIG SET timeout 0.";
                Finding::note("connections", format!("{observed}; closed when idle for {seconds} s"), meaning)
            }
            _ => Finding::fine("connections", observed),
        }
    }
}

/// How much of `most` is used. Exact enough for a share.
fn share(used: u64, most: u64) -> f64 {
    used as f64 / most as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::examine::Severity::{self, Fine, Note, Problem};

    const LEASE: Duration = Duration::from_secs(15);

    /// A server as it should be; what is looked for first counts.
    const WELL: &str = "redis_version:7.0.15\r\nrole:master\r\nmaxmemory:1000\r\nmaxmemory_policy:noeviction\r\n\
        used_memory:100\r\nloading:0\r\naof_enabled:1\r\naof_last_write_status:ok\r\nrdb_last_bgsave_status:ok\r\n\
        connected_slaves:0\r\nconnected_clients:1\r\nmaxclients:100\r\n";

    /// What a server with these differences is told, by subject.
    fn examine(info: &str, settings: &[(&'static str, &str)]) -> Vec<(&'static str, Severity)> {
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
        let findings = examine(info, settings);
        assert!(findings.contains(&expected), "{info:?}, {settings:?}: {findings:?}");
    }

    #[test]
    fn a_server_as_it_should_be_is_fine() {
        let findings = examine("", &[("appendfsync", "everysec"), ("timeout", "0"), ("maxclients", "100")]);
        assert!(findings.iter().all(|(_, severity)| *severity == Fine), "{findings:?}");
        let subjects: Vec<_> = findings.iter().map(|(subject, _)| *subject).collect();
        let expected = ["version", "role", "eviction", "persistence", "replication", "connections"];
        assert_eq!(subjects, expected);
    }

    #[test]
    fn what_is_wrong_is_found() {
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
        for (setting, expected) in [
            (("timeout", "5"), ("connections", Note)),
            (("timeout", "6"), ("connections", Fine)),
            (("maxclients", "1"), ("connections", Problem)),
        ] {
            assert_found("", &[setting], expected);
        }
        let followed = "connected_slaves:2\r\nmin_slaves_good_slaves:2";
        for (lag, severity) in [("2", Fine), ("15", Note)] {
            let settings = [("min-replicas-to-write", "2"), ("min-replicas-max-lag", lag)];
            assert_found(followed, &settings, ("replication", severity));
        }
        let failed = "rdb_last_bgsave_status:err";
        assert_found(failed, &[("stop-writes-on-bgsave-error", "no")], ("persistence", Fine));
    }

    #[test]
    fn memory_without_a_limit_is_not_looked_at() {
        let findings = examine("maxmemory:0\r\nused_memory:1", &[]);
        assert!(!findings.iter().any(|(subject, _)| *subject == "memory"), "{findings:?}");
    }

    #[test]
    fn what_is_kept_on_disk_is_told_apart() {
        for (save, words) in [("", "nothing is written"), ("3600 1", "snapshots only")] {
            let configuration = Configuration::Known([("save", save.to_owned())].into());
            let info = format!("aof_enabled:0\r\n{WELL}");
            let settings =
                Settings { info: &info, configuration: &configuration, in_cluster: false, lease: LEASE };
            assert!(settings.persistence().observed.contains(words), "{:?}", settings.persistence());
        }
    }

    #[test]
    fn a_server_that_is_not_single_is_told_its_url() {
        assert_eq!(another_mode("redis_mode:standalone\r\n"), None);
        for (mode, scheme) in [("cluster", "redis+cluster://"), ("sentinel", "redis+sentinel://")] {
            for field in ["redis_mode", "server_mode"] {
                let found = another_mode(&format!("{field}:{mode}\r\n")).expect("it is another mode");
                assert!(found.severity == Problem && found.advice.contains(scheme), "{found:?}");
            }
        }
    }
}
