//! The operations on the wire, one file each: its Lua files, the encoder of its arguments and the decoder of
//! its answers.

mod acquire;
mod adopt;
mod delete;
mod inspect;
mod release;
mod renew;
mod revoke;
mod set;
mod shared;

pub(super) use shared::BOUNDS;

use super::values::{Decoded, Fields};
use crate::protocol::{Answers, ChangeOrigin, Operation, OperationKind, SessionId};
use crate::resp::Cmd;

/// The Lua of one operation.
pub(super) struct Lua {
    /// The number of the first argument that is a holder, if the operation takes a batch: two arguments a
    /// request, of which the first is the holder.
    pub(super) holders_at: Option<u32>,
    /// The ordinary course, which ends the script or leaves all to the next.
    pub(super) ordinary: &'static [&'static str],
    /// The second run of the ordinary course, for a line with lanes. It leaves everything to the general
    /// course if it cannot decide.
    pub(super) in_lanes: &'static [&'static str],
    /// The operation's own part of the general course.
    pub(super) general: &'static [&'static str],
}

/// The operation's own Lua.
pub(super) fn lua(kind: OperationKind) -> Lua {
    let (holders_at, [ordinary, in_lanes], general): (_, [&[&str]; 2], &[&str]) = match kind {
        OperationKind::Acquire => {
            (Some(acquire::HOLDERS_AT), [acquire::ORDINARY, acquire::IN_LANES], acquire::LUA)
        }
        OperationKind::Release => {
            (Some(release::HOLDERS_AT), [release::ORDINARY, release::IN_LANES], release::LUA)
        }
        OperationKind::Renew => (Some(renew::HOLDERS_AT), [renew::ORDINARY, renew::IN_LANES], renew::LUA),
        OperationKind::Adopt => (None, [&[], &[]], adopt::LUA),
        OperationKind::Set => (None, [&[], &[]], set::LUA),
        OperationKind::Revoke => (None, [&[], &[]], revoke::LUA),
        OperationKind::Delete => (None, [delete::UNREADABLE, &[]], delete::LUA),
        OperationKind::Inspect => (None, [&[], &[]], inspect::LUA),
    };
    Lua { holders_at, ordinary, in_lanes, general }
}

/// Appends the operation's arguments to `cmd`, for `session`.
pub(super) fn encode(cmd: &mut Cmd, session: &SessionId, operation: &Operation) {
    match operation {
        Operation::Acquire { queue_max, requests } => acquire::encode(cmd, session, *queue_max, requests),
        Operation::Release(requests) => release::encode(cmd, requests),
        Operation::Renew(requests) => renew::encode(cmd, session, requests),
        Operation::Adopt(adopt) => adopt::encode(cmd, adopt),
        Operation::Set { origin, setting } => set::encode(encode_origin(cmd, origin), setting),
        Operation::Revoke { origin, holder, cooling, reason } => {
            revoke::encode(encode_origin(cmd, origin), holder, *cooling, reason);
        }
        Operation::Delete { unreadable } => delete::encode(cmd, *unreadable),
        Operation::Inspect { max } => inspect::encode(cmd, *max),
    }
}

fn encode_origin<'a>(cmd: &'a mut Cmd, origin: &ChangeOrigin) -> &'a mut Cmd {
    cmd.arg(origin.request.as_str()).arg(origin.by.as_str())
}

/// Reads the operation's answers.
pub(super) fn decode(fields: &mut Fields, operation: &Operation) -> Decoded<Answers> {
    Ok(match operation {
        Operation::Acquire { requests, .. } => {
            Answers::Acquire(fields.each(requests.len(), acquire::decode)?)
        }
        Operation::Release(requests) => Answers::Release(fields.each(requests.len(), release::decode)?),
        Operation::Renew(requests) => Answers::Renew(fields.each(requests.len(), renew::decode)?),
        Operation::Adopt(_) => Answers::Adopt(adopt::decode(fields)?),
        Operation::Set { .. } => Answers::Set(set::decode(fields)?),
        Operation::Revoke { .. } => Answers::Revoke(revoke::decode(fields)?),
        Operation::Delete { .. } => Answers::Delete(delete::decode(fields)?),
        Operation::Inspect { .. } => Answers::Inspect(Box::new(inspect::decode(fields)?)),
    })
}
