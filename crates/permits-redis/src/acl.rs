//! The commands, keys and channels that a user needs on the server, each command with its purpose.
//!
//! Commands are listed one by one, because categories grant too much: `+@scripting` also allows SCRIPT FLUSH.
//! Each has arguments with which it is allowed or denied and has no other effect, so that permissions can be
//! tested on a server of any version (`acl_check_cmd` exists since Redis 7.0). `acl_probe.lua` tests the same
//! commands in one call when a session connects; a test compares the two lists with the commands that the
//! code runs.

use super::keys;
use super::resp::{Cmd, cmd};
use crate::protocol::{InvalidInput, check_prefix};

/// Rules of `ACL SETUSER` that serve one purpose. Made by [`acl_rules`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AclRules {
    /// The purpose.
    pub purpose: &'static str,
    /// True if every session outside of a cluster needs them: the least rights. A server before Redis 7.0
    /// refuses the rules for clusters.
    pub needed: bool,
    /// The rules, a word each, such as `+hset`.
    pub rules: Vec<String>,
}

/// The rules for a user, for keys that begin with `prefix`: first the least rights ([`AclRules::needed`]),
/// then the rights that only some programs need. The rules are arguments of `ACL SETUSER name`, in this
/// order, in one call or in several.
///
/// The rules revoke all earlier permissions of the user but selectors, and leave its passwords as they are.
/// From Redis 7.0 on, put `clearselectors` before them if the user may have selectors. A new user has no
/// password, and cannot log in until an operator sets one.
///
/// # Errors
/// [`InvalidInput`] if the prefix is not valid.
///
/// # Examples
/// ```
/// # use permits_redis as permits;
/// # fn main() -> Result<(), permits_core::protocol::InvalidInput> {
/// let groups = permits::acl_rules("permits")?;
/// let least = groups.into_iter().filter(|group| group.needed);
/// let rules: Vec<String> = least.flat_map(|group| group.rules).collect();
/// println!("ACL SETUSER exporter >password {}", rules.join(" "));
/// # Ok(())
/// # }
/// ```
pub fn acl_rules(prefix: &str) -> Result<Vec<AclRules>, InvalidInput> {
    check_prefix(prefix)?;
    let reach = AclRules {
        purpose: "log in; use these keys and channels, and no others",
        needed: true,
        rules: vec![
            "on".into(),
            "resetkeys".into(),
            format!("~{}", keys::pattern(prefix)),
            "resetchannels".into(),
            format!("&{}", keys::channel_pattern(prefix, false)),
            "-@all".into(),
        ],
    };
    let allowed = |group: &Group| {
        let channels = (group.need == Need::Cluster).then(|| keys::channel_pattern(prefix, true));
        let channels = channels.map(|pattern| format!("&{pattern}"));
        let commands = group.commands.iter().map(|(name, _)| format!("+{}", name.to_lowercase()));
        let needed = matches!(group.need, Need::Always | Need::Alone);
        AclRules { purpose: group.purpose, needed, rules: channels.into_iter().chain(commands).collect() }
    };
    Ok(std::iter::once(reach).chain(GROUPS.iter().map(allowed)).collect())
}

/// Commands that serve one purpose.
struct Group {
    purpose: &'static str,
    need: Need,
    commands: &'static [(&'static str, &'static [Argument])],
}

/// The sessions that need a group.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    Always,
    /// Sessions outside of a cluster.
    Alone,
    /// Sessions in a cluster.
    Cluster,
    /// Programs that use an optional feature.
    Optional,
}

/// An argument of an attempt.
#[derive(Clone, Copy)]
enum Argument {
    /// A key of the form that semaphores have, which does not exist.
    Key,
    /// A channel of the form that sessions have, without a subscriber.
    Channel,
    /// A fixed text.
    Text(&'static str),
}

use Argument::{Channel, Key, Text};

/// Every command that is ever sent to a server.
const GROUPS: [Group; 9] = [
    Group {
        purpose: "connect, recognise a restart of the server, and notice when it is gone",
        need: Need::Always,
        commands: &[("PING", &[]), ("INFO", &[Text("server")])],
    },
    Group {
        purpose: "run the scripts, each of which is one operation on a semaphore",
        need: Need::Always,
        commands: &[
            ("EVAL", &[Text("return 1"), Text("1"), Key]),
            ("EVALSHA", &[Text("0000000000000000000000000000000000000000"), Text("1"), Key]),
        ],
    },
    Group {
        purpose: "in the scripts: use the keys of a semaphore, and the server's clock",
        need: Need::Always,
        commands: &[
            ("TIME", &[]),
            ("EXISTS", &[Key]),
            ("TYPE", &[Key]),
            ("DEL", &[Key]),
            ("UNLINK", &[Key]),
            ("HGET", &[Key, Text("")]),
            ("HGETALL", &[Key]),
            ("HMGET", &[Key, Text("")]),
            // A field without a value: refused after the permissions are checked, before anything is written.
            ("HSET", &[Key, Text(""), Text(""), Text("")]),
            ("HDEL", &[Key, Text("")]),
            // A score that is no number: it fails, too.
            ("ZADD", &[Key, Text("none"), Text("")]),
            ("ZREM", &[Key, Text("")]),
            ("ZPOPMIN", &[Key, Text("0")]),
            ("ZRANGE", &[Key, Text("0"), Text("0")]),
            ("ZRANGEBYSCORE", &[Key, Text("0"), Text("0")]),
            ("ZREVRANGEBYSCORE", &[Key, Text("0"), Text("0")]),
            ("ZCARD", &[Key]),
            ("ZCOUNT", &[Key, Text("0"), Text("0")]),
            ("ZRANK", &[Key, Text("")]),
            ("ZREVRANK", &[Key, Text("")]),
            ("ZSCORE", &[Key, Text("")]),
            ("PEXPIREAT", &[Key, Text("0")]),
            ("PERSIST", &[Key]),
        ],
    },
    Group {
        purpose: "publish grants to waiters, and receive one's own",
        need: Need::Alone,
        commands: &[
            ("PUBLISH", &[Channel, Text("")]),
            ("SUBSCRIBE", &[Channel]),
            ("UNSUBSCRIBE", &[Channel]),
        ],
    },
    Group {
        purpose: "in a cluster, from Redis 7.0 on: find the nodes, follow hash slots that move, and the same for waiters",
        need: Need::Cluster,
        commands: &[
            ("CLUSTER|SLOTS", &[]),
            ("ASKING", &[]),
            ("SPUBLISH", &[Channel, Text("")]),
            ("SSUBSCRIBE", &[Channel]),
            ("SUNSUBSCRIBE", &[Channel]),
        ],
    },
    Group {
        purpose: "wait until replicas have a grant (ClientBuilder::replicas)",
        need: Need::Optional,
        commands: &[("WAIT", &[Text("0"), Text("1")])],
    },
    Group {
        purpose: "list the semaphores (permits list, permits top); shows the names of all keys",
        need: Need::Optional,
        commands: &[("SCAN", &[Text("0"), Text("COUNT"), Text("1")])],
    },
    Group {
        purpose: "read the server's configuration (permits doctor)",
        need: Need::Optional,
        commands: &[("CONFIG|GET", &[Text("timeout")])],
    },
    Group {
        purpose: "use another database than 0",
        need: Need::Optional,
        // An index that is no number: refused after the permissions are checked.
        commands: &[("SELECT", &[Text("none")])],
    },
];

/// A command to test a permission with.
pub(crate) struct Attempt {
    pub(crate) name: &'static str,
    pub(crate) needed: bool,
    /// `None` for a command that is tested otherwise: subscriptions need a connection of their own, and
    /// CONFIG GET is sent anyway.
    pub(crate) command: Option<Cmd>,
}

/// Every command that is sent to a server in a cluster, or outside of one, in a form that changes nothing.
pub(crate) fn attempts(in_cluster: bool, key: &str, channel: &str) -> Vec<Attempt> {
    let attempt = |group: &Group, name: &'static str, arguments: &[Argument]| {
        let mut words = name.split('|');
        let mut command = cmd(words.next().unwrap_or_default());
        command.args(words).args(arguments.iter().map(|argument| match argument {
            Key => key,
            Channel => channel,
            Text(text) => text,
        }));
        let is_special =
            matches!(name, "SUBSCRIBE" | "UNSUBSCRIBE" | "SSUBSCRIBE" | "SUNSUBSCRIBE" | "CONFIG|GET");
        Attempt { name, needed: group.need != Need::Optional, command: (!is_special).then_some(command) }
    };
    let each = |group: &'static Group| {
        group.commands.iter().map(move |(name, arguments)| attempt(group, name, arguments))
    };
    let other = if in_cluster { Need::Alone } else { Need::Cluster };
    GROUPS.iter().filter(|group| group.need != other).flat_map(each).collect()
}

/// A permission that a user lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Denial {
    /// The command, with any argument.
    Command,
    /// The keys, by this command.
    Keys,
    /// The channel, by this command.
    Channel,
    /// The database, since Valkey 9.1.
    Database,
    /// The server does not have the command, or it was renamed.
    Unknown,
}

/// The denial that an error reports. Any other error is the command's own, which was allowed then.
pub(crate) fn denial(code: &str, detail: &str) -> Option<Denial> {
    match code {
        // Checked first, because since 7.2 this text contains the name of the user, which may be any text.
        "NOPERM" if detail.contains("to run the") => Some(Denial::Command),
        "NOPERM" if detail.contains("channel") => Some(Denial::Channel),
        "NOPERM" if detail.contains("access database") => Some(Denial::Database),
        "NOPERM" => Some(Denial::Keys),
        // The second is of a Valkey whose engine of Lua is a module that is not loaded.
        _ if ["unknown command", "scripting engine"].iter().any(|text| detail.contains(text)) => {
            Some(Denial::Unknown)
        }
        _ => None,
    }
}

/// The message about missing permissions, each command once. `denied` are commands with their first
/// arguments.
pub(crate) fn missing_rights(denied: &[String], prefix: &str) -> String {
    let mut missing: Vec<(String, Vec<&str>)> = Vec::new();
    let some_key = keys::some_key(prefix);
    for line in denied {
        let (command, argument) = line.split_once(' ').unwrap_or((line, ""));
        let on = match command {
            "SUBSCRIBE" | "PUBLISH" => format!(" on channels {}", keys::channel_pattern(prefix, false)),
            "SSUBSCRIBE" | "SPUBLISH" => format!(" on channels {}", keys::channel_pattern(prefix, true)),
            _ if argument == some_key => format!(" on keys {}", keys::pattern(prefix)),
            _ => String::new(),
        };
        match missing.iter_mut().find(|(known, _)| *known == on) {
            Some((_, commands)) => commands.push(command),
            None => missing.push((on, vec![command])),
        }
    }
    let missing: Vec<String> =
        missing.iter().map(|(on, commands)| format!("{}{on}", commands.join(", "))).collect();
    format!(
        "this user may not run {}: allow it with ACL SETUSER (permits doctor --acl prints the rules)",
        missing.join("; nor ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn denials_are_recognised_as_each_version_words_them() {
        let keys = "this user has no permissions to access one of the keys used as arguments";
        let channels = "this user has no permissions to access one of the channels used as arguments";
        for (code, detail, expected) in [
            ("NOPERM", "this user has no permissions to run the 'hset' command", Some(Denial::Command)),
            ("NOPERM", "User keys has no permissions to run the 'hset' command", Some(Denial::Command)),
            ("NOPERM", keys, Some(Denial::Keys)),
            ("NOPERM", "No permissions to access a key", Some(Denial::Keys)),
            ("NOPERM", channels, Some(Denial::Channel)),
            ("NOPERM", "No permissions to access a channel", Some(Denial::Channel)),
            ("NOPERM", "No permissions to access database", Some(Denial::Database)),
            ("ERR", "unknown command 'EVAL', with args beginning with: ", Some(Denial::Unknown)),
            ("ERR", "value is not a valid float", None),
            ("NOSCRIPT", "No matching script. Please use EVAL.", None),
        ] {
            assert_eq!(denial(code, detail), expected, "{detail}");
        }
    }

    #[test]
    fn patterns_match_only_the_prefix() {
        let all = acl_rules("a*[b]").expect("it is a valid prefix");
        assert_eq!(all[0].rules[2], r"~a\*\[b\]:{*");
        assert_eq!(all[0].rules[4], r"&a\*\[b\]:wake:*");
        assert!(acl_rules("a b").is_err());
    }
}
