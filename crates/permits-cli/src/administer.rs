//! `permits limit`, `pause`, `resume`, `close`, `open`, `revoke` and `delete`: an operator's changes.
//!
//! A call that finds its change already made succeeds, except a revocation and a deletion. Each verb prints one line with
//! the state of the semaphore after the change.

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use permits::{AdminError, HolderInfo, Inspection, Semaphore};

use crate::args::{Author, Change, Close, Common, Limit, LimitChange, NameArg, Revoke};
use crate::exit::{self, Failure};
use crate::status::{MAX_LISTED, usage};
use crate::{connect, report};

/// The most revocations in flight at once.
const CONCURRENCY: usize = 64;

/// Sets and pins the limit, declares it, unpins it, or shows it.
pub(crate) async fn limit(common: &Common, options: &Limit) -> Result<u8, Failure> {
    let name = &options.name;
    let semaphore = match options.limit {
        Some(LimitChange::By(_)) if options.declare => {
            let message = "--declare takes a limit without a sign: a difference is for a pinned limit";
            return Err(Failure::new(exit::USAGE, message));
        }
        Some(LimitChange::To(limit)) if options.declare => {
            let semaphore = connect::author(common, &options.author).await?.semaphore(name, limit)?;
            if semaphore.declare().await? != limit {
                report::say(format_args!(
                    "{name}: the limit is pinned: {limit} does not count until --unpin"
                ));
            }
            semaphore
        }
        _ => open(common, &options.author, name).await?,
    };
    match options.limit {
        _ if options.declare => {}
        Some(LimitChange::To(limit)) => drop(semaphore.set_limit(limit).await?),
        Some(LimitChange::By(by)) => drop(semaphore.adjust_limit(by).await?),
        None if options.unpin => drop(semaphore.unpin().await?),
        None => {}
    }
    print_result(&semaphore, |Inspection { limit, limit_version, pinned, .. }| {
        let limit = limit.map_or_else(|| "no limit is set".to_owned(), |limit| format!("limit {limit}"));
        let pinned = if *pinned { "pinned" } else { "not pinned" };
        format!("{limit}, {pinned} (version {limit_version})")
    })
    .await
}

/// Stops granting.
pub(crate) async fn pause(common: &Common, options: &Change) -> Result<u8, Failure> {
    let semaphore = open(common, &options.author, &options.name).await?;
    semaphore.pause().await?;
    print_result(&semaphore, |inspection| format!("paused, {}", usage(inspection))).await
}

/// Grants again.
pub(crate) async fn resume(common: &Common, options: &Change) -> Result<u8, Failure> {
    let semaphore = open(common, &options.author, &options.name).await?;
    semaphore.resume().await?;
    print_result(&semaphore, |inspection| format!("resumed, {}", usage(inspection))).await
}

/// Sends waiters and new requests away.
pub(crate) async fn close(common: &Common, options: &Close) -> Result<u8, Failure> {
    let semaphore = open(common, &options.author, &options.name).await?;
    semaphore.close_line(&options.reason).await?;
    print_result(&semaphore, |inspection| format!("closed, {}", usage(inspection))).await
}

/// Lets requests into the line again.
pub(crate) async fn open_line(common: &Common, options: &Change) -> Result<u8, Failure> {
    let semaphore = open(common, &options.author, &options.name).await?;
    semaphore.open_line().await?;
    print_result(&semaphore, |inspection| format!("open, {}", usage(inspection))).await
}

/// Forgets a semaphore. An unknown one is a failure, so that a script notices a misspelt name.
pub(crate) async fn delete(common: &Common, options: &NameArg) -> Result<u8, Failure> {
    let name = &options.name;
    let semaphore = connect::operator(common).await?.semaphore(name, permits::Limit::Stored)?;
    if semaphore.delete().await? {
        Ok(exit::print(format!("{name}: deleted\n")))
    } else {
        Err(Failure::new(exit::NO_MATCH, format!("{name}: there is no such semaphore")))
    }
}

/// Takes permits or places in line away. An unknown holder is a failure, so that a script notices a misspelt name.
pub(crate) async fn revoke(common: &Common, options: &Revoke) -> Result<u8, Failure> {
    let Revoke { name, holder, reason, partial, .. } = options;
    let semaphore = open(common, &options.author, name).await?;
    let revoked = match holder {
        None => all_revoked(&semaphore, reason).await?,
        Some(beginning) if *partial => {
            let holder = unique_match(&semaphore, beginning).await?;
            revoke_one(&semaphore, &holder, reason).await?.then_some(holder)
        }
        Some(holder) => revoke_one(&semaphore, holder, reason).await?.then(|| holder.clone()),
    };
    let Some(revoked) = revoked else {
        let none = match holder {
            Some(holder) => format!("{name}: {holder:?} neither holds nor waits"),
            None => format!("{name}: there is no holder and no waiter"),
        };
        return Err(Failure::new(exit::NO_MATCH, none));
    };
    print_result(&semaphore, |inspection| format!("{revoked} revoked, {}", usage(inspection))).await
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

/// The only holder or waiter with a name that starts with `beginning`.
async fn unique_match(semaphore: &Semaphore, beginning: &str) -> Result<String, Failure> {
    let Inspection { name, holders, waiters, .. } = semaphore.inspect().await?;
    let names =
        holders.into_iter().map(|info| info.holder).chain(waiters.into_iter().map(|info| info.holder));
    let mut found: Vec<String> = names.filter(|name| name.starts_with(beginning)).collect();
    match (found.pop(), found.len()) {
        (Some(holder), 0) => Ok(holder),
        (None, _) => {
            let message = format!("{name}: no holder or waiter begins with {beginning:?}");
            Err(Failure::new(exit::NO_MATCH, message))
        }
        (Some(_), others) => {
            let message = format!(
                "{name}: {} holders and waiters begin with {beginning:?}: give more of the name",
                others + 1
            );
            Err(Failure::new(exit::USAGE, message))
        }
    }
}

/// Revokes all holders and waiters, and frees what cools. Returns their numbers as text, or `None` if there were none.
///
/// Waiters come first, because revoking a holder grants a waiter. The number of rounds is fixed by the number
/// of holders and waiters at the start: later ones are not revoked.
async fn all_revoked(semaphore: &Semaphore, reason: &str) -> Result<Option<String>, Failure> {
    let Inspection { held, waiting, .. } = semaphore.inspect_up_to(0).await?;
    let (mut holders, mut waiters) = (0, 0);
    for _ in 0..=waiting / u64::from(MAX_LISTED) {
        let listed = semaphore.inspect().await?.waiters;
        waiters += revoke_each(semaphore, listed.into_iter().map(|info| (info.holder, None)), reason).await?;
    }
    for _ in 0..=held / u64::from(MAX_LISTED) {
        let listed = semaphore.inspect().await?.holders;
        let cooling = |info: HolderInfo| (info.holder, info.cooling.then_some(info.token));
        holders += revoke_each(semaphore, listed.into_iter().map(cooling), reason).await?;
    }
    let count = |count: u64, noun: &str| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
    let revoked = format!("{} and {}", count(holders, "holder"), count(waiters, "waiter"));
    Ok((holders + waiters > 0).then_some(revoked))
}

/// Revokes these holders and waiters, and frees the grants that cool, which have a token. Returns the number of those found.
async fn revoke_each(
    semaphore: &Semaphore,
    found: impl Iterator<Item = (String, Option<u64>)>,
    reason: &str,
) -> Result<u64, AdminError> {
    let revoke = async |(name, cooling): (String, Option<u64>)| match cooling {
        Some(token) => semaphore.revoke_cooling(&name, token).await.map(u64::from),
        None => semaphore.revoke(&name, reason).await.map(u64::from),
    };
    stream::iter(found)
        .map(revoke)
        .buffer_unordered(CONCURRENCY)
        .try_fold(0, async |sum, revoked| Ok(sum + revoked))
        .await
}

async fn open(common: &Common, author: &Author, name: &str) -> Result<Semaphore, Failure> {
    Ok(connect::author(common, author).await?.semaphore(name, permits::Limit::Stored)?)
}

/// Prints `describe` of the semaphore as it is now.
async fn print_result(
    semaphore: &Semaphore,
    describe: impl Fn(&Inspection) -> String,
) -> Result<u8, Failure> {
    let inspection = semaphore.inspect_up_to(0).await?;
    Ok(exit::print(format!("{}: {}\n", inspection.name, describe(&inspection))))
}
