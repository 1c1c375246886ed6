//! Which store, and a client of it.

use std::env::{self, VarError};
use std::time::Duration;

use permits::{Client, ClientBuilder};

use crate::exit::{Failure, USAGE};

/// The environment variable that names the store.
const URL_VARIABLE: &str = "PERMITS_URL";

/// The store when none is named: a file that this user's processes on this machine share.
const DEFAULT_URL: &str = "local:";

/// How long a store that was reached may fall silent when nobody waits in line for its answer.
const OPERATOR_PATIENCE: Duration = Duration::from_secs(5);

/// A client to be configured, for the store that `--url` names, or the environment, or the default.
pub(crate) fn client(url: Option<&str>) -> Result<ClientBuilder, Failure> {
    let url = match url {
        Some(url) => url.to_owned(),
        None => from_environment()?.unwrap_or_else(|| DEFAULT_URL.to_owned()),
    };
    Ok(Client::builder(url))
}

/// A client for one who looks at semaphores, or changes them, and is not going to wait in line.
pub(crate) async fn operator(url: Option<&str>) -> Result<Client, Failure> {
    Ok(client(url)?.store_timeout(OPERATOR_PATIENCE).connect().await?)
}

fn from_environment() -> Result<Option<String>, Failure> {
    match env::var(URL_VARIABLE) {
        Ok(url) => Ok(Some(url).filter(|url| !url.is_empty())),
        Err(VarError::NotPresent) => Ok(None),
        // Another store than the one that was meant would be worse than none.
        Err(VarError::NotUnicode(_)) => Err(Failure::new(USAGE, format!("{URL_VARIABLE} is not UTF-8"))),
    }
}
