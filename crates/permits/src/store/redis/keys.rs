//! The names of keys and channels: the one place that knows them.
//!
//! All keys of a semaphore share a hash tag, so they live in one slot of a cluster:
//! `permits:{NAME}:state`. In the tag, `{`, `}`, `%` and control characters are percent-encoded.

use std::fmt::Write as _;

use crate::protocol::{Id, Name};

/// The last parts of the keys, in the order in which the scripts take them.
pub(crate) const PARTS: [&str; 5] = ["state", "entries", "queue", "leases", "free"];

/// The keys of one semaphore, in the order in which the scripts take them.
pub(crate) fn keys(prefix: &str, name: &Name) -> [String; PARTS.len()] {
    let tag = encode(name.as_str());
    PARTS.map(|part| format!("{prefix}:{{{tag}}}:{part}"))
}

/// A key such as semaphores have, to see whether they may be used. No semaphore has it: names are not empty.
pub(crate) fn some_key(prefix: &str) -> String {
    format!("{prefix}:{{}}:{}", PARTS[0])
}

/// The channel of a session, without its id.
pub(crate) fn channel_prefix(prefix: &str) -> String {
    format!("{prefix}:wake:")
}

/// The channel on which a session hears of grants.
pub(crate) fn channel(prefix: &str, session: &Id) -> String {
    channel_prefix(prefix) + session.as_str()
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
    fn encoded_names_stay_apart() {
        let names =
            ["%7B", "{", "%257B", "%"].map(|name| keys("p", &Name::new(name).expect("valid"))[0].clone());
        let distinct: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(distinct.len(), names.len());
    }
}
