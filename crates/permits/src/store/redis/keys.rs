//! The names of keys and channels: the one place that knows them.
//!
//! All keys of a semaphore share a hash tag, so they live in one slot of a cluster:
//! `permits:{NAME}:state`. In the tag, `{`, `}`, `%` and control characters are percent-encoded.

use std::fmt::Write as _;

use crate::protocol::{Id, Invalid, Name};

/// The last parts of the keys, in the order in which the scripts take them.
pub(crate) const PARTS: [&str; 5] = ["state", "entries", "queue", "leases", "free"];

/// The longest prefix, in bytes.
const MAX_PREFIX: usize = 64;

/// The keys of one semaphore, in the order in which the scripts take them.
pub(crate) fn keys(prefix: &str, name: &Name) -> [String; PARTS.len()] {
    let tag = encode(name.as_str());
    PARTS.map(|part| format!("{prefix}:{{{tag}}}:{part}"))
}

/// The channel of a session, without its id.
pub(crate) fn channel_prefix(prefix: &str) -> String {
    format!("{prefix}:wake:")
}

/// The channel on which a session hears of grants.
pub(crate) fn channel(prefix: &str, session: &Id) -> String {
    channel_prefix(prefix) + session.as_str()
}

/// Checks a key prefix.
pub(crate) fn check_prefix(prefix: &str) -> Result<(), Invalid> {
    let plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'{' | b'}');
    if (1..=MAX_PREFIX).contains(&prefix.len()) && prefix.bytes().all(plain) {
        Ok(())
    } else {
        Err(Invalid::Prefix { prefix: prefix.to_owned() })
    }
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

    #[test]
    fn prefixes_with_braces_spaces_or_nothing_are_refused() {
        for prefix in ["", "a{b", "a b", "é", &"x".repeat(65)] {
            assert!(check_prefix(prefix).is_err(), "{prefix:?}");
        }
        assert!(check_prefix("team-a:permits").is_ok());
    }
}
