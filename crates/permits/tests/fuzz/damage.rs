//! Damage done to valid input: a few bytes or pieces changed, removed, repeated or put elsewhere.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

/// A change of the input.
#[derive(Debug, Clone)]
pub(crate) enum Change {
    Set(Index, u8),
    Remove(Index, u8),
    Insert(Index, Vec<u8>),
    Repeat(Index, u8),
    Cut(Index),
}

/// A few changes.
pub(crate) fn changes() -> impl Strategy<Value = Vec<Change>> {
    let odd = prop_oneof![
        Just(b"-1".to_vec()),
        Just(b"9223372036854775808".to_vec()),
        Just(b"99999999".to_vec()),
        Just(b"\r\n".to_vec()),
        Just("\u{e9}\u{0}%:@/?#[]{}".as_bytes().to_vec()),
        vec(any::<u8>(), 1..4),
    ];
    let change = prop_oneof![
        4 => (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Change::Set(at, byte)),
        4 => (any::<Index>(), b'0'..=b'9').prop_map(|(at, byte)| Change::Set(at, byte)),
        2 => (any::<Index>(), 1_u8..20).prop_map(|(at, count)| Change::Remove(at, count)),
        3 => (any::<Index>(), odd).prop_map(|(at, bytes)| Change::Insert(at, bytes)),
        1 => (any::<Index>(), 1_u8..20).prop_map(|(at, count)| Change::Repeat(at, count)),
        1 => any::<Index>().prop_map(Change::Cut),
    ];
    vec(change, 0..4)
}

/// `bytes` with the changes made.
pub(crate) fn damaged(bytes: &[u8], changes: &[Change]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for change in changes {
        let length = bytes.len();
        let at = |index: &Index| index.index(length + 1);
        match change {
            Change::Set(index, byte) if length > 0 => bytes[index.index(length)] = *byte,
            Change::Set(..) => {}
            Change::Remove(index, count) => {
                let from = at(index);
                bytes.drain(from..length.min(from + usize::from(*count)));
            }
            Change::Insert(index, more) => drop(bytes.splice(at(index)..at(index), more.iter().copied())),
            Change::Repeat(index, count) => {
                let from = at(index);
                let piece = bytes[from..length.min(from + usize::from(*count))].to_vec();
                drop(bytes.splice(from..from, piece));
            }
            Change::Cut(index) => bytes.truncate(at(index)),
        }
    }
    bytes
}

/// `text` with the changes made, as far as it is text then.
pub(crate) fn damaged_text(text: &str, changes: &[Change]) -> String {
    String::from_utf8_lossy(&damaged(text.as_bytes(), changes)).into_owned()
}
