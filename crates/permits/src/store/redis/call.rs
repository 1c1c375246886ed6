//! One call of a script on one server.

use std::time::Duration;

use ::redis::aio::{ConnectionLike as _, MultiplexedConnection};
use ::redis::{Cmd, RedisResult, Value};
use tokio::time::{Instant, timeout_at};

use super::error::{self, Failure};
use super::script::values::Malformed;
use super::script::{Script, codec};
use super::server::connection::ManagedConnection;
use crate::protocol::{Command, Reply};
use crate::store::StoreError;

/// A command, and the terms of its execution.
pub(super) struct ScriptCall<'a> {
    pub(super) command: &'a Command,
    pub(super) script: &'a Script,
    pub(super) prefix: &'a str,
    pub(super) sharded: bool,
    /// The number of replicas that should confirm it.
    pub(super) replicas: u32,
    pub(super) timeout: Duration,
    pub(super) deadline: Instant,
}

impl ScriptCall<'_> {
    /// The time until the deadline.
    pub(super) fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Calls the script on one server, `asking` if its hash slot is moving there. Returns the reply, and the number of
    /// replicas that have confirmed it, if any should.
    pub(super) async fn run(
        &self,
        managed: &ManagedConnection,
        asking: bool,
    ) -> Result<(Reply, u32), Failure> {
        let (epoch, mut connection) = managed.connection().map_err(Failure::Store)?;
        if self.replicas > 0 {
            connection = self.confirming(managed, epoch).await?;
        }
        let sending = async {
            let value = match send(&mut connection, self.encode("EVALSHA", &self.script.hash), asking).await {
                // The server has not loaded the script, or has forgotten it. EVAL loads it.
                Err(failed) if error::is_no_script(&failed) => {
                    send(&mut connection, self.encode("EVAL", &self.script.code), asking).await?
                }
                result => result?,
            };
            let confirmed = match self.replicas {
                0 => 0,
                replicas => self.wait(&mut connection, replicas).await?,
            };
            Ok((value, confirmed))
        };
        let result: RedisResult<(Value, u32)> = match timeout_at(self.deadline, sending).await {
            Ok(result) => result,
            Err(_) => {
                let reason = format!("no answer within {:?}", self.timeout);
                managed.broken(epoch, reason.clone());
                return Err(Failure::Store(StoreError::NoAnswer { reason }));
            }
        };
        match result {
            Ok((value, confirmed)) => {
                let malformed = |Malformed(reason)| {
                    // The reply may belong to another call, and so may all later replies.
                    managed.malformed(epoch, reason.clone());
                    Failure::Store(StoreError::Malformed { reason })
                };
                let reply = codec::decode(value, &self.command.operation).map_err(malformed)?;
                managed.served();
                Ok((reply, confirmed))
            }
            Err(failed) => {
                if error::needs_reconnect(&failed) {
                    managed.broken(epoch, error::text(&failed));
                }
                Err(Failure::of(&failed, &self.command.semaphore))
            }
        }
    }

    /// The connection reserved for WAIT. Failing to open it does not invalidate the main connection.
    async fn confirming(
        &self,
        managed: &ManagedConnection,
        epoch: u64,
    ) -> Result<MultiplexedConnection, Failure> {
        match timeout_at(self.deadline, managed.confirming(epoch)).await {
            Ok(connected) => connected.map_err(Failure::Store),
            Err(_) => {
                let reason = format!("no connection within {:?}", self.timeout);
                Err(Failure::Store(StoreError::Unreachable { reason }))
            }
        }
    }

    /// Sends WAIT. Returns the number of replicas that have acknowledged all writes made on this connection. The timeout
    /// of WAIT is three quarters of the time left.
    async fn wait(&self, connection: &mut MultiplexedConnection, replicas: u32) -> RedisResult<u32> {
        let milliseconds = (self.left() * 3 / 4).as_millis().max(1);
        let milliseconds = u64::try_from(milliseconds).unwrap_or(u64::MAX);
        ::redis::cmd("WAIT").arg(replicas).arg(milliseconds).query_async(connection).await
    }

    fn encode(&self, verb: &str, script: &str) -> Cmd {
        codec::encode(verb, script, self.prefix, self.sharded, self.command)
    }
}

async fn send(connection: &mut MultiplexedConnection, cmd: Cmd, asking: bool) -> RedisResult<Value> {
    if !asking {
        return connection.req_packed_command(&cmd).await.and_then(Value::extract_error);
    }
    let mut both = ::redis::pipe();
    both.cmd("ASKING").add_command(cmd);
    let mut values = connection.req_packed_commands(&both, 0, 2).await?;
    values.pop().unwrap_or(Value::Nil).extract_error()
}
