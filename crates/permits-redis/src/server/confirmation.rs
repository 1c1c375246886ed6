//! Calls that replicas confirm. Each is executed and followed by WAIT, on a connection of their own, because
//! WAIT blocks a connection.

use tokio::time::{Instant, timeout_at};

use super::connection::Connection;
use super::link::{Owner, Shared, outcome};
use super::state::closed;
use crate::call::Call;
use crate::error;
use crate::resp::{RespResult, Value, cmd};
use crate::script::values::Malformed;
use permits_store::{Executed, Report, StoreError};

impl<O: Owner> Shared<O> {
    /// Executes a call and waits for replicas. Returns its outcome, unless the owner takes the call.
    pub(super) async fn confirm(&self, mut call: Box<Call>) -> Option<Report> {
        let deadline = call.deadline;
        match timeout_at(deadline, self.confirming(deadline)).await {
            Ok(Ok(connection)) => {
                call.known_for = self.lock().known_for();
                let executing = timeout_at(deadline, self.execute_and_wait(&connection, &call));
                let Ok(result) = executing.await else {
                    let reason = format!("no answer within {:?}", call.request.timeout);
                    self.lock().confirming = None;
                    return Some(outcome(&call, Err(StoreError::NoAnswer { reason })));
                };
                match result {
                    Ok((value, confirmed)) => match self.wire.decode(value, &call.request.command) {
                        Ok(reply) => {
                            self.lock().served = true;
                            Some(outcome(&call, Ok(Executed { reply, confirmed })))
                        }
                        Err(Malformed(reason)) => {
                            self.lock().confirming = None;
                            Some(outcome(&call, Err(StoreError::Malformed { reason })))
                        }
                    },
                    Err(failed) => {
                        if error::needs_reconnect(&failed) {
                            let epoch = self.lock().confirming.take().map(|(epoch, _)| epoch);
                            // The server replied that it cannot write.
                            if let (Some(epoch), Some(_)) = (epoch, failed.code()) {
                                self.replace(epoch, &error::text(&failed));
                            }
                        }
                        self.failed(call, &failed)
                    }
                }
            }
            Ok(Err(error)) => Some(outcome(&call, Err(error))),
            Err(_) => {
                let reason = format!("no connection within {:?}", call.request.timeout);
                Some(outcome(&call, Err(StoreError::Unreachable { reason })))
            }
        }
    }

    /// The connection reserved for WAIT. It is to the same server as the present connection, and is dropped
    /// with it. If its address leads to another server by now, the present connection is replaced.
    async fn confirming(&self, deadline: Instant) -> Result<Connection, StoreError> {
        self.connection_by(deadline).await?;
        // The first call connects, and the calls that come meanwhile use its connection.
        let _one = self.one_connects.lock().await;
        let epoch = {
            let link = self.lock();
            if let Some((of, connection)) = &link.confirming
                && *of == link.epoch
            {
                return Ok(connection.clone());
            }
            link.epoch
        };
        let (connection, run_id) = self.config.connect_again().await?;
        if !self.lock().is_to(&run_id) {
            let reason = "the address leads to another server".to_owned();
            self.replace(epoch, &reason);
            return Err(StoreError::Unreachable { reason });
        }
        self.lock().confirming = Some((epoch, connection.clone()));
        Ok(connection)
    }

    /// Returns the reply, and the number of replicas that have acknowledged all writes made on this
    /// connection. The timeout of WAIT is three quarters of the time left.
    async fn execute_and_wait(&self, connection: &Connection, call: &Call) -> RespResult<(Value, u32)> {
        let send = async |as_text| {
            let encoded = self.wire.encode(call, as_text);
            if call.asking {
                let mut replies = connection.query_all(&[cmd("ASKING"), encoded]).await;
                replies.pop().unwrap_or_else(|| Err(closed()))
            } else {
                connection.query(&encoded).await
            }
        };
        let value = match send(false).await {
            Err(failed) if error::is_no_script(&failed) => send(true).await?,
            result => result?,
        };
        let left = call.deadline.saturating_duration_since(Instant::now());
        let milliseconds = u64::try_from((left * 3 / 4).as_millis().max(1)).unwrap_or(u64::MAX);
        let mut wait = cmd("WAIT");
        wait.arg(call.request.replicas).arg(milliseconds);
        Ok((value, connection.query(&wait).await?))
    }
}
