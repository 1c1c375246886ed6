//! The recording build of the scripts: each command publishes itself and its results.
//!
//! Clients that are killed leave gaps in their own logs; the scripts see every command, in the order of
//! execution. A call of a recording script has the command itself, as JSON, as one more argument; the script
//! publishes that. So a record says nothing about the encoding of arguments, which the differential test
//! compares.

use crate::protocol::{Command, Event, Reply, SessionId};
use crate::store::redis::resp::Value;
use crate::store::redis::script::codec::{decode, decode_message, decode_recall};
use crate::store::redis::script::values::{Decoded, Malformed};
use crate::store::redis::script::{self, Scripts};

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
    let mut scripts = Scripts::build(&clock, sharded, |_, code| wrap(sharded, &code));
    scripts.note = Some(note);
    scripts
}

fn note(command: &Command) -> String {
    serde_json::to_string(command).expect("commands are plain data")
}

fn wrap(sharded: bool, code: &str) -> String {
    let head = format!("local SHARDED, CHANNEL, KEPT = {sharded}, '{CHANNEL}', {KEPT}\n");
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
    /// The command.
    pub command: Command,
    /// The reply.
    pub reply: Reply,
    /// The events that it published.
    pub events: Vec<Event>,
    /// It recalled what sessions keep of the semaphore.
    pub recalled: bool,
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
        let (semaphore, now_us) = (self.text()?, self.number()?);
        let (run_id, uptime_ms) = (self.text()?, self.number()?);
        let command: Command = serde_json::from_str(&self.text()?)
            .map_err(|error| Malformed(format!("the command: {error}")))?;
        let reply = (0..self.number()?).map(|_| self.value()).collect::<Decoded<_>>()?;
        let reply = decode(Value::Array(reply), &command.operation)?;
        let (mut events, mut recalled) = (Vec::new(), false);
        while !self.rest.is_empty() {
            let (channel, message) = (self.text()?, self.text()?);
            if decode_recall(message.as_bytes()).is_some() {
                recalled = true;
                continue;
            }
            let session = channel.rsplit(':').next().and_then(|session| SessionId::new(session).ok());
            let session = session.ok_or_else(|| Malformed(format!("the channel {channel:?}")))?;
            events.extend(decode_message(&session, message.as_bytes())?);
        }
        Ok(Record { semaphore, now_us, run_id, uptime_ms, command, reply, events, recalled })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Declaration, Name, Operation, Recovery, RequestId};

    #[test]
    fn a_record_that_is_cut_off_is_an_error() {
        let command = Command {
            semaphore: Name::new("a").expect("valid"),
            session: SessionId::new("s").expect("valid"),
            lease_ms: 1_000,
            recovery: Recovery::Off,
            declaration: Declaration::Stored,
            operation: Operation::Pause { origin: RequestId::new("s.1").expect("valid").into(), pause: None },
        };
        let note = note(&command);
        let note = format!("{}${note}", note.len());
        let whole = ["1$k 5:10000 1$r 1:0 ", &note, " 1:8 5:10000 1:1 2:-1 1:5 1:1 1:0 1:0 1:0"];
        let whole = whole.concat().replace(' ', "").into_bytes();
        let record = Record::read(&whole).expect("it is whole");
        assert_eq!((record.now_us, record.command), (10_000, command));
        for end in 0..whole.len() {
            assert!(Record::read(&whole[..end]).is_err(), "cut at {end}");
        }
    }
}
