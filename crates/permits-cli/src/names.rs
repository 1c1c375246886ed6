//! The semaphores of a verb: one by its name, or all whose names begin with the prefix of `--under`, by the
//! list of the store.
//!
//! A name that the store does not know is a failure for a verb that shows it. A verb that changes it makes
//! the change and warns, since a pause before the first use is wanted, and a misspelt name looks the same.

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use permits::check::similar;
use permits::{AdminError, Client, Inspection, Limit};
use serde_json::json;
use tokio::time::timeout;

use crate::args::{Chosen, Targets};
use crate::exit::{self, Failure};
use crate::report;

/// The most names in a question.
const SHOWN: usize = 3;

/// Time to look for similar names, since a list walks over all keys of a server.
const SIMILAR_TIMEOUT: Duration = Duration::from_secs(2);

impl Chosen<'_> {
    /// The names in order. It is a failure if no name begins with the prefix.
    pub(crate) async fn names(self, client: &Client) -> Result<Vec<String>, Failure> {
        match self {
            Self::One(name) => Ok(vec![name.to_owned()]),
            Self::Under(prefix) => {
                let names = under(client, prefix).await?;
                let none = || Failure::new(exit::UNKNOWN, format!("no semaphore begins with {prefix:?}"));
                if names.is_empty() { Err(none()) } else { Ok(names) }
            }
        }
    }
}

/// The semaphores of the store whose names begin with `prefix`, in order.
pub(crate) async fn under(client: &Client, prefix: &str) -> Result<Vec<String>, AdminError> {
    let mut names = client.list().await?;
    names.retain(|name| name.starts_with(prefix));
    Ok(names)
}

/// False for a semaphore that the store does not know, or that has ended since it was listed.
pub(crate) fn is_used(inspection: &Inspection) -> bool {
    let Inspection { limit, held, waiting, paused, pinned, ref closed, alert, ref lanes, .. } = *inspection;
    let is_pinned = pinned || lanes.iter().any(|lane| lane.pinned);
    limit.is_some() || held > 0 || waiting > 0 || paused || is_pinned || closed.is_some() || alert.is_set()
}

/// True if the store knows the semaphore.
pub(crate) async fn is_known_name(client: &Client, name: &str) -> Result<bool, AdminError> {
    Ok(is_used(&client.semaphore(name, Limit::Stored)?.inspect_up_to(1).await?))
}

/// The message for a name that the store does not know.
fn unknown_name(name: &str) -> String {
    let mut message = format!("no program has used {name:?} lately");
    if let Some((prefix, _)) = name.split_once('*') {
        message += "; * is a plain character in a name";
        if !prefix.is_empty() {
            message += &format!(": for all that begin with {prefix:?}, see --under");
        }
    }
    message
}

/// The message for a name that the store does not know, with similar ones if the store lists them in time.
pub(crate) async fn unknown(client: &Client, name: &str) -> String {
    let message = unknown_name(name);
    if name.contains('*') {
        return message;
    }
    message + &similar_to(client, name).await
}

/// The end of a message about a name: similar ones, if the store lists them in time.
pub(crate) async fn similar_to(client: &Client, name: &str) -> String {
    let known = timeout(SIMILAR_TIMEOUT, client.list()).await;
    let names = similar(name, known.ok().and_then(Result::ok).unwrap_or_default());
    if names.is_empty() { String::new() } else { format!("; similar names: {}", quoted(&names)) }
}

/// The failure of a verb that shows or removes a semaphore which the store does not know.
pub(crate) async fn unknown_failure(client: &Client, name: &str) -> Failure {
    failure(name, unknown(client, name).await)
}

/// The failure for a program that polls: without similar names, for which the store would walk over all keys.
pub(crate) fn unknown_failure_in_json(name: &str) -> Failure {
    failure(name, unknown_name(name))
}

fn failure(name: &str, message: String) -> Failure {
    Failure::new(exit::UNKNOWN, message).with(json!({ "semaphore": name }))
}

/// Asks whether to change more than one semaphore. `change` is an imperative, such as `pause for 1 h`.
///
/// `--yes` answers unless the prefix is empty, because an empty prefix may come from a variable that is not
/// set.
pub(crate) fn confirm(targets: &Targets, change: &str, names: &[String]) -> Result<(), Failure> {
    let is_answered = targets.yes && targets.names.under.as_ref().is_some_and(|prefix| !prefix.is_empty());
    if names.len() < 2 || is_answered {
        return Ok(());
    }
    let (first, others) = names.split_at(names.len().min(SHOWN));
    let more = if others.is_empty() { String::new() } else { format!(" and {} more", others.len()) };
    let change = format!("change {} semaphores, {}{more}: {change}", names.len(), quoted(first));
    if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        let how = if targets.yes { "an empty prefix needs a terminal" } else { "if you mean it, add --yes" };
        return Err(Failure::new(exit::USAGE, format!("would {change}; {how}")));
    }
    report::print_raw(&format!("permits: {change}? (y/n) "));
    report::flush();
    let mut answer = String::new();
    io::stdin().read_line(&mut answer).map_err(Failure::system)?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Failure::new(exit::NO_MATCH, "nothing was changed")),
    }
}

fn quoted(names: &[String]) -> String {
    names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")
}
