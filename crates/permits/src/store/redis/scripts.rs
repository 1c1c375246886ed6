//! The Lua scripts, and the encoding of commands and replies: the one place that knows both.
//!
//! A script is the shared files, with one of its own before the last. The headers of the Lua files describe the
//! arguments and returns that this file writes and reads; a test holds the two together.

#[cfg(feature = "testing")]
pub(crate) mod recorded;

use std::sync::Arc;

use redis::{Cmd, Value};

use super::keys;
use crate::protocol::{
    AcquireOutcome, Answers, Command, Declaration, Event, EventKind, Grant, Holder, InspectedHolder,
    InspectedWaiter, Inspection, Label, LimitChange, LimitOutcome, Name, Operation, Recovery, Refusal,
    ReleaseOutcome, RenewOutcome, Reply, RequestId, SessionId,
};

const CLOCK: &str = include_str!("lua/clock.lua");
const BEGIN: [&str; 4] = [
    include_str!("lua/begin.lua"),
    include_str!("lua/slots.lua"),
    include_str!("lua/entries.lua"),
    include_str!("lua/promote.lua"),
];
const CHANGES: &str = include_str!("lua/changes.lua");
const FINISH: &str = include_str!("lua/finish.lua");

/// Tells which commands the user may not run; executes none of them.
pub(crate) const CHECK: &str = include_str!("lua/check.lua");

/// A script: its text, and the hash by which a server that has it knows it.
pub(crate) struct Script {
    pub(crate) code: String,
    pub(crate) hash: String,
}

/// The scripts, one a kind of operation.
pub(crate) struct Scripts {
    acquire: Script,
    release: Script,
    renew: Script,
    adopt: Script,
    set_limit: Script,
    pause: Script,
    revoke: Script,
    inspect: Script,
}

impl Scripts {
    /// For one server, or for the nodes of a cluster, where messages are `sharded`.
    pub(crate) fn new(sharded: bool) -> Self {
        #[cfg(feature = "testing")]
        if super::testing::is_recording() {
            let clock = format!("{CLOCK}\n{}", recorded::CLOCK);
            return Self::build(&clock, sharded, |name, code| recorded::wrap(name, sharded, &code));
        }
        Self::with_clock(CLOCK, sharded)
    }

    /// With another `clock.lua`, so that a test can say what time it is and who the server is.
    pub(crate) fn with_clock(clock: &str, sharded: bool) -> Self {
        Self::build(clock, sharded, |_, code| code)
    }

    fn build(clock: &str, sharded: bool, finish: impl Fn(&str, String) -> String) -> Self {
        let publish = if sharded { "SPUBLISH" } else { "PUBLISH" };
        let script = |name: &str, own: &str| {
            let code = format!("local PUBLISH = '{publish}'\n{clock}\n{}\n{own}\n{FINISH}", BEGIN.join("\n"));
            let code = finish(name, code);
            let hash = redis::Script::new(&code).get_hash().to_owned();
            Script { code, hash }
        };
        Self {
            acquire: script(
                "acquire",
                concat!(include_str!("lua/judge.lua"), "\n", include_str!("lua/acquire.lua")),
            ),
            release: script("release", include_str!("lua/release.lua")),
            renew: script(
                "renew",
                concat!(include_str!("lua/reclaim.lua"), "\n", include_str!("lua/renew.lua")),
            ),
            adopt: script("adopt", include_str!("lua/adopt.lua")),
            set_limit: script("set_limit", &[CHANGES, include_str!("lua/set_limit.lua")].concat()),
            pause: script("pause", include_str!("lua/pause.lua")),
            revoke: script("revoke", &[CHANGES, include_str!("lua/revoke.lua")].concat()),
            inspect: script("inspect", include_str!("lua/inspect.lua")),
        }
    }

    /// The script that executes `command`.
    pub(crate) fn of(&self, command: &Command) -> &Script {
        match command.operation {
            Operation::Acquire { .. } => &self.acquire,
            Operation::Release(_) => &self.release,
            Operation::Renew(_) => &self.renew,
            Operation::Adopt(_) => &self.adopt,
            Operation::SetLimit { .. } => &self.set_limit,
            Operation::Pause(_) => &self.pause,
            Operation::Revoke { .. } => &self.revoke,
            Operation::Inspect { .. } => &self.inspect,
        }
    }
}

/// `EVALSHA hash …` (or `EVAL code …`) for `command`.
pub(crate) fn encode(verb: &str, script: &str, prefix: &str, sharded: bool, command: &Command) -> Cmd {
    let mut cmd = redis::cmd(verb);
    cmd.arg(script).arg(keys::PARTS.len());
    for key in keys::keys(prefix, &command.semaphore) {
        cmd.arg(key);
    }
    let recovery = match command.recovery {
        Recovery::Off => "off",
        Recovery::Interval => "interval",
        Recovery::Strict => "strict",
    };
    let lease = command.longest_lease_ms().cast_signed() * if command.only_looks() { -1 } else { 1 };
    let (declaration, limit) = match command.declaration {
        Declaration::Stored => ("stored", 0),
        Declaration::Declare(limit) => ("declare", limit),
        Declaration::Fallback(limit) => ("fallback", limit),
        Declaration::Require(limit) => ("require", limit),
    };
    cmd.arg(command.semaphore.as_str())
        .arg(keys::channel_prefix(prefix, sharded.then_some(&command.semaphore)))
        .arg(command.session.as_str())
        .arg(lease)
        .arg(recovery)
        .arg(declaration)
        .arg(limit);
    encode_operation(&mut cmd, &command.operation);
    cmd
}

fn encode_operation(cmd: &mut Cmd, operation: &Operation) {
    match operation {
        Operation::Acquire { queue_max, requests } => {
            cmd.arg(queue_max);
            for request in requests {
                cmd.arg(request.holder.as_str())
                    .arg(request.request.as_str())
                    .arg(request.weight)
                    .arg(request.lease_ms)
                    .arg(u8::from(request.wait))
                    .arg(request.label.as_str());
            }
        }
        Operation::Release(requests) => {
            for request in requests {
                cmd.arg(request.holder.as_str()).arg(request.request.as_str());
            }
        }
        Operation::Renew(requests) => {
            for renew in requests {
                let Grant { token, slot } = renew.grant.unwrap_or(Grant { token: 0, slot: 0 });
                cmd.arg(renew.holder.as_str())
                    .arg(renew.request.as_str())
                    .arg(renew.weight)
                    .arg(renew.lease_ms)
                    .arg(token)
                    .arg(slot)
                    .arg(renew.label.as_str());
            }
        }
        Operation::Adopt(adopt) => {
            cmd.arg(adopt.holder.as_str())
                .arg(adopt.request.as_str())
                .arg(adopt.weight)
                .arg(adopt.lease_ms)
                .arg(adopt.grant.token)
                .arg(adopt.grant.slot)
                .arg(adopt.new_request.as_str());
        }
        Operation::SetLimit { request, change, expected_version } => {
            let (kind, number) = match *change {
                LimitChange::Set(limit) => ("set", limit.into()),
                LimitChange::Adjust(number) => ("adjust", number),
                LimitChange::Unpin => ("unpin", 0),
            };
            cmd.arg(request.as_str()).arg(kind).arg(number);
            match expected_version {
                Some(version) => cmd.arg(version),
                None => cmd.arg(-1),
            };
        }
        Operation::Pause(paused) => {
            cmd.arg(u8::from(*paused));
        }
        Operation::Revoke { request, holder, reason } => {
            cmd.arg(request.as_str()).arg(holder.as_str()).arg(&**reason);
        }
        Operation::Inspect { max } => {
            cmd.arg(max);
        }
    }
}

/// What a script returned is not what its header says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) String);

type Decoded<T> = Result<T, Malformed>;

/// Reads the reply to `operation`.
pub(crate) fn decode(value: Value, operation: &Operation) -> Decoded<Reply> {
    let Value::Array(values) = value else { return Err(Malformed(format!("no array: {value:?}"))) };
    let mut fields = Fields(values.into_iter());
    let (now_us, sequence, recheck) = (fields.number()?, fields.number()?, fields.integer()?);
    let (limit, limit_version, pinned) = (fields.number()?, fields.number()?, fields.flag()?);
    let (recovering_ms, replaced) = (fields.number()?, fields.number()?);
    let answers = match operation {
        Operation::Acquire { requests, .. } => {
            Answers::Acquire(fields.each(requests.len(), Fields::acquired)?)
        }
        Operation::Release(requests) => Answers::Release(fields.each(requests.len(), Fields::released)?),
        Operation::Renew(requests) => Answers::Renew(fields.each(requests.len(), Fields::renewed)?),
        Operation::Adopt(_) => Answers::Adopt(fields.flag()?),
        Operation::SetLimit { .. } => Answers::SetLimit(fields.limit_changed()?),
        Operation::Pause(_) => Answers::Pause,
        Operation::Revoke { .. } => Answers::Revoke(fields.released()?),
        Operation::Inspect { .. } => Answers::Inspect(fields.inspection()?),
    };
    match fields.0.next() {
        Some(more) => Err(Malformed(format!("more than expected: {more:?}"))),
        None => {
            let recheck_ms = u64::try_from(recheck).ok();
            let replaced_limit = Some(replaced).filter(|limit| *limit > 0);
            Ok(Reply {
                now_us,
                sequence,
                recheck_ms,
                limit,
                limit_version,
                pinned,
                recovering_ms,
                replaced_limit,
                answers,
            })
        }
    }
}

struct Fields(std::vec::IntoIter<Value>);

impl Fields {
    fn next(&mut self) -> Decoded<Value> {
        self.0.next().ok_or_else(|| Malformed("shorter than expected".into()))
    }

    fn integer(&mut self) -> Decoded<i64> {
        match self.next()? {
            Value::Int(integer) => Ok(integer),
            other => Err(Malformed(format!("no integer: {other:?}"))),
        }
    }

    fn number<T: TryFrom<i64>>(&mut self) -> Decoded<T> {
        let integer = self.integer()?;
        T::try_from(integer).map_err(|_| Malformed(format!("out of range: {integer}")))
    }

    fn flag(&mut self) -> Decoded<bool> {
        Ok(self.integer()? != 0)
    }

    fn text(&mut self) -> Decoded<String> {
        match self.next()? {
            Value::BulkString(bytes) => {
                String::from_utf8(bytes).map_err(|_| Malformed("text that is not UTF-8".into()))
            }
            Value::SimpleString(text) => Ok(text),
            other => Err(Malformed(format!("no text: {other:?}"))),
        }
    }

    fn holder(&mut self) -> Decoded<Holder> {
        Holder::new(&self.text()?).map_err(|invalid| Malformed(invalid.to_string()))
    }

    fn grant(&mut self) -> Decoded<Grant> {
        Ok(Grant { token: self.number()?, slot: self.number()? })
    }

    fn each<T>(&mut self, count: usize, read: fn(&mut Self) -> Decoded<T>) -> Decoded<Vec<T>> {
        // Not more than there is: the count may come from the other side.
        let mut all = Vec::with_capacity(count.min(self.0.len()));
        for _ in 0..count {
            all.push(read(self)?);
        }
        Ok(all)
    }

    fn acquired(&mut self) -> Decoded<AcquireOutcome> {
        let tag = self.text()?;
        if tag == "granted" {
            return Ok(AcquireOutcome::Granted(self.grant()?));
        }
        let (position, _) = (self.number()?, self.integer()?);
        Ok(match tag.as_str() {
            "waiting" => AcquireOutcome::Waiting { position },
            "no_permits" => AcquireOutcome::Refused(Refusal::NoPermits),
            "recovering" => AcquireOutcome::Refused(Refusal::Recovering),
            "exceeds_limit" => AcquireOutcome::Refused(Refusal::ExceedsLimit),
            "already_held" => AcquireOutcome::Refused(Refusal::AlreadyHeld),
            "queue_full" => AcquireOutcome::Refused(Refusal::QueueFull),
            "no_limit" => AcquireOutcome::Refused(Refusal::NoLimit),
            "limit_mismatch" => AcquireOutcome::Refused(Refusal::LimitMismatch),
            other => return Err(Malformed(format!("unknown answer to acquire: {other:?}"))),
        })
    }

    fn released(&mut self) -> Decoded<ReleaseOutcome> {
        match self.text()?.as_str() {
            "held" => Ok(ReleaseOutcome::Held),
            "waiting" => Ok(ReleaseOutcome::Waiting),
            "unknown" => Ok(ReleaseOutcome::Unknown),
            other => Err(Malformed(format!("unknown answer to release: {other:?}"))),
        }
    }

    fn renewed(&mut self) -> Decoded<RenewOutcome> {
        let tag = self.text()?;
        if tag == "granted" {
            return Ok(RenewOutcome::Granted(self.grant()?));
        }
        let (position, _) = (self.number()?, self.integer()?);
        Ok(match tag.as_str() {
            "held" => RenewOutcome::Held,
            "waiting" => RenewOutcome::Waiting { position },
            "lost" => RenewOutcome::Lost,
            "again" => RenewOutcome::RetryLater,
            "exceeds_limit" => RenewOutcome::ExceedsLimit,
            other => return Err(Malformed(format!("unknown answer to renew: {other:?}"))),
        })
    }

    fn limit_changed(&mut self) -> Decoded<LimitOutcome> {
        let (tag, limit, version) = (self.text()?, self.number()?, self.number()?);
        match tag.as_str() {
            "done" => Ok(LimitOutcome::Done { limit, version }),
            "other_version" => Ok(LimitOutcome::OtherVersion),
            "no_limit" => Ok(LimitOutcome::NoLimit),
            "out_of_range" => Ok(LimitOutcome::OutOfRange),
            other => Err(Malformed(format!("unknown answer to set_limit: {other:?}"))),
        }
    }

    fn label(&mut self) -> Decoded<Label> {
        Label::new(&self.text()?).map_err(|invalid| Malformed(invalid.to_string()))
    }

    fn inspection(&mut self) -> Decoded<Inspection> {
        let (held, waiting, paused) = (self.number()?, self.number()?, self.flag()?);
        let holders = self.number()?;
        let holders = self.each(holders, |fields| {
            Ok(InspectedHolder {
                holder: fields.holder()?,
                weight: fields.number()?,
                grant: fields.grant()?,
                lease_remaining_ms: fields.number()?,
                label: fields.label()?,
            })
        })?;
        let waiters = self.each(self.0.len() / 4, |fields| {
            Ok(InspectedWaiter {
                holder: fields.holder()?,
                weight: fields.number()?,
                ticket: fields.number()?,
                label: fields.label()?,
            })
        })?;
        Ok(Inspection { held, waiting, paused, holders, waiters })
    }
}

/// Reads a message from a session's channel: `sequence name`, then a line an event.
pub(crate) fn decode_message(session: &SessionId, payload: &[u8]) -> Decoded<Vec<Event>> {
    let text = std::str::from_utf8(payload).map_err(|_| Malformed("a message that is not UTF-8".into()))?;
    let mut lines = text.split('\n');
    let semaphore = lines.next().and_then(|line| Name::new(line.split_once(' ')?.1).ok());
    let semaphore = semaphore.ok_or_else(|| Malformed(format!("a message without a name: {text:?}")))?;
    let event = |line: &str| {
        let (request, holder, news) = decode_line(line)?;
        Some(Event { session: session.clone(), semaphore: semaphore.clone(), holder, request, kind: news })
    };
    let events =
        lines.map(|line| event(line).ok_or_else(|| Malformed(format!("an unknown event: {line:?}"))));
    events.collect()
}

fn decode_line(line: &str) -> Option<(RequestId, Holder, EventKind)> {
    let (kind, rest) = line.split_once(' ')?;
    let (request, rest) = rest.split_once(' ')?;
    let (holder, news) = match kind {
        "granted" => {
            let (token, rest) = rest.split_once(' ')?;
            let (slot, holder) = rest.split_once(' ')?;
            (holder, EventKind::Granted(Grant { token: token.parse().ok()?, slot: slot.parse().ok()? }))
        }
        "revoked" => {
            let (holder, reason) = rest.split_once('\t')?;
            (holder, EventKind::Revoked(Arc::from(reason)))
        }
        "refused" => (rest, EventKind::Refused),
        _ => return None,
    };
    Some((RequestId::new(request).ok()?, Holder::new(holder).ok()?, news))
}
