//! A connection that logs in again, because its credentials end or have changed.
//!
//! A server lets an open connection be after its password was changed, with two exceptions. Managed services
//! close a connection whose token has ended, and a server closes the connections of a user that was deleted.
//! So the connection sends AUTH between its other commands, with what the source of its login gives then:
//! before the end of credentials that end, and after a change of a file. A login that is refused changes
//! nothing on the connection. It is tried again, since the file may be written before or after the server
//! changes.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, sleep_until};

use super::state::Shared;
use crate::address::{Login, Server};
use crate::error::of_login;
use permits_store::StoreError;
use permits_store::observe::events;

/// The interval at which a file is read, in order to see whether it has changed.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// The shortest time between two logins, however short credentials are valid.
const AT_LEAST: Duration = Duration::from_millis(250);

/// The pause before another attempt: the first, and the longest.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// Logs in again whenever that is due, until the connection ends.
pub(super) async fn stay_logged_in(connection: Arc<Shared>, server: Server, login: Login) {
    let again = async {
        let mut login = login;
        // The last reason that was logged.
        let mut logged = None;
        let mut pause = AGAIN.0;
        loop {
            if logged.is_some() {
                sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
                pause = (2 * pause).min(AGAIN.1);
            } else if !until_due(&login, &server).await {
                return;
            }
            match renewed(&connection, &server, &login).await {
                Ok(new) => {
                    if !new.is_same(&login) || new.valid.is_some() {
                        events::logged_in_again(&server);
                    }
                    (login, logged, pause) = (new, None, AGAIN.0);
                }
                Err(error) => {
                    let reason = error.into_reason();
                    if logged.as_ref() != Some(&reason) {
                        events::not_logged_in_again(&server, &reason);
                    }
                    logged = Some(reason);
                }
            }
        }
    };
    tokio::select! {
        () = again => {}
        _ = connection.ended() => {}
    }
}

/// Waits until a login has to be renewed, or looked at. Returns false if it never has.
async fn until_due(login: &Login, server: &Server) -> bool {
    match login.valid {
        Some(valid) => match valid.since.checked_add((valid.time / 4 * 3).max(AT_LEAST)) {
            Some(due) => sleep_until(due).await,
            None => return false,
        },
        None if server.has_login_in_file() => sleep(LOOK_EVERY).await,
        None => return false,
    }
    true
}

/// Logs in again, unless nothing has changed.
async fn renewed(connection: &Shared, server: &Server, old: &Login) -> Result<Login, StoreError> {
    let new = server.login().await?;
    if new.valid.is_none() && new.is_same(old) {
        return Ok(new);
    }
    if let Some(auth) = new.command() {
        for reply in connection.query_all(&[auth]).await {
            reply.map_err(|refusal| server.refused(of_login(&refusal)))?;
        }
    }
    Ok(new)
}
