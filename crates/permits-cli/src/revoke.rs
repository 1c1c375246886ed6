//! `permits revoke`: takes permits or places in line away.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Instant;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use permits::{AdminError, Change, Client, HolderInfo, Inspection, Limit, Semaphore, WaiterInfo};

use crate::administer::{after, make, not_found};
use crate::args::{Chosen, Common, Revoke};
use crate::each::{self, CONCURRENCY};
use crate::exit::{self, Failure};
use crate::inspected::unlisted_waiters;
use crate::status::{MAX_LISTED, usage};
use crate::units::unlisted_units;
use crate::{connect, names, report};

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
            let hides_older = Cell::new(false);
            let code = each::change(common, targets, what, false, async |client: &Client, name: String| {
                let semaphore = client.semaphore(&name, Limit::Stored)?;
                let revoked = revoke_all(&semaphore, reason).await?;
                if revoked.hides_older {
                    hides_older.set(true);
                    report::say(format_args!(
                        "{name}: some from before may hold still, since more than {MAX_LISTED} hold, and newer \
                         ones come first in the list: pause it, revoke again, and resume it"
                    ));
                } else if revoked.holders + revoked.waiters == 0 {
                    return Ok(None);
                }
                after(&semaphore, |inspection| format!("{revoked} revoked, {}", usage(inspection))).await
            })
            .await?;
            Ok(if hides_older.get() { exit::NOT_NOW } else { code })
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
    // A name may hold a permit and have cooling grants, so a set.
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

/// The result of a revocation of all.
struct RevokedAll {
    holders: usize,
    waiters: usize,
    /// The lists, which end after 1,000 holders, had newer ones alone, and not all from before are revoked.
    hides_older: bool,
}

impl fmt::Display for RevokedAll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |count| if count == 1 { "" } else { "s" };
        let Self { holders, waiters, .. } = *self;
        write!(f, "{holders} holder{} and {waiters} waiter{}", plural(holders), plural(waiters))
    }
}

/// Revokes all holders and waiters, and frees what cools; of those that come meanwhile, as few as possible.
/// Waiters come first, because revoking a holder grants a waiter.
async fn revoke_all(semaphore: &Semaphore, reason: &str) -> Result<RevokedAll, AdminError> {
    let waiters = revoke_waiters(semaphore, reason).await?;
    let (holders, hides_older) = revoke_holders(semaphore, reason).await?;
    Ok(RevokedAll { holders, waiters, hides_older })
}

/// Revokes the waiters, until a list has no waiter from before. Old waiters are the first of their lanes.
/// Returns the number of revoked waiters.
async fn revoke_waiters(semaphore: &Semaphore, reason: &str) -> Result<usize, AdminError> {
    let began = Instant::now();
    let waiting = semaphore.inspect_up_to(0).await?.waiting;
    let (mut revoked, mut left, mut rounds) = (0, waiting, 0);
    while left > 0 {
        let since = began.elapsed();
        let is_older = |info: &WaiterInfo| info.age >= since;
        let mut listed = semaphore.inspect().await?.waiters;
        // Ages are wrong for some time after the server's clock was set back, so they do not decide alone.
        if rounds > waiting / u64::from(MAX_LISTED) {
            listed.retain(is_older);
        }
        if listed.is_empty() {
            break;
        }
        let listed = listed.into_iter().map(|info| (is_older(&info), info.holder, None));
        let found = revoke_each(semaphore, listed, reason).await?;
        left = left.saturating_sub(found.iter().filter(|is_older| **is_older).count() as u64);
        revoked += found.len();
        rounds += 1;
    }
    Ok(revoked)
}

/// Revokes the holders, until a list has no grant from before. A permit that counts for longer cools when it
/// is revoked, so a later round frees it. Its token stays the same, so it is counted once. Returns their
/// number, and true if lists may have hidden some.
async fn revoke_holders(semaphore: &Semaphore, reason: &str) -> Result<(usize, bool), AdminError> {
    let (mut start, mut revoked) = (None, BTreeMap::new());
    loop {
        let inspection = semaphore.inspect().await?;
        let is_cut = unlisted_units(&inspection) > 0;
        let mut listed = inspection.holders;
        let Some(now) = listed.iter().map(listed_at).max() else { return Ok((revoked.len(), false)) };
        let (start, held) = *start.get_or_insert((now, inspection.held));
        listed.retain(|info| info.token <= start);
        let grant = |info: HolderInfo| {
            ((info.token, u64::from(info.weight)), info.holder, info.cooling.then_some(info.token))
        };
        let found = revoke_each(semaphore, listed.into_iter().map(grant), reason).await?;
        if found.is_empty() {
            return Ok((revoked.len(), is_cut && revoked.values().sum::<u64>() < held));
        }
        revoked.extend(found);
    }
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
