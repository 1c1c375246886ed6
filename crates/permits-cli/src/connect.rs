//! The choice of the store, and a client of it.

use std::env::{self, VarError};
use std::io::{self, IsTerminal as _};
use std::time::Duration;

use permits::{Client, ClientBuilder, check};

use crate::args::{Author, Common};
use crate::exit::{Failure, USAGE};
use crate::{password, report};

/// The environment variable with the URL of the store.
const URL_VARIABLE: &str = "PERMITS_URL";

/// The environment variable with the path of a file that contains the URL.
const FILE_VARIABLE: &str = "PERMITS_URL_FILE";

/// The environment variables with the sources of a password that may change: a file, and a command.
const PASSWORD_FILE_VARIABLE: &str = "PERMITS_PASSWORD_FILE";
const PASSWORD_COMMAND_VARIABLE: &str = "PERMITS_PASSWORD_COMMAND";

/// The environment variable with the prefix of keys.
const PREFIX_VARIABLE: &str = "PERMITS_PREFIX";

/// The environment variable that refuses stores other than servers.
const SERVER_VARIABLE: &str = "PERMITS_REQUIRE_SERVER";

/// The default store: a directory that this user's processes on this machine share.
const DEFAULT_URL: &str = "local:";

/// The default prefix.
const DEFAULT_PREFIX: &str = "permits";

/// Store timeout of the verbs that do not wait in line.
const OPERATOR_TIMEOUT: Duration = Duration::from_secs(3);

/// A store that has been chosen and not connected to yet.
pub(crate) struct Target {
    pub(crate) builder: ClientBuilder,
    /// The URL without passwords.
    pub(crate) store: String,
}

impl Target {
    /// The store from `--url`, from the environment, or by default.
    pub(crate) fn of(common: &Common) -> Result<Self, Failure> {
        let url = match &common.url {
            Some(url) => url.clone(),
            None => from_environment()?.unwrap_or_else(|| DEFAULT_URL.to_owned()),
        };
        if url.is_empty() {
            return Err(Failure::new(USAGE, "--url is empty: name a store, or leave it out"));
        }
        let builder = with_password(Client::builder(&url).prefix(prefix(common)?))?;
        // The URL is checked before it is shown: any part of an invalid URL may be a password.
        let (address, is_server) = (builder.address()?, builder.uses_server()?);
        let store = match is_server {
            true if !url.starts_with("file:") => report::redacted(&url).trim_end_matches("?***").to_owned(),
            // The address has the path, which `local:` alone leaves out.
            false if !address.starts_with("memory:") => format!("local:{address}"),
            _ => address,
        };
        if requires_server()? && !is_server {
            let asks = format!("{SERVER_VARIABLE} asks for a server");
            return Err(Failure::new(
                USAGE,
                format!("{asks}, and the store is {store:?}: set {URL_VARIABLE}"),
            ));
        }
        Ok(Self { builder, store })
    }

    /// Sets the label of the client: the label of its acquisitions, and the author of its changes.
    pub(crate) fn with_label(mut self, label: String) -> Self {
        self.builder = self.builder.label(label);
        self
    }

    /// Connects. While the store cannot be reached, the library retries until `store_timeout` and logs a
    /// warning.
    pub(crate) async fn connect(self, store_timeout: Duration) -> Result<Client, Failure> {
        Ok(self.builder.store_timeout(store_timeout).connect().await?)
    }
}

/// A client for a verb that reads or changes semaphores and does not wait in line.
pub(crate) async fn operator(common: &Common) -> Result<Client, Failure> {
    operate(Target::of(common)?, common, false).await
}

/// A client for a verb that prints semaphores: on a terminal it names the store first.
pub(crate) async fn viewer(common: &Common, json: bool) -> Result<Client, Failure> {
    operate(Target::of(common)?, common, !json && io::stderr().is_terminal()).await
}

/// A client for a verb that makes changes in the name of `author`.
pub(crate) async fn author(common: &Common, author: &Author) -> Result<Client, Failure> {
    let by = author.by.clone().unwrap_or_else(user_and_host);
    if by.is_empty() {
        return Err(Failure::new(USAGE, "--by is empty: name the author, or leave it out"));
    }
    operate(Target::of(common)?.with_label(by), common, false).await
}

/// The default author of changes: `USER@HOST`.
pub(crate) fn user_and_host() -> String {
    format!("{}@{}", user(), plain(&rustix::system::uname().nodename().to_string_lossy()))
}

/// The user of this process.
pub(crate) fn user() -> String {
    let named = |variable| env::var(variable).ok().map(|name| plain(&name)).filter(|name| !name.is_empty());
    let user = ["USER", "LOGNAME"].into_iter().find_map(named);
    user.or_else(registered_user).unwrap_or_else(|| format!("uid-{}", rustix::process::getuid().as_raw()))
}

/// The name of this process's user in /etc/passwd. In a container and under systemd no variable may have it.
fn registered_user() -> Option<String> {
    let (id, users) = (rustix::process::getuid().as_raw(), std::fs::read_to_string("/etc/passwd").ok()?);
    let mut users = users.lines().map(|line| line.split(':'));
    let user = users.find_map(|mut user| {
        let name = user.next()?;
        (user.nth(1)?.parse() == Ok(id)).then(|| plain(name))
    })?;
    Some(user).filter(|user| !user.is_empty())
}

/// A name short enough for half a label.
fn plain(name: &str) -> String {
    name.chars().filter(char::is_ascii_graphic).take(55).collect()
}

async fn operate(target: Target, common: &Common, name_store: bool) -> Result<Client, Failure> {
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
        (None, Some(path)) => Ok(Some(format!("file://{path}"))),
        (url, None) => Ok(url),
    }
}

/// The builder with the password's source from the environment.
fn with_password(builder: ClientBuilder) -> Result<ClientBuilder, Failure> {
    Ok(match (variable(PASSWORD_FILE_VARIABLE)?, variable(PASSWORD_COMMAND_VARIABLE)?) {
        (Some(_), Some(_)) => Err(Failure::new(
            USAGE,
            format!("{PASSWORD_FILE_VARIABLE} and {PASSWORD_COMMAND_VARIABLE} are both set: unset one"),
        ))?,
        (Some(path), None) => builder.password_file(path),
        // The library calls this on a thread of its own, which the command may block.
        (None, Some(command)) => {
            builder.named_credentials("the command in PERMITS_PASSWORD_COMMAND", move || {
                let printed = password::from_command(&command);
                async move { printed }
            })
        }
        (None, None) => builder,
    })
}

/// The value of an environment variable. An empty one is refused, because it was meant to replace the
/// default.
fn variable(name: &str) -> Result<Option<String>, Failure> {
    match env::var(name).map(|value| value.trim().to_owned()) {
        Ok(value) if value.is_empty() => {
            Err(Failure::new(USAGE, format!("{name} is empty: give it a value, or unset it")))
        }
        Ok(value) => Ok(Some(value)),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => Err(Failure::new(USAGE, format!("{name} is not UTF-8"))),
    }
}

/// The first part of every key: from `--prefix`, from the environment, or the default.
pub(crate) fn prefix(common: &Common) -> Result<String, Failure> {
    if let Some(prefix) = &common.prefix {
        return Ok(prefix.clone());
    }
    let Some(prefix) = variable(PREFIX_VARIABLE)? else { return Ok(DEFAULT_PREFIX.to_owned()) };
    let wrong = |error| Failure::new(USAGE, format!("{PREFIX_VARIABLE}: {error}"));
    check::prefix(&prefix).map(|()| prefix).map_err(wrong)
}

fn requires_server() -> Result<bool, Failure> {
    match variable(SERVER_VARIABLE)?.as_deref() {
        None | Some("0") => Ok(false),
        Some("1") => Ok(true),
        Some(_) => Err(Failure::new(USAGE, format!("{SERVER_VARIABLE} must be 1 or 0"))),
    }
}
