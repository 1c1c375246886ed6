//! The decoders, for input that no server sends.

use crate::cluster::slot_map::SlotMap;
use crate::error::Failure;
use crate::keys;
use crate::protocol::{Event, Name, Operation, Reply, SessionId};
use crate::resp::{FromValue, Parser, RespError, RespResult, Value};
use crate::script::codec;
use crate::script::values::Malformed;
use permits_store::StoreError;

/// The keys of a semaphore: state, queue, leases, free, lanes.
pub fn keys_of(prefix: &str, name: &Name) -> [String; 5] {
    keys::keys(prefix, name)
}

/// The semaphore whose `state` key this is.
pub fn name_of_state(prefix: &str, key: &[u8]) -> Option<Name> {
    keys::name_of_state(prefix, key)
}

/// Reads `bytes` as a server's reply to `operation`.
///
/// # Errors
/// [`StoreError::Malformed`], or the error that the server reports.
pub fn decode_reply(bytes: &[u8], operation: &Operation, semaphore: &Name) -> Result<Reply, StoreError> {
    let value = only(bytes).map_err(|error| StoreError::from(Failure::of(&error, semaphore)))?;
    let malformed = |Malformed(reason)| StoreError::Malformed { reason };
    codec::decode(value, operation).map_err(malformed)
}

/// The first value in `bytes`.
fn only(bytes: &[u8]) -> RespResult<Value> {
    let mut values = Vec::new();
    let fault = Parser::default().feed(bytes, &mut values).err();
    match values.into_iter().next() {
        Some(value) => FromValue::from_value(value),
        None => Err(fault.unwrap_or(RespError::Malformed)),
    }
}

/// Reads a message from a session's channel.
///
/// # Errors
/// The fault, if the message is malformed.
pub fn decode_message(session: &SessionId, payload: &[u8]) -> Result<Vec<Event>, String> {
    codec::decode_message(session, payload).map_err(|Malformed(reason)| reason)
}

/// Reads `bytes` as a server's reply to CLUSTER SLOTS. Returns the host and port of the node of each of
/// `hash_slots`.
pub fn nodes_of_hash_slots(
    bytes: &[u8],
    asked: &str,
    hash_slots: &[u16],
) -> Option<Vec<Option<(String, u16)>>> {
    let value = only(bytes).ok()?;
    let mut map = SlotMap::read(&value, asked)?;
    if let (Some(first), Some(node)) = (hash_slots.first(), map.nodes().first()) {
        map.set(*first, node.clone());
    }
    let nodes = hash_slots.iter().map(|slot| map.node(*slot));
    Some(nodes.map(|node| node.map(|(host, port)| (host.to_string(), *port))).collect())
}
