//! The names of keys and channels. No other module builds one.
//!
//! All keys of a semaphore share a hash tag, so they are in one hash slot of a cluster:
//! `permits:{NAME}:state`. In the tag, `{`, `}`, `%` and control characters are percent-encoded.

use std::fmt::Write as _;

use crate::protocol::{Name, SessionId};
use permits_store::sys::percent;

/// The last parts of the keys, in the order in which the scripts take them.
pub(crate) const PARTS: [&str; 5] = ["state", "queue", "leases", "free", "lanes"];

/// The keys of one semaphore, in the order in which the scripts take them.
pub(crate) fn keys(prefix: &str, name: &Name) -> [String; PARTS.len()] {
    let tag = encode(name.as_str());
    PARTS.map(|part| format!("{prefix}:{{{tag}}}:{part}"))
}

/// A pattern for SCAN that the `state` keys of all semaphores match.
pub(crate) fn state_pattern(prefix: &str) -> String {
    format!("{}:{{*}}:{}", escaped(prefix), PARTS[0])
}

/// A pattern for an ACL that all keys of all semaphores match.
pub(crate) fn pattern(prefix: &str) -> String {
    format!("{}:{{*", escaped(prefix))
}

/// A pattern for an ACL that the channels of all sessions match.
pub(crate) fn channel_pattern(prefix: &str, in_cluster: bool) -> String {
    let tag = if in_cluster { ":{*}" } else { "" };
    format!("{}{tag}:wake:*", escaped(prefix))
}

/// The part of a pattern that matches exactly `prefix`.
fn escaped(prefix: &str) -> String {
    let mut escaped = String::with_capacity(prefix.len());
    for character in prefix.chars() {
        if matches!(character, '*' | '?' | '[' | ']' | '\\' | '^' | '-') {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

/// The semaphore whose `state` key this is.
pub(crate) fn name_of_state(prefix: &str, key: &[u8]) -> Option<Name> {
    let key = std::str::from_utf8(key).ok()?;
    let tag = key.strip_prefix(prefix)?.strip_prefix(":{")?.strip_suffix(PARTS[0])?.strip_suffix("}:")?;
    let name = Name::new(&percent::decode(tag)?).ok()?;
    // Another program's key may decode to a name whose own key is spelled otherwise.
    (encode(name.as_str()) == tag).then_some(name)
}

/// A key of the form that semaphores have, to test permissions. No semaphore has it, since names are not
/// empty.
pub(crate) fn some_key(prefix: &str) -> String {
    format!("{prefix}:{{}}:{}", PARTS[0])
}

/// A channel of the form that sessions have, to test permissions.
pub(crate) fn some_channel(prefix: &str, in_cluster: bool, session: &SessionId) -> String {
    let tag = if in_cluster { ":{}" } else { "" };
    format!("{prefix}{tag}:wake:{session}")
}

/// The channel of a session's events, without the session's id. In a cluster there is one for each semaphore,
/// in the hash slot of its keys.
pub(crate) fn channel_prefix(prefix: &str, sharded_by: Option<&Name>) -> String {
    match sharded_by {
        None => format!("{prefix}:wake:"),
        Some(name) => format!("{prefix}:{{{}}}:wake:", tag(name)),
    }
}

/// The channel of a session's events.
pub(crate) fn channel(prefix: &str, sharded_by: Option<&Name>, session: &SessionId) -> String {
    channel_prefix(prefix, sharded_by) + session.as_str()
}

/// The channel on which is recalled what sessions keep of a semaphore.
pub(crate) fn recall_channel(prefix: &str, sharded: bool, semaphore: &Name) -> String {
    format!("{}recall:{semaphore}", channel_prefix(prefix, sharded.then_some(semaphore)))
}

/// The hash tag of the semaphore's keys.
pub(crate) fn tag(name: &Name) -> String {
    encode(name.as_str())
}

fn encode(name: &str) -> String {
    let mut encoded = String::with_capacity(name.len());
    for character in name.chars() {
        if matches!(character, '{' | '}' | '%') || character.is_control() {
            let mut bytes = [0; 4];
            for byte in character.encode_utf8(&mut bytes).bytes() {
                let _ = write!(encoded, "%{byte:02X}");
            }
        } else {
            encoded.push(character);
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_break_out_of_the_hash_tag() {
        let name = Name::new("a}b{c%d é").expect("valid");
        assert_eq!(keys("p", &name)[0], "p:{a%7Db%7Bc%25d é}:state");
    }

    #[test]
    fn a_state_key_contains_its_name() {
        for name in ["a}b{c%d é", "%7B", "{", "a\nb", "plain"] {
            let Ok(name) = Name::new(name) else { continue };
            assert_eq!(name_of_state("p", keys("p", &name)[0].as_bytes()), Some(name.clone()));
            assert_eq!(name_of_state("p", keys("p", &name)[1].as_bytes()), None);
            assert_eq!(name_of_state("q", keys("p", &name)[0].as_bytes()), None);
        }
        for foreign in ["p:{%7b}:state", "p:{%}:state", "p:{%+1}:state", "p:{}:state", "p:{a}b}:state"] {
            assert_eq!(name_of_state("p", foreign.as_bytes()), None, "{foreign}");
        }
    }

    #[test]
    fn encoded_names_stay_apart() {
        let names =
            ["%7B", "{", "%257B", "%"].map(|name| keys("p", &Name::new(name).expect("valid"))[0].clone());
        let distinct: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(distinct.len(), names.len());
    }
}
