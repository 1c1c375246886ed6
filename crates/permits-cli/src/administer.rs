//! `permits limit`, `alert`, `lane`, `pause`, `resume`, `close`, `open` and `delete`: an operator's changes.
//!
//! A call that finds its change already made succeeds, except a deletion. Each verb prints a line for each
//! semaphore, with its state after the change.

use permits::{AdminError, Change, Client, Inspection, LaneInfo, Semaphore};

use crate::args::{Changed, Chosen, Common, Delete, SetAlert, SetLane, SetLimit};
use crate::exit::{self, Failure};
use crate::status::{MAX_LISTED, alerts, closed, usage};
use crate::text::paused;
use crate::units::unlisted_units;
use crate::{connect, each, names, report};

/// Makes a change. A revocation without a token also frees what cools under that name, of the holders that an
/// inspection lists. Returns false if there was nothing to revoke or to delete.
pub(crate) async fn make(semaphore: &Semaphore, change: &Change) -> Result<bool, AdminError> {
    let mut found = semaphore.change(change.clone()).await?.found;
    if let Change::Revoke { holder, token: None, reason } = change {
        // The list is taken after the revocation, since the permit itself may cool now.
        let listed = semaphore.inspect().await?.holders;
        for info in listed.into_iter().filter(|info| info.cooling && info.holder == *holder) {
            let (token, reason) = (Some(info.token), reason.clone());
            found |= semaphore.change(Change::Revoke { holder: info.holder, token, reason }).await?.found;
        }
    }
    Ok(found)
}

/// The reason why a revocation by name found nothing.
pub(crate) async fn not_found(semaphore: &Semaphore, holder: &str) -> Result<String, AdminError> {
    let inspection = semaphore.inspect().await?;
    let reason = format!("{holder:?} neither holds nor waits");
    if inspection.cooling == 0 || unlisted_units(&inspection) == 0 {
        return Ok(reason);
    }
    Ok(format!(
        "{reason}, and no grant of it cools among the first {MAX_LISTED} holders: a later one is freed by its \
         token, with a library or over HTTP, or with permits revoke --all"
    ))
}

/// Makes a change of each chosen semaphore, with a warning for a name that the store did not know.
pub(crate) async fn change(common: &Common, changed: &Changed, change: Change) -> Result<u8, Failure> {
    let (what, warns) = (change.to_string(), !changed.new);
    each::change(common, &changed.targets, &what, warns, async |client: &Client, name: String| {
        let semaphore = client.semaphore(&name, permits::Limit::Stored)?;
        make(&semaphore, &change).await?;
        after(&semaphore, |inspection| state(&change, inspection)).await
    })
    .await
}

/// The state that a change is about. A pause that ends later than the change asks for stays, so its end is
/// shown as it is.
fn state(change: &Change, inspection: &Inspection) -> String {
    let state = match change {
        Change::Pause { time, .. } => {
            let state = paused(inspection.pause_remaining, inspection.pause_reason.as_deref());
            match (time, inspection.pause_remaining) {
                (Some(time), remaining) if remaining.is_none_or(|left| left > *time) => {
                    format!("{state}, by an earlier pause that ends later")
                }
                _ => state.replacen("for another ", "for ", 1),
            }
        }
        Change::Resume => "resumed".to_owned(),
        Change::CloseLine { .. } => {
            closed(inspection.closed.as_deref().unwrap_or_default()).replacen("CLOSED", "closed", 1)
        }
        Change::OpenLine => "open".to_owned(),
        Change::SetAlert(_) => return alert_of(inspection),
        Change::SetLane { lane, .. } | Change::UnpinLane { lane } => return lane_of(lane, inspection),
        _ => return limit_of(inspection),
    };
    format!("{state}, {}", usage(inspection))
}

/// The entries to list of a semaphore, so that one with a pinned lane alone is seen to be used.
const SEEN: u32 = 1;

/// Sets and pins the limit, declares it, unpins it, or shows it.
pub(crate) async fn limit(common: &Common, options: SetLimit) -> Result<u8, Failure> {
    let SetLimit { limit, declare, changed, .. } = options.settled()?;
    match limit {
        Some(limit) if declare => declare_limit(common, &changed, limit).await,
        Some(limit) => change(common, &changed, limit).await,
        None => show(common, &changed, SEEN, limit_of).await,
    }
}

/// Declares the limit as a program does. No warning, since to make a new name known is its purpose.
async fn declare_limit(common: &Common, changed: &Changed, limit: Change) -> Result<u8, Failure> {
    let Change::SetLimit { limit, .. } = limit else {
        let message = "--declare takes a limit without a sign: a difference is for a pinned limit";
        return Err(Failure::new(exit::USAGE, message));
    };
    let what = format!("declare the limit {limit}");
    each::change(common, &changed.targets, &what, false, async |client: &Client, name| {
        let semaphore = client.semaphore(&name, limit)?;
        if semaphore.declare().await? != limit {
            report::say(format_args!("{name}: the limit is pinned: {limit} does not count until --unpin"));
        }
        after(&semaphore, limit_of).await
    })
    .await
}

/// Sets the thresholds, removes them, or shows them.
pub(crate) async fn alert(common: &Common, options: SetAlert) -> Result<u8, Failure> {
    let SetAlert { changed, wait, waiting, off } = options;
    let alert = permits::Alert::new(wait, waiting)
        .map_err(|invalid| Failure::new(exit::USAGE, invalid.to_string()))?;
    match off || alert.is_set() {
        true => change(common, &changed, Change::SetAlert(alert)).await,
        false => show(common, &changed, SEEN, alert_of).await,
    }
}

/// Sets and pins the bounds of a lane, unpins them, or shows them.
pub(crate) async fn lane(common: &Common, options: SetLane) -> Result<u8, Failure> {
    let (changed, lane, lane_change) = options.settled()?;
    match lane_change {
        Some(lane_change) => change(common, &changed, lane_change).await,
        None => show(common, &changed, MAX_LISTED, |inspection| lane_of(&lane, inspection)).await,
    }
}

/// Prints a part of the state, of which so much is listed.
async fn show(
    common: &Common,
    changed: &Changed,
    max: u32,
    part: impl Fn(&Inspection) -> String,
) -> Result<u8, Failure> {
    let chosen = changed.targets.names.chosen()?;
    let client = connect::operator(common).await?;
    let inspections = each::inspect(&client, chosen, max).await?;
    let lines: String = inspections.iter().map(|inspection| line(inspection, &part)).collect();
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

fn alert_of(inspection: &Inspection) -> String {
    format!("{}, {}", alerts(inspection.alert), usage(inspection))
}

fn lane_of(lane: &str, inspection: &Inspection) -> String {
    let known = inspection.lanes.iter().find(|info| info.lane.as_deref() == Some(lane));
    let Some(LaneInfo { waiting, held, limit, floor, pinned, .. }) = known else {
        return format!("lane {lane}: no limit, no floor, not pinned");
    };
    let limit = limit.map_or_else(|| "no limit".to_owned(), |limit| format!("limit {limit}"));
    let floor = if *floor > 0 { format!("floor {floor}") } else { "no floor".to_owned() };
    let pinned = if *pinned { "pinned" } else { "not pinned" };
    format!("lane {lane}: {limit}, {floor}, {pinned}, {held} held, {waiting} waiting")
}

/// Forgets a semaphore.
pub(crate) async fn delete(common: &Common, Delete { name, force }: Delete) -> Result<u8, Failure> {
    let client = connect::operator(common).await?;
    let semaphore = client.semaphore(&name, permits::Limit::Stored)?;
    match make(&semaphore, &Change::Delete { unreadable: force }).await? {
        true => Ok(exit::print_lines(&format!("{name}: deleted\n"))),
        false => Err(names::unknown_failure(&client, &name).await),
    }
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
