//! The session's thread: opens the store, and keeps time until the session ends. The store's tasks run here,
//! too.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::callers::Session;
use super::config::Config;
use super::driver::Driver;
use crate::background::spawn_with_runtime;
use crate::error::ConnectError;
use crate::{observe, store};

/// Starts a session. The answer comes when the store is open, or cannot be opened.
pub(crate) fn start(
    config: Config,
    address: store::Address,
    prefix: String,
) -> Result<oneshot::Receiver<Result<Session, ConnectError>>, ConnectError> {
    let (opened, answer) = oneshot::channel();
    spawn_with_runtime(move || async {
        let driver = run(config, address, prefix, opened).await;
        // Answer after the runtime has shut down, so that a process forked next inherits no open connection.
        || {
            observe::flush();
            if let Some(driver) = driver {
                driver.answer_closed();
            }
        }
    })?;
    Ok(answer)
}

async fn run(
    config: Config,
    address: store::Address,
    prefix: String,
    mut opened: oneshot::Sender<Result<Session, ConnectError>>,
) -> Option<Arc<Driver>> {
    let within = config.store_timeout;
    let (id, lease) = (config.session.clone(), config.lease);
    let (session, driver) = Driver::new(config);
    let options = store::StoreOptions { session: id, prefix, lease, sink: driver.clone() };
    let opening = tokio::select! {
        opening = store::open(&address, options, within) => opening,
        // The caller has given up.
        () = opened.closed() => return None,
    };
    match opening {
        Ok(store) => driver.open(store),
        Err(error) => {
            // A caller that has given up is ignored.
            let _ = opened.send(Err(ConnectError::Store(error)));
            return None;
        }
    }
    // If the caller has given up, the session is dropped, which closes it.
    drop(opened.send(Ok(session)));
    driver.keep_time().await;
    Some(driver)
}
