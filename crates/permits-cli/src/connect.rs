//! Which store, and a client of it.

use std::env::{self, VarError};
use std::io::{self, IsTerminal as _};
use std::time::Duration;

use permits::{Client, ClientBuilder};

use crate::args::Common;
use crate::exit::{Failure, USAGE};
use crate::report;

/// The environment variable that names the store.
const URL_VARIABLE: &str = "PERMITS_URL";

/// The environment variable that names a file with the URL in it.
const FILE_VARIABLE: &str = "PERMITS_URL_FILE";

/// The environment variable that says whether the store has to be a server.
const SERVER_VARIABLE: &str = "PERMITS_REQUIRE_SERVER";

/// The store when none is named: a file that this user's processes on this machine share.
const DEFAULT_URL: &str = "local:";

/// How long a store may be away for a verb that only looks, or changes something.
const OPERATOR_TIMEOUT: Duration = Duration::from_secs(3);

/// A store that is named, and not connected to yet.
pub(crate) struct Target {
    pub(crate) builder: ClientBuilder,
    /// Where it is, without any password.
    pub(crate) store: String,
}

impl Target {
    /// The store that `--url` names, or the environment, or the default.
    pub(crate) fn of(common: &Common) -> Result<Self, Failure> {
        let url = match &common.url {
            Some(url) => url.clone(),
            None => from_environment()?.unwrap_or_else(|| DEFAULT_URL.to_owned()),
        };
        if url.is_empty() {
            return Err(Failure::new(USAGE, "--url is empty: name a store, or leave it out"));
        }
        if requires_server()? && ["local:", "memory:"].iter().any(|scheme| url.starts_with(scheme)) {
            let asks = format!("{SERVER_VARIABLE} asks for a server");
            return Err(Failure::new(USAGE, format!("{asks}, and the store is {url}: set {URL_VARIABLE}")));
        }
        let builder = Client::builder(&url).prefix(&common.prefix);
        let store = match url.strip_prefix("local:") {
            // With the path, also where that is the default.
            Some(_) => format!("local:{}", builder.address()?),
            None => report::redacted(&url).trim_end_matches("?***").to_owned(),
        };
        Ok(Self { builder, store })
    }

    /// Connects. The library waits for a store that is away, and warns that it does.
    pub(crate) async fn connect(self, store_timeout: Duration) -> Result<Client, Failure> {
        Ok(self.builder.store_timeout(store_timeout).connect().await?)
    }
}

/// A client for a verb that looks at semaphores, or changes them, and does not wait in line.
pub(crate) async fn operator(common: &Common) -> Result<Client, Failure> {
    operate(common, false).await
}

/// The same for a verb that prints: where people look, the store is named above what it prints.
pub(crate) async fn viewer(common: &Common, json: bool) -> Result<Client, Failure> {
    operate(common, !json && io::stderr().is_terminal()).await
}

async fn operate(common: &Common, name_store: bool) -> Result<Client, Failure> {
    let target = Target::of(common)?;
    if name_store || common.verbose > 0 {
        report::say(format_args!("store {}", target.store));
    }
    target.connect(common.store_timeout.unwrap_or(OPERATOR_TIMEOUT)).await
}

fn from_environment() -> Result<Option<String>, Failure> {
    match (variable(URL_VARIABLE)?, variable(FILE_VARIABLE)?) {
        (Some(_), Some(_)) => {
            Err(Failure::new(USAGE, format!("{URL_VARIABLE} and {FILE_VARIABLE} are both set: unset one")))
        }
        (None, Some(path)) => from_file(&path).map(Some),
        (url, None) => Ok(url),
    }
}

/// The value of an environment variable. An empty one is refused: it was meant to name a store, and another store than
/// the one that was meant would be worse than none.
fn variable(name: &str) -> Result<Option<String>, Failure> {
    match env::var(name) {
        Ok(value) if value.is_empty() => {
            Err(Failure::new(USAGE, format!("{name} is empty: name a store, or unset it")))
        }
        Ok(value) => Ok(Some(value)),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => Err(Failure::new(USAGE, format!("{name} is not UTF-8"))),
    }
}

/// The URL is the one line of the file.
fn from_file(path: &str) -> Result<String, Failure> {
    let wrong = |what: &str| Failure::new(USAGE, format!("{path:?}, which {FILE_VARIABLE} names, {what}"));
    let text = std::fs::read_to_string(path).map_err(|error| wrong(&format!("cannot be read: {error}")))?;
    let url = text.trim();
    match url.lines().count() {
        1 => Ok(url.to_owned()),
        0 => Err(wrong("is empty: write the URL of a store into it")),
        _ => Err(wrong("has several lines: it is to have the URL of a store, and nothing else")),
    }
}

fn requires_server() -> Result<bool, Failure> {
    match env::var(SERVER_VARIABLE).as_deref() {
        Err(VarError::NotPresent) | Ok("" | "0") => Ok(false),
        Ok("1") => Ok(true),
        _ => Err(Failure::new(USAGE, format!("{SERVER_VARIABLE} must be 1 or 0"))),
    }
}
