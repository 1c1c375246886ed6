//! Which node of a cluster serves which slots, and how a name finds its slot.

use std::collections::BTreeSet;
use std::sync::Arc;

use redis::Value;

/// How many slots a cluster has.
const SLOTS: u16 = 16384;

/// A node's host and port.
pub(crate) type Node = (Arc<str>, u16);

/// The primaries by slot, as far as is known.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Slots {
    /// First slot, last slot, primary; sorted, and none overlaps another.
    ranges: Vec<(u16, u16, Node)>,
}

impl Slots {
    /// Reads the answer to CLUSTER SLOTS, given by a node at `asked`. A node that does not know its own address
    /// leaves it out: it is the one that was asked.
    pub(super) fn read(value: &Value, asked: &str) -> Option<Self> {
        let Value::Array(items) = value else { return None };
        let mut ranges = items.iter().map(|item| range(item, asked)).collect::<Option<Vec<_>>>()?;
        ranges.sort_unstable_by_key(|(first, ..)| *first);
        let apart = ranges.windows(2).all(|pair| pair[0].1 < pair[1].0);
        (apart && !ranges.is_empty()).then_some(Self { ranges })
    }

    /// Who serves a slot.
    pub(super) fn node(&self, slot: u16) -> Option<&Node> {
        let at = self.ranges.partition_point(|(_, last, _)| *last < slot);
        self.ranges.get(at).filter(|(first, ..)| *first <= slot).map(|(.., node)| node)
    }

    /// All that serve any.
    pub(crate) fn nodes(&self) -> BTreeSet<Node> {
        self.ranges.iter().map(|(.., node)| node.clone()).collect()
    }

    /// How many slots are served, and how many are not.
    pub(crate) fn served(&self) -> u16 {
        self.ranges.iter().map(|(first, last, _)| last - first + 1).sum()
    }

    pub(crate) fn missing(&self) -> u16 {
        SLOTS - self.served()
    }

    /// One slot is known to have moved.
    pub(super) fn set(&mut self, slot: u16, to: Node) {
        let mut ranges = Vec::with_capacity(self.ranges.len() + 2);
        for (first, last, node) in self.ranges.drain(..) {
            if slot < first || last < slot {
                ranges.push((first, last, node));
                continue;
            }
            if first < slot {
                ranges.push((first, slot - 1, node.clone()));
            }
            if slot < last {
                ranges.push((slot + 1, last, node));
            }
        }
        ranges.push((slot, slot, to));
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
    (first <= last && last < SLOTS).then_some((first, last, node))
}

/// The slot of a hash tag: CRC16 (XMODEM) modulo the number of slots.
pub(super) fn slot_of(tag: &str) -> u16 {
    let crc = tag.bytes().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    });
    crc % SLOTS
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
    fn slots_are_those_of_the_specification() {
        assert_eq!(slot_of("123456789"), 0x31C3);
        assert_eq!(slot_of("foo"), 12182);
        assert_eq!(slot_of(""), 0);
    }

    #[test]
    fn a_slot_finds_its_primary() {
        let value = Value::Array(vec![part(100, 200, text("b"), 2), part(0, 50, Value::Nil, 1)]);
        let slots = Slots::read(&value, "asked").expect("it makes sense");
        assert_eq!(slots.node(0), Some(&node("asked", 1)));
        assert_eq!(slots.node(50), Some(&node("asked", 1)));
        assert_eq!(slots.node(51), None);
        assert_eq!(slots.node(200), Some(&node("b", 2)));
        assert_eq!(slots.node(201), None);
        assert_eq!(slots.nodes().len(), 2);
    }

    #[test]
    fn a_moved_slot_splits_its_range() {
        let value = Value::Array(vec![part(0, 100, text("a"), 1)]);
        let mut slots = Slots::read(&value, "").expect("it makes sense");
        for slot in [50, 0, 100, 200] {
            slots.set(slot, node("b", 2));
            assert_eq!(slots.node(slot), Some(&node("b", 2)), "{slot}");
        }
        for slot in [1, 49, 51, 99] {
            assert_eq!(slots.node(slot), Some(&node("a", 1)), "{slot}");
        }
        assert_eq!(slots.node(101), None);
    }

    #[test]
    fn nonsense_is_refused() {
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
            assert_eq!(Slots::read(&value, "asked"), None, "{value:?}");
        }
    }
}
