//! A connection of a diagnosis: no session's, so a fault of the server does not close it.

use std::time::Duration;

use tokio::time::timeout;

use crate::address::Server;
use crate::resp::{Cmd, FromValue, RespResult};
use crate::server::connection::Connection;
use crate::server::handshake::CONNECT_TIMEOUT;
use crate::server::login;
use crate::server::state::Times;
use permits_store::StoreError;

/// The timeout of one command.
pub(super) const TIMEOUT: Duration = Duration::from_secs(5);

pub(super) async fn connect(server: &Server) -> Result<Connection, StoreError> {
    let times = Times { ping: None, query: Some(TIMEOUT) };
    let login = server.login().await?;
    match timeout(CONNECT_TIMEOUT, login::connect(server, login, times)).await {
        Ok(connected) => connected,
        Err(_) => {
            let reason = format!("no connection within {CONNECT_TIMEOUT:?}");
            Err(StoreError::Unreachable { reason })
        }
    }
}

/// The reply to a command. The outer error is the connection's, the inner one the server's.
pub(super) async fn reply<T: FromValue>(connection: &Connection, command: &Cmd) -> RespResult<RespResult<T>> {
    match connection.query(command).await {
        Err(error) if error.io().is_some() => Err(error),
        reply => Ok(reply),
    }
}
