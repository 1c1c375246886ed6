//! `permits revoke`: takes permits or places in line away.

use std::collections::BTreeSet;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use permits::{AdminError, Change, Client, HolderInfo, Inspection, Limit, Semaphore};

use crate::administer::{after, make, not_found};
use crate::args::{Chosen, Common, Revoke};
use crate::each::{self, CONCURRENCY};
use crate::exit::{self, Failure};
use crate::inspected::unlisted_waiters;
use crate::status::{MAX_LISTED, usage};
use crate::units::unlisted_units;
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
                false => format!("{name}: {}", not_found(&semaphore, holder).await?),
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
    let inspection = semaphore.inspect().await?;
    if unlisted_units(&inspection) > 0 || unlisted_waiters(&inspection) > 0 {
        let message = format!(
            "{}: --partial searches the first {MAX_LISTED} holders and waiters, and there are more: give the \
             whole name",
            inspection.name
        );
        return Err(Failure::new(exit::USAGE, message));
    }
    let Inspection { name, holders, waiters, .. } = inspection;
    let names =
        holders.into_iter().map(|info| info.holder).chain(waiters.into_iter().map(|info| info.holder));
    // One name may hold, and have grants that cool.
    let mut found: BTreeSet<String> = names.filter(|name| name.starts_with(beginning)).collect();
    match (found.pop_last(), found.len()) {
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
/// Waiters come first, because revoking a holder grants a waiter. The rounds over them are as many as their
/// number at the start demands, and a grant after the first list of holders stays: later ones are not
/// revoked. A permit that counts for longer cools when it is revoked, so a later round frees it. Its token
/// stays the same, so it is counted once.
async fn all_revoked(semaphore: &Semaphore, reason: &str) -> Result<Option<String>, AdminError> {
    let waiting = semaphore.inspect_up_to(0).await?.waiting;
    let (mut waiters, mut tokens) = (0, BTreeSet::new());
    for _ in 0..=waiting / u64::from(MAX_LISTED) {
        let listed = semaphore.inspect().await?.waiters.into_iter();
        waiters += revoke_each(semaphore, listed.map(|info| ((), info.holder, None)), reason).await?.len();
    }
    let mut start = None;
    loop {
        let mut listed = semaphore.inspect().await?.holders;
        let Some(now) = listed.iter().map(listed_at).max() else { break };
        let start = *start.get_or_insert(now);
        listed.retain(|info| info.token <= start);
        let grant = |info: HolderInfo| (info.token, info.holder, info.cooling.then_some(info.token));
        let revoked = revoke_each(semaphore, listed.into_iter().map(grant), reason).await?;
        if revoked.is_empty() {
            break;
        }
        tokens.extend(revoked);
    }
    let count = |count: usize, noun: &str| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
    let revoked = format!("{} and {}", count(tokens.len(), "holder"), count(waiters, "waiter"));
    Ok((tokens.len() + waiters > 0).then_some(revoked))
}

/// The time at which the store has listed a holder, in the microseconds of its token.
fn listed_at(info: &HolderInfo) -> u64 {
    info.token.saturating_add(u64::try_from(info.age.as_micros()).unwrap_or(u64::MAX))
}

/// Revokes these holders and waiters, and frees the grants that cool, which have a token. Returns the first
/// parts of those found.
async fn revoke_each<T>(
    semaphore: &Semaphore,
    targets: impl Iterator<Item = (T, String, Option<u64>)>,
    reason: &str,
) -> Result<Vec<T>, AdminError> {
    let revoke = async |(target, holder, token): (T, String, Option<u64>)| {
        let change = Change::Revoke { holder, token, reason: reason.to_owned() };
        semaphore.change(change).await.map(|changed| changed.found.then_some(target))
    };
    let revoked = stream::iter(targets).map(revoke).buffer_unordered(CONCURRENCY);
    revoked.try_filter_map(async |revoked| Ok(revoked)).try_collect().await
}
