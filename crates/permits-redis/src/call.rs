//! A request on its way to one server: the call of a script.

use std::time::Duration;

use tokio::time::Instant;

use super::resp::{Cmd, Value, cmd};
use super::script::values::Decoded;
use super::script::{Scripts, codec};
use crate::protocol::{Command, OperationKind, Reply};
use permits_store::Request;

/// A request, and where it stands.
pub(crate) struct Call {
    pub(crate) request: Request,
    pub(crate) deadline: Instant,
    /// The server has lost the script, so it gets the text.
    pub(crate) as_text: bool,
    /// The hash slot is moving to this server, which serves it only to clients that send ASKING.
    pub(crate) asking: bool,
    /// The time since the call's server was found in place of another server; `None` if it was not.
    pub(crate) known_for: Option<Duration>,
    /// The number of servers that have sent it elsewhere.
    pub(crate) redirections: usize,
}

impl Call {
    pub(crate) fn new(request: Request) -> Box<Self> {
        let deadline = Instant::now() + request.timeout;
        Box::new(Self { request, deadline, as_text: false, asking: false, known_for: None, redirections: 0 })
    }
}

/// The operations whose scripts a connection loads before its first call.
const ORDERED: [OperationKind; 3] = [OperationKind::Acquire, OperationKind::Release, OperationKind::Renew];

/// The encoding of commands and their replies.
pub(crate) struct Wire {
    pub(crate) scripts: Scripts,
    pub(crate) prefix: String,
    /// True in a cluster, where messages are sharded.
    pub(crate) sharded: bool,
}

impl Wire {
    /// The command as a call of its script, by the script's hash or `as_text`.
    pub(crate) fn encode(&self, call: &Call, as_text: bool) -> Cmd {
        let command = &call.request.command;
        let script = self.scripts.of(command.operation.kind());
        let (verb, script) = if as_text { ("EVAL", &script.code) } else { ("EVALSHA", &script.hash) };
        codec::encode(verb, script, &self.prefix, self.sharded, command, call.known_for)
    }

    /// Calls without an effect of the scripts whose order matters, by their hashes or `as_text`, which loads
    /// them.
    ///
    /// A script that the server lacks is sent again as text, behind the calls that were sent meanwhile. A
    /// release must not be executed before the acquisition or the renewal that it follows.
    pub(crate) fn checks(&self, as_text: bool) -> [Cmd; ORDERED.len()] {
        ORDERED.map(|kind| {
            let script = self.scripts.of(kind);
            let (verb, script) = if as_text { ("EVAL", &script.code) } else { ("EVALSHA", &script.hash) };
            let mut check = cmd(verb);
            check.arg(script).arg(0);
            check
        })
    }

    /// The reply to the command.
    pub(crate) fn decode(&self, value: Value, command: &Command) -> Decoded<Reply> {
        codec::decode(value, &command.operation)
    }
}
