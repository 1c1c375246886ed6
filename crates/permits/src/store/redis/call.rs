//! A request on its way to one server: the call of a script.

use ::redis::{Cmd, Value};
use tokio::time::Instant;

use super::script::values::Decoded;
use super::script::{Scripts, codec};
use crate::protocol::{Command, Reply};
use crate::store::Request;

/// A request, and where it stands.
pub(crate) struct Call {
    pub(crate) request: Request,
    pub(crate) deadline: Instant,
    /// The hash slot is moving to this server, which serves it to those that send ASKING.
    pub(crate) asking: bool,
    /// The number of servers that have sent it elsewhere.
    pub(crate) redirections: usize,
}

impl Call {
    pub(crate) fn new(request: Request) -> Box<Self> {
        let deadline = Instant::now() + request.timeout;
        Box::new(Self { request, deadline, asking: false, redirections: 0 })
    }

    /// The number of its script.
    pub(crate) fn script(&self) -> u32 {
        self.request.command.operation.kind() as u32
    }
}

/// The encoding of commands and their replies.
pub(crate) struct Wire {
    pub(crate) scripts: Scripts,
    pub(crate) prefix: String,
    /// True in a cluster, where messages are sharded.
    pub(crate) sharded: bool,
}

impl Wire {
    /// The command as a call of its script, which the server `knows` by its hash or gets as text.
    pub(crate) fn encode(&self, command: &Command, knows: bool) -> Cmd {
        let script = self.scripts.of(&command.operation);
        let (verb, script) = if knows { ("EVALSHA", &script.hash) } else { ("EVAL", &script.code) };
        codec::encode(verb, script, &self.prefix, self.sharded, command)
    }

    /// The reply to the command.
    pub(crate) fn decode(&self, value: Value, command: &Command) -> Decoded<Reply> {
        codec::decode(value, &command.operation)
    }
}
