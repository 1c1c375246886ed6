//! Which rights a user needs on the server: the one place that lists them, each command with what it is for.
//!
//! Commands stand one by one, because categories grant too much: `+@scripting` also allows SCRIPT FLUSH. Each
//! has arguments with which it does nothing but be allowed or denied, so that a server of any version can be
//! asked (Redis can tell without trying only since 7.0). `check.lua` asks for the same commands in one call when
//! a session connects; a test compares the two lists with the commands that the code runs.

use redis::Cmd;

use super::keys;
use crate::protocol::{InvalidInput, check_prefix};

/// Some rules of `ACL SETUSER`, and what they are for. Made by [`rights`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rights {
    /// The purpose that they serve.
    pub purpose: &'static str,
    /// Whether every session outside of a cluster needs them: the least rights. The others are for one purpose each,
    /// and a server before Redis 7.0 refuses those for clusters.
    pub needed: bool,
    /// The rules, a word each, such as `+hset`.
    pub rules: Vec<String>,
}

/// The rights of a user, for keys that begin with `prefix`: first the least rights ([`Rights::needed`]), then those
/// that some programs need. Their rules follow `ACL SETUSER name`, in this order, in one call or in several.
///
/// The rules take away what the user was allowed before, and leave its passwords. A new user has no password, and
/// cannot log in until it is given one.
///
/// # Errors
/// [`InvalidInput`] if the prefix is not valid.
///
/// # Examples
/// ```
/// # fn main() -> Result<(), permits::Invalid> {
/// let rights = permits::store::redis::rights("permits")?;
/// let least = rights.into_iter().filter(|rights| rights.needed);
/// let rules: Vec<String> = least.flat_map(|rights| rights.rules).collect();
/// println!("ACL SETUSER exporter >password {}", rules.join(" "));
/// # Ok(())
/// # }
/// ```
pub fn rights(prefix: &str) -> Result<Vec<Rights>, InvalidInput> {
    check_prefix(prefix)?;
    let reach = Rights {
        purpose: "log in; these keys and channels, and nothing else that was allowed before",
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
        Rights { purpose: group.purpose, needed, rules: channels.into_iter().chain(commands).collect() }
    };
    Ok(std::iter::once(reach).chain(GROUPS.iter().map(allowed)).collect())
}

/// Commands that serve one purpose.
struct Group {
    purpose: &'static str,
    need: Need,
    commands: &'static [(&'static str, &'static [Argument])],
}

/// When a session needs a group.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    Always,
    /// If the server is in no cluster.
    Alone,
    /// If it is in one.
    Cluster,
    /// For something that not every program does.
    Optional,
}

/// An argument of an attempt.
#[derive(Clone, Copy)]
enum Argument {
    /// A key such as semaphores have, which is not there.
    Key,
    /// A channel such as sessions have, on which nobody listens.
    Channel,
    /// This.
    Text(&'static str),
}

use Argument::{Channel, Key, Text};

/// Everything that is ever asked of a server.
const GROUPS: [Group; 9] = [
    Group {
        purpose: "connect, know the server again after a restart, and notice when it is gone",
        need: Need::Always,
        commands: &[("PING", &[]), ("INFO", &[Text("server")])],
    },
    Group {
        purpose: "run the scripts, each of which is one command to a semaphore",
        need: Need::Always,
        commands: &[
            ("EVAL", &[Text("return 1"), Text("1"), Key]),
            ("EVALSHA", &[Text("0000000000000000000000000000000000000000"), Text("1"), Key]),
        ],
    },
    Group {
        purpose: "what the scripts do to the keys of a semaphore, by the server's clock",
        need: Need::Always,
        commands: &[
            ("TIME", &[]),
            ("EXISTS", &[Key]),
            ("TYPE", &[Key]),
            ("DEL", &[Key]),
            ("HGET", &[Key, Text("")]),
            ("HMGET", &[Key, Text("")]),
            // A field without a value: refused after the rights are checked, before anything is written.
            ("HSET", &[Key, Text(""), Text(""), Text("")]),
            ("HDEL", &[Key, Text("")]),
            ("HLEN", &[Key]),
            // A score that is no number: likewise.
            ("ZADD", &[Key, Text("none"), Text("")]),
            ("ZREM", &[Key, Text("")]),
            ("ZRANGE", &[Key, Text("0"), Text("0")]),
            ("ZRANGEBYSCORE", &[Key, Text("0"), Text("0")]),
            ("ZREVRANGEBYSCORE", &[Key, Text("0"), Text("0")]),
            ("ZCARD", &[Key]),
            ("ZRANK", &[Key, Text("")]),
            ("ZSCORE", &[Key, Text("")]),
            ("PEXPIREAT", &[Key, Text("0")]),
            ("PERSIST", &[Key]),
        ],
    },
    Group {
        purpose: "tell waiters of their grants, and hear of one's own",
        need: Need::Alone,
        commands: &[("PUBLISH", &[Channel, Text("")]), ("SUBSCRIBE", &[Channel])],
    },
    Group {
        purpose: "in a cluster, from Redis 7.0 on: find the nodes, follow slots that move, and the same for waiters",
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
        // An index that is no number: refused after the rights are checked.
        commands: &[("SELECT", &[Text("none")])],
    },
];

/// A command that is tried.
pub(crate) struct Attempt {
    pub(crate) name: &'static str,
    pub(crate) needed: bool,
    /// None for what is tried on its own: listening needs a connection of its own, and CONFIG GET is used anyway.
    pub(crate) command: Option<Cmd>,
}

/// Every command that a server in a cluster, or in none, is ever asked, in a form that changes nothing.
pub(crate) fn attempts(in_cluster: bool, key: &str, channel: &str) -> Vec<Attempt> {
    let attempt = |group: &Group, name: &'static str, arguments: &[Argument]| {
        let mut command = Cmd::new();
        name.split('|').for_each(|word| {
            command.arg(word);
        });
        for argument in arguments {
            command.arg(match argument {
                Key => key,
                Channel => channel,
                Text(text) => text,
            });
        }
        let on_its_own = matches!(name, "SUBSCRIBE" | "SSUBSCRIBE" | "SUNSUBSCRIBE" | "CONFIG|GET");
        Attempt { name, needed: group.need != Need::Optional, command: (!on_its_own).then_some(command) }
    };
    let each = |group: &'static Group| {
        group.commands.iter().map(move |(name, arguments)| attempt(group, name, arguments))
    };
    let other = if in_cluster { Need::Alone } else { Need::Cluster };
    GROUPS.iter().filter(|group| group.need != other).flat_map(each).collect()
}

/// What a user is not allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Denial {
    /// The command, on anything.
    Command,
    /// The keys, by this command.
    Keys,
    /// The channel, by this command.
    Channel,
    /// The server does not have the command, or it was renamed.
    Unknown,
}

/// Whether this error is a denial. Other errors are the command's own: it was allowed.
pub(crate) fn denial(code: &str, detail: &str) -> Option<Denial> {
    match code {
        // First: since 7.2 this text has the name of the user in it, which may be anything.
        "NOPERM" if detail.contains("to run the") => Some(Denial::Command),
        "NOPERM" if detail.contains("channel") => Some(Denial::Channel),
        "NOPERM" => Some(Denial::Keys),
        _ if detail.contains("unknown command") => Some(Denial::Unknown),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn denials_are_told_apart_as_each_version_words_them() {
        let keys = "this user has no permissions to access one of the keys used as arguments";
        let channels = "this user has no permissions to access one of the channels used as arguments";
        for (code, detail, expected) in [
            ("NOPERM", "this user has no permissions to run the 'hset' command", Some(Denial::Command)),
            ("NOPERM", "User keys has no permissions to run the 'hset' command", Some(Denial::Command)),
            ("NOPERM", keys, Some(Denial::Keys)),
            ("NOPERM", "No permissions to access a key", Some(Denial::Keys)),
            ("NOPERM", channels, Some(Denial::Channel)),
            ("NOPERM", "No permissions to access a channel", Some(Denial::Channel)),
            ("ERR", "unknown command 'EVAL', with args beginning with: ", Some(Denial::Unknown)),
            ("ERR", "value is not a valid float", None),
            ("NOSCRIPT", "No matching script. Please use EVAL.", None),
        ] {
            assert_eq!(denial(code, detail), expected, "{detail}");
        }
    }

    #[test]
    fn patterns_match_just_the_prefix() {
        let all = rights("a*[b]").expect("it is a valid prefix");
        assert_eq!(all[0].rules[2], r"~a\*\[b\]:{*");
        assert_eq!(all[0].rules[4], r"&a\*\[b\]:wake:*");
        assert!(rights("a b").is_err());
    }
}
