//! The node of a cluster that serves each hash slot, and the hash slot of a name.

use crate::resp::Value;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The number of hash slots in a cluster.
const HASH_SLOTS: u16 = 16384;

/// A node's host and port.
pub(crate) type Node = (Arc<str>, u16);

/// The primaries by hash slot, as far as they are known.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct SlotMap {
    /// First hash slot, last hash slot, primary; sorted, and without overlaps.
    ranges: Vec<(u16, u16, Node)>,
}

impl SlotMap {
    /// Reads the reply to CLUSTER SLOTS of a node at `asked`. A node that does not know its own address
    /// leaves the address out: then it is `asked`.
    pub(crate) fn read(value: &Value, asked: &str) -> Option<Self> {
        let Value::Array(items) = value else { return None };
        let mut ranges = items.iter().map(|item| range(item, asked)).collect::<Option<Vec<_>>>()?;
        ranges.sort_unstable_by_key(|(first, ..)| *first);
        let apart = ranges.windows(2).all(|pair| pair[0].1 < pair[1].0);
        (apart && !ranges.is_empty()).then_some(Self { ranges })
    }

    /// The node that serves a hash slot.
    pub(crate) fn node(&self, hash_slot: u16) -> Option<&Node> {
        let at = self.ranges.partition_point(|(_, last, _)| *last < hash_slot);
        self.ranges.get(at).filter(|(first, ..)| *first <= hash_slot).map(|(.., node)| node)
    }

    /// The nodes that serve any hash slot.
    pub(crate) fn nodes(&self) -> BTreeSet<Node> {
        self.ranges.iter().map(|(.., node)| node.clone()).collect()
    }

    /// The nodes that now serve a hash slot of another node in the map `before`, if `of` is true for that
    /// node.
    pub(crate) fn heirs(&self, before: &Self, of: impl Fn(&Node) -> bool) -> BTreeSet<Node> {
        if self == before {
            return BTreeSet::new();
        }
        let changed = (0..HASH_SLOTS).filter_map(|slot| {
            let (before, now) = (before.node(slot)?, self.node(slot)?);
            (before != now && of(before)).then_some(now)
        });
        changed.cloned().collect()
    }

    /// The number of hash slots that are served.
    pub(crate) fn served(&self) -> u16 {
        self.ranges.iter().map(|(first, last, _)| last - first + 1).sum()
    }

    /// The number of hash slots that are not served.
    pub(crate) fn missing(&self) -> u16 {
        HASH_SLOTS - self.served()
    }

    /// Notes that a hash slot has moved.
    pub(crate) fn set(&mut self, hash_slot: u16, to: Node) {
        let mut ranges = Vec::with_capacity(self.ranges.len() + 2);
        for (first, last, node) in self.ranges.drain(..) {
            if hash_slot < first || last < hash_slot {
                ranges.push((first, last, node));
                continue;
            }
            if first < hash_slot {
                ranges.push((first, hash_slot - 1, node.clone()));
            }
            if hash_slot < last {
                ranges.push((hash_slot + 1, last, node));
            }
        }
        ranges.push((hash_slot, hash_slot, to));
        ranges.sort_unstable_by_key(|(first, ..)| *first);
        self.ranges = ranges;
    }
}

fn range(item: &Value, asked: &str) -> Option<(u16, u16, Node)> {
    let Value::Array(fields) = item else { return None };
    let [Value::Int(first), Value::Int(last), Value::Array(primary), ..] = fields.as_slice() else {
        return None;
    };
    let [host, Value::Int(port), ..] = primary.as_slice() else { return None };
    let host = match host {
        Value::BulkString(bytes) if !bytes.is_empty() && bytes != b"?" => std::str::from_utf8(bytes).ok()?,
        Value::BulkString(_) | Value::Nil => asked,
        _ => return None,
    };
    let (first, last) = (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?);
    let node = (Arc::from(host), u16::try_from(*port).ok()?);
    (first <= last && last < HASH_SLOTS).then_some((first, last, node))
}

/// The hash slot of a hash tag: CRC16 (XMODEM) modulo the number of hash slots.
pub(crate) fn hash_slot_of(tag: &str) -> u16 {
    let crc = tag.bytes().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    });
    crc % HASH_SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    fn part(first: i64, last: i64, host: Value, port: i64) -> Value {
        let primary = Value::Array(vec![host, Value::Int(port), text("id"), Value::Array(vec![])]);
        let replica = Value::Array(vec![text("r"), Value::Int(9), text("id")]);
        Value::Array(vec![Value::Int(first), Value::Int(last), primary, replica])
    }

    fn node(host: &str, port: u16) -> Node {
        (Arc::from(host), port)
    }

    #[test]
    fn hash_slots_are_those_of_the_specification() {
        assert_eq!(hash_slot_of("123456789"), 0x31C3);
        assert_eq!(hash_slot_of("foo"), 12182);
        assert_eq!(hash_slot_of(""), 0);
    }

    #[test]
    fn a_hash_slot_finds_its_primary() {
        let value = Value::Array(vec![part(100, 200, text("b"), 2), part(0, 50, Value::Nil, 1)]);
        let map = SlotMap::read(&value, "asked").expect("it is valid");
        assert_eq!(map.node(0), Some(&node("asked", 1)));
        assert_eq!(map.node(50), Some(&node("asked", 1)));
        assert_eq!(map.node(51), None);
        assert_eq!(map.node(200), Some(&node("b", 2)));
        assert_eq!(map.node(201), None);
        assert_eq!(map.nodes().len(), 2);
    }

    #[test]
    fn a_moved_hash_slot_splits_its_range() {
        let value = Value::Array(vec![part(0, 100, text("a"), 1)]);
        let mut map = SlotMap::read(&value, "").expect("it is valid");
        for slot in [50, 0, 100, 200] {
            map.set(slot, node("b", 2));
            assert_eq!(map.node(slot), Some(&node("b", 2)), "{slot}");
        }
        for slot in [1, 49, 51, 99] {
            assert_eq!(map.node(slot), Some(&node("a", 1)), "{slot}");
        }
        assert_eq!(map.node(101), None);
    }

    #[test]
    fn the_heirs_of_a_node_serve_what_it_served() {
        let map = |hosts: [&str; 2]| {
            let [first, last] = hosts.map(text);
            let value = Value::Array(vec![part(0, 50, first, 1), part(51, 100, last, 1)]);
            SlotMap::read(&value, "").expect("it is valid")
        };
        let heirs = |now| map(now).heirs(&map(["a", "b"]), |node| *node.0 == *"a");
        assert_eq!(heirs(["c", "b"]), [node("c", 1)].into());
        assert_eq!(heirs(["b", "c"]), [node("b", 1)].into(), "c serves what was served by b");
        assert_eq!(heirs(["a", "c"]), [].into());
    }

    #[test]
    fn malformed_replies_are_refused() {
        for value in [
            Value::Nil,
            Value::Array(vec![]),
            Value::Array(vec![Value::Int(1)]),
            Value::Array(vec![part(5, 4, text("a"), 1)]),
            Value::Array(vec![part(0, 16384, text("a"), 1)]),
            Value::Array(vec![part(-1, 4, text("a"), 1)]),
            Value::Array(vec![part(0, 4, text("a"), 70000)]),
            Value::Array(vec![part(0, 4, text("a"), 1), part(4, 8, text("a"), 1)]),
        ] {
            assert_eq!(SlotMap::read(&value, "asked"), None, "{value:?}");
        }
    }
}
