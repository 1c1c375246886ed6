//! The recording build of the scripts: each command publishes its arguments and its results.
//!
//! Clients that are killed leave gaps in their own logs; the scripts see every command, in the order of
//! execution. [`scripts`] makes recording scripts, and [`Record::read`] reads what they publish: the inverse
//! of [`encode`](crate::store::redis::script::codec::encode).

use redis::Value;

use crate::protocol::{Command, Declaration, Event, Name, OperationKind, Recovery, Reply, SessionId, Window};
use crate::store::redis::script::arguments::Arguments;
use crate::store::redis::script::codec::{decode, decode_message};
use crate::store::redis::script::values::{Decoded, Malformed};
use crate::store::redis::script::{self, Scripts, ops};

/// The channel on which records are published, and the key of the list that keeps the last of them.
pub const CHANNEL: &str = "permits-test:history";

/// The length of the list: as many commands as may be executed while the listener is disconnected.
const KEPT: usize = 10_000;

const LUA: &str = include_str!("recording.lua");

/// Added to `clock.lua` by a recording build: keeps the values of the clock.
const CLOCK: &str = "
clock.now = now_us
local identity = server_identity
local function server_identity()
  if not clock.run_id then clock.run_id, clock.uptime_ms = identity() end
  return clock.run_id, clock.uptime_ms
end
clock.identity = server_identity
";

/// From now on every client that this process connects to a server uses recording scripts: see [`Record`] and
/// [`CHANNEL`].
pub fn record() {
    // Set already by an earlier call.
    let _ = script::REPLACED.set(scripts);
}

/// The recording build of all scripts.
fn scripts(sharded: bool) -> Scripts {
    let clock = format!("{}\n{CLOCK}", script::CLOCK);
    Scripts::build(&clock, sharded, |kind, code| wrap(kind, sharded, &code))
}

fn wrap(kind: OperationKind, sharded: bool, code: &str) -> String {
    let head = format!(
        "local OPERATION, SHARDED, CHANNEL, KEPT = '{}', {sharded}, '{CHANNEL}', {KEPT}\n",
        kind.name()
    );
    head + &LUA.replace("\nCOMMAND\n", &format!("\n{code}\n"))
}

/// One command, as the store executed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The semaphore's state key: its prefix and its name in one.
    pub semaphore: String,
    /// The server's clock, in microseconds since 1970.
    pub now_us: u64,
    /// The server's identity.
    pub run_id: String,
    /// The server's uptime, in milliseconds.
    pub uptime_ms: u64,
    /// The command. Its lease is the longest in it, which is the one that it sends.
    pub command: Command,
    /// The reply.
    pub reply: Reply,
    /// The events that it published.
    pub events: Vec<Event>,
}

impl Record {
    /// Reads a record as published.
    ///
    /// # Errors
    /// The fault, if the record is malformed.
    pub fn read(message: &[u8]) -> Result<Self, String> {
        let mut fields = RecordFields { rest: message };
        fields.record().map_err(|malformed| {
            format!("{} in the record {:?}", malformed.0, String::from_utf8_lossy(message))
        })
    }
}

/// The fields of a record that are left to read.
struct RecordFields<'a> {
    rest: &'a [u8],
}

impl RecordFields<'_> {
    fn record(&mut self) -> Decoded<Record> {
        let (operation, semaphore) = (self.text()?, self.text()?);
        let (now_us, run_id, uptime_ms) = (self.number()?, self.text()?, self.number()?);
        let arguments = (0..self.number()?).map(|_| self.bytes()).collect::<Decoded<_>>()?;
        let arguments = Arguments::new(arguments);
        let channel_prefix = arguments.all().get(1).cloned().unwrap_or_default();
        let channel_prefix = String::from_utf8(channel_prefix).unwrap_or_default();
        let command = command(arguments, &operation)?;
        let reply = (0..self.number()?).map(|_| self.value()).collect::<Decoded<_>>()?;
        let reply = decode(Value::Array(reply), &command.operation)?;
        let mut events = Vec::new();
        while !self.rest.is_empty() {
            let (channel, message) = (self.text()?, self.text()?);
            let session =
                channel.strip_prefix(&channel_prefix).and_then(|session| SessionId::new(session).ok());
            let session = session.ok_or_else(|| Malformed(format!("the channel {channel:?}")))?;
            events.extend(decode_message(&session, message.as_bytes())?);
        }
        Ok(Record { semaphore, now_us, run_id, uptime_ms, command, reply, events })
    }

    fn value(&mut self) -> Decoded<Value> {
        let cut = || Malformed("a field that is cut off".into());
        let digits = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (length, rest) = self.rest.split_at(digits);
        let length = std::str::from_utf8(length).ok().and_then(|length| length.parse().ok());
        let (kind, rest) = rest.split_first().ok_or_else(cut)?;
        let (bytes, rest) = rest.split_at_checked(length.ok_or_else(cut)?).ok_or_else(cut)?;
        self.rest = rest;
        let text = std::str::from_utf8(bytes).ok();
        match kind {
            b':' => text.and_then(|text| text.parse().ok()).map(Value::Int),
            b'$' => Some(Value::BulkString(bytes.to_vec())),
            b'#' => text.and_then(from_hex).map(Value::BulkString),
            b'_' => Some(Value::Nil),
            _ => None,
        }
        .ok_or_else(|| Malformed(format!("the field {:?}", String::from_utf8_lossy(bytes))))
    }

    fn bytes(&mut self) -> Decoded<Vec<u8>> {
        match self.value()? {
            Value::BulkString(bytes) => Ok(bytes),
            other => Err(Malformed(format!("no text: {other:?}"))),
        }
    }

    fn text(&mut self) -> Decoded<String> {
        String::from_utf8(self.bytes()?).map_err(|_| Malformed("text that is not UTF-8".into()))
    }

    fn number(&mut self) -> Decoded<u64> {
        match self.value()? {
            Value::Int(number) => {
                u64::try_from(number).map_err(|_| Malformed(format!("out of range: {number}")))
            }
            other => Err(Malformed(format!("no number: {other:?}"))),
        }
    }
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let byte = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    (0..text.len()).step_by(2).map(byte).collect()
}

/// The command with these arguments: the inverse of [`encode`](crate::store::redis::script::codec::encode).
fn command(mut arguments: Arguments, operation: &str) -> Decoded<Command> {
    let kind =
        OperationKind::named(operation).ok_or_else(|| Malformed(format!("the operation {operation:?}")))?;
    let semaphore = arguments.parsed(|text| Name::new(text).ok())?;
    let _channel_prefix = arguments.text()?;
    let session = arguments.session()?;
    let lease_ms = arguments.number::<i64>()?.unsigned_abs();
    let recovery = arguments.parsed(|text| {
        let numbers = |recovery: &Recovery| {
            let Window { divisor, least_ms, most_ms } = recovery.window();
            format!("{divisor}:{least_ms}:{most_ms}")
        };
        Recovery::ALL.into_iter().find(|recovery| numbers(recovery) == text)
    })?;
    let (declaration, limit) = (arguments.text()?, arguments.number()?);
    let declaration = match declaration.as_str() {
        "stored" => Declaration::Stored,
        "declare" => Declaration::Declare(limit),
        "fallback" => Declaration::Fallback(limit),
        "require" => Declaration::Require(limit),
        other => return Err(Malformed(format!("the declaration {other:?}"))),
    };
    let operation = ops::read(kind, &mut arguments)?;
    if arguments.is_left() {
        return Err(Malformed(format!("more arguments than expected: {:?}", arguments.all())));
    }
    Ok(Command { semaphore, session, lease_ms, recovery, declaration, operation })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use redis::Arg;

    use super::*;
    use crate::protocol::{
        AcquireRequest, AdoptRequest, ChangeOrigin, Grant, Holder, Label, LimitChange, MAX_LEASE_MS,
        Operation, PermitTerms, RenewRequest, RequestId, RequestKey,
    };
    use crate::store::redis::keys::PARTS;
    use crate::store::redis::script::codec::encode;

    const MOST: u64 = (1 << 53) - 1;

    fn texts() -> impl Strategy<Value = String> {
        prop_oneof!["[ -~]{1,20}", "[a-zé{}%:,]{1,9}", Just("1".to_owned())]
    }

    fn holders() -> impl Strategy<Value = Holder> {
        texts().prop_map(|text| Holder::new(&text).expect("it is printable"))
    }

    fn ids() -> impl Strategy<Value = RequestId> {
        "[a-zA-Z0-9-]{1,20}".prop_map(|text| RequestId::new(&text).expect("it is plain"))
    }

    fn origins() -> impl Strategy<Value = ChangeOrigin> {
        (ids(), labels()).prop_map(|(request, by)| ChangeOrigin { request, by })
    }

    fn labels() -> impl Strategy<Value = Label> {
        prop_oneof![Just(String::new()), texts()].prop_map(|text| Label::new(&text).expect("it is printable"))
    }

    fn grants() -> impl Strategy<Value = Grant> {
        (1..MOST, any::<u32>()).prop_map(|(token, slot)| Grant { token, slot })
    }

    fn operations() -> impl Strategy<Value = Operation> {
        let terms =
            || {
                let times = (0..=MAX_LEASE_MS, prop_oneof![Just(0), 0..=MAX_LEASE_MS]);
                (any::<u32>(), times, labels()).prop_map(|(weight, (lease_ms, at_least_ms), label)| {
                    PermitTerms { weight, lease_ms, at_least_ms, label }
                })
            };
        let acquire = (holders(), ids(), terms(), any::<bool>())
            .prop_map(|(holder, request, terms, wait)| AcquireRequest { holder, request, terms, wait });
        let release = (holders(), ids()).prop_map(|(holder, request)| RequestKey { holder, request });
        let version = prop_oneof![Just(0), any::<u32>()];
        let renew = (holders(), ids(), terms(), version, prop::option::of(grants())).prop_map(
            |(holder, request, terms, lease_version, grant)| RenewRequest {
                holder,
                request,
                terms,
                lease_version,
                grant,
            },
        );
        let adopt = (holders(), ids(), terms(), grants(), ids()).prop_map(
            |(holder, request, terms, grant, new_request)| {
                let terms = PermitTerms { label: Label::default(), ..terms };
                Operation::Adopt(AdoptRequest { holder, request, terms, grant, new_request })
            },
        );
        let changes = prop_oneof![
            (1..=u32::MAX).prop_map(LimitChange::Set),
            any::<i32>().prop_map(|number| LimitChange::Adjust(number.into())),
            Just(LimitChange::Unpin),
        ];
        let limits = (origins(), changes, prop::option::of(0..MOST));
        prop_oneof![
            (any::<u32>(), prop::collection::vec(acquire, 0..4))
                .prop_map(|(queue_max, requests)| Operation::Acquire { queue_max, requests }),
            prop::collection::vec(release, 0..4).prop_map(Operation::Release),
            prop::collection::vec(renew, 0..4).prop_map(Operation::Renew),
            adopt,
            limits.prop_map(|(origin, change, expected_version)| Operation::SetLimit {
                origin,
                change,
                expected_version,
            }),
            (origins(), any::<bool>()).prop_map(|(origin, paused)| Operation::Pause { origin, paused }),
            (origins(), holders(), prop::option::of(1..MOST), prop_oneof![Just(String::new()), texts()])
                .prop_map(|(origin, holder, cooling, reason)| {
                    let reason = reason.into();
                    Operation::Revoke { origin, holder, cooling, reason }
                }),
            (origins(), prop::option::of(prop_oneof![Just(String::new()), texts()]))
                .prop_map(|(origin, reason)| Operation::CloseLine { origin, reason: reason.map(Arc::from) },),
            any::<bool>().prop_map(|unreadable| Operation::Delete { unreadable }),
            any::<u32>().prop_map(|max| Operation::Inspect { max }),
        ]
    }

    fn commands() -> impl Strategy<Value = Command> {
        let recoveries = prop_oneof![Just(Recovery::Off), Just(Recovery::Interval), Just(Recovery::Strict)];
        let declarations = prop_oneof![
            Just(Declaration::Stored),
            any::<u32>().prop_map(Declaration::Declare),
            any::<u32>().prop_map(Declaration::Fallback),
            any::<u32>().prop_map(Declaration::Require),
        ];
        let name = texts().prop_map(|text| Name::new(&text).expect("it is printable"));
        let sessions = "[a-zA-Z0-9-]{1,20}".prop_map(|text| SessionId::new(&text).expect("it is plain"));
        (name, sessions, 0..MOST, recoveries, declarations, operations()).prop_map(
            |(semaphore, session, lease_ms, recovery, declaration, operation)| Command {
                semaphore,
                session,
                lease_ms,
                recovery,
                declaration,
                operation,
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(command in commands(), sharded in any::<bool>()) {
            let written = encode("EVALSHA", "hash", "permits", sharded, &command);
            // Behind the verb, the hash, the number of keys and the keys.
            let arguments = written.args_iter().skip(3 + PARTS.len()).map(|argument| match argument {
                Arg::Simple(bytes) => bytes.to_vec(),
                _ => panic!("no plain argument"),
            });
            let arguments = Arguments::new(arguments.collect());
            let sent = Command { lease_ms: command.longest_lease_ms(), ..command.clone() };
            prop_assert_eq!(super::command(arguments, command.operation.kind().name()), Ok(sent));
        }
    }

    #[test]
    fn a_record_that_is_cut_off_is_an_error() {
        let head = "5$pause 1$k 5:10000 1$r 1:0";
        let arguments = "2:10 1$a 7$p:wake: 1$s 4$1000 5$1:0:0 6$stored 1$0 3$s.1 2$me 1$1";
        let reply = "1:8 5:10000 1:1 2:-1 1:5 1:1 1:0 1:0 1:0";
        let whole = [head, arguments, reply].concat().replace(' ', "").into_bytes();
        let record = Record::read(&whole).expect("it is whole");
        let request = RequestId::new("s.1").expect("it is plain");
        let origin = ChangeOrigin { request, by: Label::new("me").expect("it is printable") };
        let operation = Operation::Pause { origin, paused: true };
        assert_eq!((record.now_us, record.command.operation), (10_000, operation));
        for end in 0..whole.len() {
            assert!(Record::read(&whole[..end]).is_err(), "cut at {end}");
        }
    }
}
