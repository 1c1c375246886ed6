//! The recording build of the scripts, for tests: each command tells what it was asked and what came of it.
//!
//! What clients write down has holes where they were killed; the scripts themselves see every command, in the
//! order of execution. [`wrap`] makes a recording script of a script, and [`Record::read`] reads what it tells:
//! the inverse of [`encode`](super::encode), beside it so that the two stay one.

use redis::Value;

use super::{
    Command, Declaration, Event, Grant, Holder, Label, LimitChange, Malformed, Name, Operation, Recovery,
    Reply, RequestId, decode, decode_message,
};
use crate::protocol::{AcquireRequest, AdoptRequest, ReleaseRequest, RenewRequest, SessionId, check_reason};

/// On this channel commands are told of, and under this key the last of them are kept.
pub const CHANNEL: &str = "permits-test:history";

/// How many are kept: as many as may be executed while a listener is away.
const KEPT: usize = 10_000;

const LUA: &str = include_str!("recorded.lua");

/// What a recording build adds to `clock.lua`: it remembers what the clock said.
pub(super) const CLOCK: &str = "
told.now = now_us
local identity = server_identity
local function server_identity()
  if not told.run_id then told.run_id, told.uptime_ms = identity() end
  return told.run_id, told.uptime_ms
end
told.identity = server_identity
";

/// The recording build of the script of `operation`.
pub(super) fn wrap(operation: &str, sharded: bool, code: &str) -> String {
    let head =
        format!("local OPERATION, SHARDED, CHANNEL, KEPT = '{operation}', {sharded}, '{CHANNEL}', {KEPT}\n");
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
    /// For how long it had been up, in milliseconds.
    pub uptime_ms: u64,
    /// What was asked. Its lease is the longest that it speaks of, which is what a store hears.
    pub command: Command,
    /// What was answered.
    pub reply: Reply,
    /// What sessions were told.
    pub events: Vec<Event>,
}

impl Record {
    /// Reads what a recording script has published.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(message: &[u8]) -> Result<Self, String> {
        let mut fields = Told { rest: message };
        fields.record().map_err(|malformed| {
            format!("{} in the record {:?}", malformed.0, String::from_utf8_lossy(message))
        })
    }
}

type Read<T> = Result<T, Malformed>;

/// The fields of a record that are left.
struct Told<'a> {
    rest: &'a [u8],
}

impl Told<'_> {
    fn record(&mut self) -> Read<Record> {
        let (operation, semaphore) = (self.text()?, self.text()?);
        let (now_us, run_id, uptime_ms) = (self.number()?, self.text()?, self.number()?);
        let arguments = (0..self.number()?).map(|_| self.text()).collect::<Read<_>>()?;
        let arguments = Arguments { all: arguments, next: 0 };
        let channel_prefix = arguments.all.get(1).cloned().unwrap_or_default();
        let command = arguments.command(&operation)?;
        let reply = (0..self.number()?).map(|_| self.value()).collect::<Read<_>>()?;
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

    fn value(&mut self) -> Read<Value> {
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
            b'_' => Some(Value::Nil),
            _ => None,
        }
        .ok_or_else(|| Malformed(format!("the field {:?}", String::from_utf8_lossy(bytes))))
    }

    fn text(&mut self) -> Read<String> {
        match self.value()? {
            Value::BulkString(bytes) => {
                String::from_utf8(bytes).map_err(|_| Malformed("text that is not UTF-8".into()))
            }
            other => Err(Malformed(format!("no text: {other:?}"))),
        }
    }

    fn number(&mut self) -> Read<u64> {
        match self.value()? {
            Value::Int(number) => {
                u64::try_from(number).map_err(|_| Malformed(format!("out of range: {number}")))
            }
            other => Err(Malformed(format!("no number: {other:?}"))),
        }
    }
}

/// The arguments of a command, read in the order in which [`encode`](super::encode) writes them.
pub(super) struct Arguments {
    pub(super) all: Vec<String>,
    pub(super) next: usize,
}

impl Arguments {
    pub(super) fn command(mut self, operation: &str) -> Read<Command> {
        let semaphore = self.parsed(|text| Name::new(text).ok())?;
        let _channel_prefix = self.text()?;
        let session = self.session()?;
        let lease_ms = self.number::<i64>()?.unsigned_abs();
        let recovery = self.parsed(|text| match text {
            "off" => Some(Recovery::Off),
            "interval" => Some(Recovery::Interval),
            "strict" => Some(Recovery::Strict),
            _ => None,
        })?;
        let (kind, limit) = (self.text()?, self.number()?);
        let declaration = match kind.as_str() {
            "stored" => Declaration::Stored,
            "declare" => Declaration::Declare(limit),
            "fallback" => Declaration::Fallback(limit),
            "require" => Declaration::Require(limit),
            other => return Err(Malformed(format!("the declaration {other:?}"))),
        };
        let operation = self.operation(operation)?;
        if self.is_left() {
            return Err(Malformed(format!("more arguments than expected: {:?}", self.all)));
        }
        Ok(Command { semaphore, session, lease_ms, recovery, declaration, operation })
    }

    fn operation(&mut self, operation: &str) -> Read<Operation> {
        Ok(match operation {
            "acquire" => {
                Operation::Acquire { queue_max: self.number()?, requests: self.each(Self::acquire)? }
            }
            "release" => Operation::Release(self.each(|arguments| {
                Ok(ReleaseRequest { holder: arguments.holder()?, request: arguments.id()? })
            })?),
            "renew" => Operation::Renew(self.each(Self::renew)?),
            "adopt" => Operation::Adopt(AdoptRequest {
                holder: self.holder()?,
                request: self.id()?,
                weight: self.number()?,
                lease_ms: self.number()?,
                grant: Grant { token: self.number()?, slot: self.number()? },
                new_request: self.id()?,
            }),
            "set_limit" => Operation::SetLimit {
                request: self.id()?,
                change: self.limit_change()?,
                expected_version: u64::try_from(self.number::<i64>()?).ok(),
            },
            "pause" => Operation::Pause(self.number::<u8>()? == 1),
            "revoke" => Operation::Revoke {
                request: self.id()?,
                holder: self.holder()?,
                reason: self.parsed(|reason| check_reason(reason).ok())?,
            },
            "inspect" => Operation::Inspect { max: self.number()? },
            other => return Err(Malformed(format!("the operation {other:?}"))),
        })
    }

    fn limit_change(&mut self) -> Read<LimitChange> {
        Ok(match self.text()?.as_str() {
            "set" => LimitChange::Set(self.number()?),
            "adjust" => LimitChange::Adjust(self.number()?),
            _ => {
                let _ = self.text()?;
                LimitChange::Unpin
            }
        })
    }

    fn label(&mut self) -> Read<Label> {
        self.parsed(|text| Label::new(text).ok())
    }

    fn acquire(&mut self) -> Read<AcquireRequest> {
        Ok(AcquireRequest {
            holder: self.holder()?,
            request: self.id()?,
            weight: self.number()?,
            lease_ms: self.number()?,
            wait: self.number::<u8>()? == 1,
            label: self.label()?,
        })
    }

    fn renew(&mut self) -> Read<RenewRequest> {
        Ok(RenewRequest {
            holder: self.holder()?,
            request: self.id()?,
            weight: self.number()?,
            lease_ms: self.number()?,
            grant: Some(Grant { token: self.number()?, slot: self.number()? })
                .filter(|grant| grant.token > 0),
            label: self.label()?,
        })
    }

    fn each<T>(&mut self, read: fn(&mut Self) -> Read<T>) -> Read<Vec<T>> {
        let mut all = Vec::new();
        while self.is_left() {
            all.push(read(self)?);
        }
        Ok(all)
    }

    fn is_left(&self) -> bool {
        self.next < self.all.len()
    }

    fn text(&mut self) -> Read<String> {
        let text = self.all.get(self.next).cloned();
        self.next += 1;
        text.ok_or_else(|| Malformed(format!("too few arguments: {:?}", self.all)))
    }

    fn parsed<T>(&mut self, parse: impl FnOnce(&str) -> Option<T>) -> Read<T> {
        let text = self.text()?;
        parse(&text).ok_or_else(|| Malformed(format!("the argument {text:?}")))
    }

    fn number<T: std::str::FromStr>(&mut self) -> Read<T> {
        self.parsed(|text| text.parse().ok())
    }

    fn session(&mut self) -> Read<SessionId> {
        self.parsed(|text| SessionId::new(text).ok())
    }

    fn id(&mut self) -> Read<RequestId> {
        self.parsed(|text| RequestId::new(text).ok())
    }

    fn holder(&mut self) -> Read<Holder> {
        self.parsed(|text| Holder::new(text).ok())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use redis::Arg;

    use super::*;

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

    fn labels() -> impl Strategy<Value = Label> {
        prop_oneof![Just(String::new()), texts()].prop_map(|text| Label::new(&text).expect("it is printable"))
    }

    fn grants() -> impl Strategy<Value = Grant> {
        (1..MOST, any::<u32>()).prop_map(|(token, slot)| Grant { token, slot })
    }

    fn operations() -> impl Strategy<Value = Operation> {
        let acquire = (holders(), ids(), any::<u32>(), 0..MOST, any::<bool>(), labels()).prop_map(
            |(holder, request, weight, lease_ms, wait, label)| AcquireRequest {
                holder,
                request,
                weight,
                lease_ms,
                wait,
                label,
            },
        );
        let release = (holders(), ids()).prop_map(|(holder, request)| ReleaseRequest { holder, request });
        let renew = (holders(), ids(), any::<u32>(), 0..MOST, prop::option::of(grants()), labels()).prop_map(
            |(holder, request, weight, lease_ms, grant, label)| RenewRequest {
                holder,
                request,
                weight,
                lease_ms,
                grant,
                label,
            },
        );
        let adopt = (holders(), ids(), any::<u32>(), 0..MOST, grants(), ids()).prop_map(
            |(holder, request, weight, lease_ms, grant, new_request)| {
                Operation::Adopt(AdoptRequest { holder, request, weight, lease_ms, grant, new_request })
            },
        );
        let changes = prop_oneof![
            (1..=u32::MAX).prop_map(LimitChange::Set),
            any::<i32>().prop_map(|number| LimitChange::Adjust(number.into())),
            Just(LimitChange::Unpin),
        ];
        let limits = (ids(), changes, prop::option::of(0..MOST));
        prop_oneof![
            (any::<u32>(), prop::collection::vec(acquire, 0..4))
                .prop_map(|(queue_max, requests)| Operation::Acquire { queue_max, requests }),
            prop::collection::vec(release, 0..4).prop_map(Operation::Release),
            prop::collection::vec(renew, 0..4).prop_map(Operation::Renew),
            adopt,
            limits.prop_map(|(request, change, expected_version)| Operation::SetLimit {
                request,
                change,
                expected_version,
            }),
            any::<bool>().prop_map(Operation::Pause),
            (ids(), holders(), prop_oneof![Just(String::new()), texts()]).prop_map(
                |(request, holder, reason)| Operation::Revoke { request, holder, reason: reason.into() }
            ),
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

    fn name_of(operation: &Operation) -> &'static str {
        match operation {
            Operation::Acquire { .. } => "acquire",
            Operation::Release(_) => "release",
            Operation::Renew(_) => "renew",
            Operation::Adopt(_) => "adopt",
            Operation::SetLimit { .. } => "set_limit",
            Operation::Pause(_) => "pause",
            Operation::Revoke { .. } => "revoke",
            Operation::Inspect { .. } => "inspect",
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(command in commands(), sharded in any::<bool>()) {
            let written = super::super::encode("EVALSHA", "hash", "permits", sharded, &command);
            // Behind the verb, the hash, the number of keys and the keys.
            let arguments = written.args_iter().skip(8).map(|argument| match argument {
                Arg::Simple(bytes) => String::from_utf8(bytes.to_vec()).expect("it is text"),
                _ => panic!("no plain argument"),
            });
            let all = arguments.collect();
            let heard = Command { lease_ms: command.longest_lease_ms(), ..command.clone() };
            prop_assert_eq!(Arguments { all, next: 0 }.command(name_of(&command.operation)), Ok(heard));
        }
    }

    #[test]
    fn a_record_that_is_cut_off_is_an_error() {
        let head = "5$pause 1$k 5:10000 1$r 1:0";
        let arguments = "1:8 1$a 7$p:wake: 1$s 4$1000 3$off 6$stored 1$0 1$1";
        let reply = "1:8 5:10000 1:1 2:-1 1:5 1:1 1:0 1:0 1:0";
        let whole = [head, arguments, reply].concat().replace(' ', "").into_bytes();
        let record = Record::read(&whole).expect("it is whole");
        assert_eq!((record.now_us, record.command.operation), (10_000, Operation::Pause(true)));
        for end in 0..whole.len() {
            assert!(Record::read(&whole[..end]).is_err(), "cut at {end}");
        }
    }
}
