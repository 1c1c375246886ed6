//! Fields of INFO, and the checks of a server by them.

use permits_store::StoreError;

/// The oldest versions that are supported, alone and in a cluster: sharded channels came with 7.0.
const OLDEST: (u32, u32) = (6, 2);
const OLDEST_IN_CLUSTER: (u32, u32) = (7, 0);

/// Checks that the server is of the kind that the URL names: alone, or in a cluster.
pub(super) fn check_mode(info: &str, in_cluster: bool) -> Result<(), StoreError> {
    let reason = match mode(info) {
        Some("cluster") if !in_cluster => "it is a node of a cluster: connect with redis+cluster://HOST,HOST",
        Some("sentinel") => {
            "it is a sentinel, which watches servers: connect with redis+sentinel://HOST,HOST/SERVICE"
        }
        _ => return Ok(()),
    };
    Err(StoreError::Mismatch { reason: reason.into() })
}

/// Checks that the server is not too old.
pub(crate) fn check_version(info: &str, in_cluster: bool) -> Result<(), StoreError> {
    let oldest = if in_cluster { OLDEST_IN_CLUSTER } else { OLDEST };
    let version = field(info, "redis_version").unwrap_or_default();
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    if (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) >= oldest {
        return Ok(());
    }
    let reason =
        format!("version {version:?} is too old: Redis {}.{} or newer is needed", oldest.0, oldest.1);
    Err(StoreError::Unsupported { reason })
}

/// The eviction policy, if keys may be evicted.
pub(super) fn evicting_policy(info: &str) -> Option<&str> {
    let policy = field(info, "maxmemory_policy")?;
    (policy != "noeviction" && field(info, "maxmemory")? != "0").then_some(policy)
}

/// The server's mode: `standalone`, `cluster` or `sentinel`. Valkey renamed the field in 8.0.
pub(crate) fn mode(info: &str) -> Option<&str> {
    field(info, "redis_mode").or_else(|| field(info, "server_mode"))
}

/// The value of a field.
pub(crate) fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_before_6_2_are_refused() {
        for old in ["5.0.14", "6.0.16", "", "nonsense"] {
            let error = check_version(&format!("# Server\r\nredis_version:{old}\r\n"), false);
            assert!(matches!(error, Err(StoreError::Unsupported { .. })), "{old}");
        }
        for new in ["6.2.0", "7.0.15", "10.1.0"] {
            assert_eq!(check_version(&format!("redis_version:{new}\r\n"), false), Ok(()), "{new}");
        }
        assert!(check_version("redis_version:6.2.14\r\n", true).is_err());
    }

    #[test]
    fn eviction_is_a_danger_only_with_a_memory_limit() {
        assert_eq!(evicting_policy("maxmemory:100\r\nmaxmemory_policy:allkeys-lru\r\n"), Some("allkeys-lru"));
        assert_eq!(evicting_policy("maxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\n"), None);
        assert_eq!(evicting_policy("maxmemory:100\r\nmaxmemory_policy:noeviction\r\n"), None);
    }
}
