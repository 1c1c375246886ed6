//! `permits revoke`: takes permits or places in line away.

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use permits::{AdminError, Change, Client, HolderInfo, Inspection, Limit, Semaphore};

use crate::administer::{after, make};
use crate::args::{Chosen, Common, Revoke};
use crate::each::{self, CONCURRENCY};
use crate::exit::{self, Failure};
use crate::status::{MAX_LISTED, usage};
use crate::{connect, names};

/// Revokes one holder or waiter, or all. An unknown holder is a failure, so that a script notices a misspelt
/// name.
pub(crate) async fn revoke(common: &Common, options: &Revoke) -> Result<u8, Failure> {
    let Revoke { targets, holder, reason, partial, all } = options;
    if targets.names.under.is_some() && !all {
        return Err(Failure::new(
            exit::USAGE,
            "--under revokes all holders and waiters: write --all, and no holder",
        ));
    }
    match (targets.names.chosen()?, holder) {
        (Chosen::One(name), Some(holder)) => {
            let client = connect::author(common, &targets.author).await?;
            let semaphore = client.semaphore(name, Limit::Stored)?;
            let found = if *partial { unique_match(&semaphore, holder).await? } else { Some(holder.clone()) };
            let revoke = |holder| Change::Revoke { holder, token: None, reason: reason.clone() };
            if let Some(found) = found
                && make(&semaphore, &revoke(found.clone())).await?
            {
                let revoked = |inspection: &Inspection| format!("{found} revoked, {}", usage(inspection));
                return Ok(exit::print_lines(&after(&semaphore, revoked).await?.unwrap_or_default()));
            }
            if !names::is_known_name(&client, name).await? {
                return Err(names::unknown_failure(&client, name).await);
            }
            let none = match partial {
                true => format!("{name}: no holder or waiter begins with {holder:?}"),
                false => format!("{name}: {holder:?} neither holds nor waits"),
            };
            Err(Failure::new(exit::NO_MATCH, none))
        }
        (Chosen::Under(_), Some(_)) => unreachable!("--under demands --all"),
        (_, None) => {
            let what = "revoke all holders and waiters";
            each::change(common, targets, what, false, async |client: &Client, name: String| {
                let semaphore = client.semaphore(&name, Limit::Stored)?;
                let Some(revoked) = all_revoked(&semaphore, reason).await? else { return Ok(None) };
                after(&semaphore, |inspection| format!("{revoked} revoked, {}", usage(inspection))).await
            })
            .await
        }
    }
}

/// The only holder or waiter with a name that starts with `beginning`, if there is any.
async fn unique_match(semaphore: &Semaphore, beginning: &str) -> Result<Option<String>, Failure> {
    let Inspection { name, holders, waiters, .. } = semaphore.inspect().await?;
    let names =
        holders.into_iter().map(|info| info.holder).chain(waiters.into_iter().map(|info| info.holder));
    let mut found: Vec<String> = names.filter(|name| name.starts_with(beginning)).collect();
    match (found.pop(), found.len()) {
        (found, 0) => Ok(found),
        (_, others) => {
            let message = format!(
                "{name}: {} holders and waiters begin with {beginning:?}: give more of the name",
                others + 1
            );
            Err(Failure::new(exit::USAGE, message))
        }
    }
}

/// Revokes all holders and waiters, and frees what cools. Returns their numbers as text, or `None` if there
/// were none.
///
/// Waiters come first, because revoking a holder grants a waiter. The number of rounds is fixed by the number
/// of holders and waiters at the start: later ones are not revoked.
async fn all_revoked(semaphore: &Semaphore, reason: &str) -> Result<Option<String>, AdminError> {
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

/// Revokes these holders and waiters, and frees the grants that cool, which have a token. Returns the number
/// of those found.
async fn revoke_each(
    semaphore: &Semaphore,
    found: impl Iterator<Item = (String, Option<u64>)>,
    reason: &str,
) -> Result<u64, AdminError> {
    let revoke = async |(holder, token): (String, Option<u64>)| {
        let change = Change::Revoke { holder, token, reason: reason.to_owned() };
        semaphore.change(change).await.map(|changed| u64::from(changed.found))
    };
    stream::iter(found)
        .map(revoke)
        .buffer_unordered(CONCURRENCY)
        .try_fold(0, async |sum, revoked| Ok(sum + revoked))
        .await
}
