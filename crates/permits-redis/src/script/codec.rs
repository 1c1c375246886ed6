//! The wire codec: commands as script calls, replies and events from the values that scripts return and
//! publish.
//!
//! The part that all operations share. An operation's own arguments and answers are in [`ops`].

use std::time::Duration;

use super::ops;
use super::values::{Decoded, Fields, Malformed};
use crate::clock::millis;
use crate::keys;
use crate::protocol::{
    Command, Declaration, Event, EventKind, Grant, Holder, Name, Operation, Reply, RequestId, SessionId,
    Window, check_reason,
};
use crate::resp::{Cmd, Value, cmd};

/// `EVALSHA hash …` (or `EVAL code …`) for `command`, to a server that may have been in its place for no
/// longer than `known_for`.
pub(crate) fn encode(
    verb: &str,
    script: &str,
    prefix: &str,
    sharded: bool,
    command: &Command,
    known_for: Option<Duration>,
) -> Cmd {
    // The lease is in `longest_lease_ms`.
    let Command { semaphore, session, lease_ms: _, recovery, declaration, operation } = command;
    let mut cmd = cmd(verb);
    cmd.arg(script).arg(keys::PARTS.len()).args(keys::keys(prefix, semaphore));
    let window = recovery.window();
    let Window { divisor, least_ms, most_ms } = window;
    let mut recovery = format!("{divisor}:{least_ms}:{most_ms}");
    if let Some(known_ms) = known_for.map(millis)
        && known_ms < window.of(command.longest_lease_ms())
    {
        recovery = format!("{recovery}:{known_ms}");
    }
    if command.is_by_handle() {
        recovery += ":handle";
    }
    let mut lease = command.longest_lease_ms().to_string();
    if command.kept_for_ms() > 0 {
        lease = format!("{lease}:{}", command.kept_for_ms());
    }
    let (declaration, limit) = match *declaration {
        Declaration::Stored => ("stored", 0),
        Declaration::Declare(limit) => ("declare", limit),
        Declaration::Fallback(limit) => ("fallback", limit),
        Declaration::Require(limit) => ("require", limit),
    };
    cmd.arg(semaphore.as_str())
        .arg(keys::channel_prefix(prefix, sharded.then_some(semaphore)))
        .arg(session.as_str())
        .arg(lease)
        .arg(recovery)
        .arg(declaration)
        .arg(limit);
    ops::encode(&mut cmd, session, operation);
    cmd
}

/// Reads the reply to `operation`.
pub(crate) fn decode(value: Value, operation: &Operation) -> Decoded<Reply> {
    let Value::Array(values) = value else { return Err(Malformed(format!("no array: {value:?}"))) };
    let mut fields = Fields::new(values);
    let (now_us, sequence, recheck) = (fields.number()?, fields.number()?, fields.integer()?);
    let (limit, limit_version, flags) = (fields.number()?, fields.number()?, fields.number::<u8>()?);
    let recovering_ms = fields.number()?;
    let (replaced, replaced_bounds) = fields.replaced()?;
    let answers = ops::decode(&mut fields, operation)?;
    match fields.next() {
        Ok(more) => Err(Malformed(format!("more than expected: {more:?}"))),
        Err(_) => {
            let recheck_ms = u64::try_from(recheck).ok();
            let replaced_limit = Some(replaced).filter(|limit| *limit > 0);
            Ok(Reply {
                now_us,
                sequence,
                recheck_ms,
                limit,
                limit_version,
                pinned: flags & 1 != 0,
                keepable: flags & 2 != 0,
                recovering_ms,
                replaced_limit,
                replaced_bounds,
                answers,
            })
        }
    }
}

/// Reads a message that recalls what is kept of a semaphore; `None` for any other message.
pub(crate) fn decode_recall(payload: &[u8]) -> Option<Name> {
    let head = std::str::from_utf8(payload.strip_suffix(b"\nrecall")?).ok()?;
    Name::new(head.split_once(' ')?.1).ok()
}

/// Reads a message from a session's channel: `sequence name`, then one line for each event.
pub(crate) fn decode_message(session: &SessionId, payload: &[u8]) -> Decoded<Vec<Event>> {
    let text = std::str::from_utf8(payload).map_err(|_| Malformed("a message that is not UTF-8".into()))?;
    let mut lines = text.split('\n');
    let semaphore = lines.next().and_then(|line| Name::new(line.split_once(' ')?.1).ok());
    let semaphore = semaphore.ok_or_else(|| Malformed(format!("a message without a name: {text:?}")))?;
    let event = |line: &str| {
        let (request, holder, kind) = decode_event(line)?;
        Some(Event { session: session.clone(), semaphore: semaphore.clone(), holder, request, kind })
    };
    let events =
        lines.map(|line| event(line).ok_or_else(|| Malformed(format!("an unknown event: {line:?}"))));
    events.collect()
}

fn decode_event(line: &str) -> Option<(RequestId, Holder, EventKind)> {
    let (kind, rest) = line.split_once(' ')?;
    let (request, rest) = rest.split_once(' ')?;
    let (holder, kind) = match kind {
        "granted" => {
            let (token, rest) = rest.split_once(' ')?;
            let (slot, holder) = rest.split_once(' ')?;
            (holder, EventKind::Granted(Grant { token: token.parse().ok()?, slot: slot.parse().ok()? }))
        }
        "revoked" => {
            let (holder, reason) = rest.split_once('\t')?;
            (holder, EventKind::Revoked(check_reason(reason).ok()?))
        }
        "turn" => {
            let (delay_us, holder) = rest.split_once(' ')?;
            (holder, EventKind::Turn(delay_us.parse().ok()?))
        }
        "line_closed" => {
            let (holder, reason) = rest.split_once('\t')?;
            (holder, EventKind::LineClosed(check_reason(reason).ok()?))
        }
        "refused" => (rest, EventKind::Refused),
        "superseded" => (rest, EventKind::Superseded),
        _ => return None,
    };
    Some((RequestId::new(request).ok()?, Holder::new(holder).ok()?, kind))
}
