//! `permits limit`, `pause`, `resume`, `close`, `open` and `delete`: an operator's changes.
//!
//! A call that finds its change already made succeeds, except a deletion. Each verb prints a line for each
//! semaphore, with its state after the change.

use permits::{AdminError, Client, Inspection, Semaphore};

use crate::args::{Changed, Chosen, Close, Common, Delete, Limit, LimitChange, Pause};
use crate::exit::{self, Failure};
use crate::status::{closed, usage};
use crate::text::paused;
use crate::{connect, each, names, report};

/// Sets and pins the limit, declares it, unpins it, or shows it.
pub(crate) async fn limit(common: &Common, options: Limit) -> Result<u8, Failure> {
    let Limit { limit, unpin, declare, changed } = options.settled()?;
    match limit {
        Some(limit) if declare => declare_limit(common, &changed, limit).await,
        Some(limit) => {
            change(common, &changed, "change the limit of", async |semaphore| {
                match limit {
                    LimitChange::To(limit) => drop(semaphore.set_limit(limit).await?),
                    LimitChange::By(by) => drop(semaphore.adjust_limit(by).await?),
                }
                after(&semaphore, limit_of).await
            })
            .await
        }
        None if unpin => {
            change(common, &changed, "unpin the limits of", async |semaphore| {
                semaphore.unpin().await?;
                after(&semaphore, limit_of).await
            })
            .await
        }
        None => show_limit(common, &changed).await,
    }
}

/// Declares the limit as a program does. No warning, since to make a new name known is its purpose.
async fn declare_limit(common: &Common, changed: &Changed, limit: LimitChange) -> Result<u8, Failure> {
    let LimitChange::To(limit) = limit else {
        let message = "--declare takes a limit without a sign: a difference is for a pinned limit";
        return Err(Failure::new(exit::USAGE, message));
    };
    each::change(common, &changed.targets, "declare the limits of", false, async |client: &Client, name| {
        let semaphore = client.semaphore(&name, limit)?;
        if semaphore.declare().await? != limit {
            report::say(format_args!("{name}: the limit is pinned: {limit} does not count until --unpin"));
        }
        after(&semaphore, limit_of).await
    })
    .await
}

/// Prints the limits.
async fn show_limit(common: &Common, changed: &Changed) -> Result<u8, Failure> {
    let chosen = changed.targets.names.chosen()?;
    let client = connect::operator(common).await?;
    let inspections = each::inspect(&client, chosen, 0).await?;
    let lines: String = inspections.iter().map(|inspection| line(inspection, limit_of)).collect();
    let code = exit::print_lines(&lines);
    match chosen {
        Chosen::One(name) if code == exit::SUCCESS && !names::is_used(&inspections[0]) => {
            Err(names::unknown_failure(&client, name).await)
        }
        _ => Ok(code),
    }
}

fn limit_of(Inspection { limit, limit_version, pinned, .. }: &Inspection) -> String {
    let limit = limit.map_or_else(|| "no limit is set".to_owned(), |limit| format!("limit {limit}"));
    let pinned = if *pinned { "pinned" } else { "not pinned" };
    format!("{limit}, {pinned} (version {limit_version})")
}

/// Stops granting. A pause that ends later stays, so its end is shown as it is.
pub(crate) async fn pause(common: &Common, options: &Pause) -> Result<u8, Failure> {
    let Pause { changed, time, reason } = options;
    change(common, changed, "pause", async |semaphore| {
        match time {
            Some(time) => semaphore.pause_for(*time, reason).await?,
            None => semaphore.pause(reason).await?,
        }
        after(&semaphore, |inspection| {
            let paused = paused(inspection.pause_remaining, inspection.pause_reason.as_deref());
            format!("{paused}, {}", usage(inspection))
        })
        .await
    })
    .await
}

/// Grants again.
pub(crate) async fn resume(common: &Common, changed: &Changed) -> Result<u8, Failure> {
    change(common, changed, "resume", async |semaphore| {
        semaphore.resume().await?;
        after(&semaphore, |inspection| format!("resumed, {}", usage(inspection))).await
    })
    .await
}

/// Sends waiters and new requests away.
pub(crate) async fn close(common: &Common, options: &Close) -> Result<u8, Failure> {
    change(common, &options.changed, "close", async |semaphore| {
        semaphore.close_line(&options.reason).await?;
        after(&semaphore, |inspection| {
            let closed = closed(inspection.closed.as_deref().unwrap_or_default());
            format!("{}, {}", closed.replacen("CLOSED", "closed", 1), usage(inspection))
        })
        .await
    })
    .await
}

/// Lets requests into the line again.
pub(crate) async fn open_line(common: &Common, changed: &Changed) -> Result<u8, Failure> {
    change(common, changed, "open", async |semaphore| {
        semaphore.open_line().await?;
        after(&semaphore, |inspection| format!("open, {}", usage(inspection))).await
    })
    .await
}

/// Forgets a semaphore.
pub(crate) async fn delete(common: &Common, Delete { name, force }: &Delete) -> Result<u8, Failure> {
    let client = connect::operator(common).await?;
    let semaphore = client.semaphore(name, permits::Limit::Stored)?;
    let deleted = if *force { semaphore.delete_unreadable().await? } else { semaphore.delete().await? };
    if deleted {
        Ok(exit::print_lines(&format!("{name}: deleted\n")))
    } else {
        Err(names::unknown_failure(&client, name).await)
    }
}

/// Revokes a holder's permit or a waiter's request, or frees what cools under that name.
pub(crate) async fn revoke_one(
    semaphore: &Semaphore,
    holder: &str,
    reason: &str,
) -> Result<bool, AdminError> {
    if semaphore.revoke(holder, reason).await? {
        return Ok(true);
    }
    let mut freed = false;
    for info in semaphore.inspect().await?.holders {
        if info.cooling && info.holder == holder {
            freed |= semaphore.revoke_cooling(holder, info.token).await?;
        }
    }
    Ok(freed)
}

/// Makes a change of each chosen semaphore, with a warning for a name that the store did not know.
async fn change(
    common: &Common,
    changed: &Changed,
    what: &str,
    make: impl AsyncFn(Semaphore) -> Result<Option<String>, AdminError>,
) -> Result<u8, Failure> {
    each::change(common, &changed.targets, what, !changed.new, async |client: &Client, name: String| {
        make(client.semaphore(name, permits::Limit::Stored)?).await
    })
    .await
}

/// The line of the semaphore as it is now.
pub(crate) async fn after(
    semaphore: &Semaphore,
    describe: impl Fn(&Inspection) -> String,
) -> Result<Option<String>, AdminError> {
    Ok(Some(line(&semaphore.inspect().await?, describe)))
}

fn line(inspection: &Inspection, describe: impl Fn(&Inspection) -> String) -> String {
    format!("{}: {}\n", inspection.name, describe(inspection))
}
