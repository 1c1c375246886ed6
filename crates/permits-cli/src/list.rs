//! `permits list`: all semaphores, as a table or as JSON.

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use permits::{AdminError, Client, Inspection, Limit, StoreError};
use serde::Serialize;

use crate::args::{Common, List};
use crate::exit::{self, Failure};
use crate::status::{CountsJson, milliseconds};
use crate::table::{Row, Table};
use crate::{connect, report, status};

/// The most inspections in flight at once: enough to hide the round trips, and few enough that a server
/// serves other clients in between.
const CONCURRENCY: usize = 64;

/// Prints a line for each semaphore. An empty list is no failure.
pub(crate) async fn list(common: &Common, options: &List) -> Result<u8, Failure> {
    let client = connect::viewer(common, options.json).await?;
    // The table needs counts only; the ages in the JSON need the holders and waiters.
    let mut inspections = inspect_all(&client, if options.json { status::MAX_LISTED } else { 0 }).await?;
    if options.busy {
        inspections.retain(|inspection| inspection.held > 0 || inspection.waiting > 0);
    }
    if options.json {
        let all: Vec<ListJson<'_>> = inspections.iter().map(ListJson::from).collect();
        return exit::print_json(&all);
    }
    if inspections.is_empty() {
        // Standard output is for names.
        report::say(if options.busy { "no semaphore is in use" } else { "there are no semaphores" });
        return Ok(exit::SUCCESS);
    }
    Ok(exit::print(human(&inspections)))
}

/// Inspects each semaphore, with at most `listed` holders and waiters.
async fn inspect_all(client: &Client, listed: u32) -> Result<Vec<Inspection>, AdminError> {
    let names = client.list().await?;
    let inspect = async |name: String| client.semaphore(name, Limit::Stored)?.inspect_up_to(listed).await;
    let inspections = stream::iter(names).map(inspect).buffered(CONCURRENCY);
    let listed =
        inspections.try_filter_map(async |inspection| Ok(is_used(&inspection).then_some(inspection)));
    // A key of another program that looks like a semaphore must not hide the semaphores.
    let ours = listed.filter_map(async |listed| match listed {
        Err(AdminError::Store(error @ StoreError::WrongType { .. })) => {
            report::say(format_args!("not listed: {}", report::with_causes(&error)));
            None
        }
        listed => Some(listed),
    });
    ours.try_collect().await
}

/// False for a semaphore that has ended since it was listed.
fn is_used(inspection: &Inspection) -> bool {
    let Inspection { limit, held, waiting, paused, pinned, ref closed, .. } = *inspection;
    limit.is_some() || held > 0 || waiting > 0 || paused || pinned || closed.is_some()
}

/// An element of the array that `--json` prints. Scripts depend on it: fields may be added, never changed.
#[derive(Serialize)]
struct ListJson<'a> {
    name: &'a str,
    limit: Option<u32>,
    held: u64,
    waiting: u64,
    paused: bool,
    pinned: bool,
    limit_version: u64,
    recovering_ms: u64,
    oldest_holder_age_ms: Option<u64>,
    oldest_waiter_age_ms: Option<u64>,
    closed: Option<&'a str>,
    #[serde(flatten)]
    counts: CountsJson,
}

impl<'a> From<&'a Inspection> for ListJson<'a> {
    fn from(inspection: &'a Inspection) -> Self {
        let Inspection { ref name, limit, limit_version, held, waiting, paused, pinned, recovering, .. } =
            *inspection;
        Self {
            name,
            limit,
            held,
            waiting,
            paused,
            pinned,
            limit_version,
            recovering_ms: milliseconds(recovering),
            oldest_holder_age_ms: status::oldest_holder_age_ms(inspection),
            oldest_waiter_age_ms: status::oldest_waiter_age_ms(inspection),
            closed: inspection.closed.as_deref(),
            counts: inspection.into(),
        }
    }
}

fn human(inspections: &[Inspection]) -> String {
    let row = |inspection: &Inspection| {
        let recovering = status::is_recovering(inspection);
        let flags = [
            ("pinned", inspection.pinned),
            ("PAUSED", inspection.paused),
            ("CLOSED", inspection.closed.is_some()),
            ("recovering", recovering),
        ];
        let flags: Vec<&str> = flags.iter().filter(|(_, is_set)| *is_set).map(|(flag, _)| *flag).collect();
        let cells = [
            inspection.name.clone(),
            inspection.held.to_string(),
            inspection.limit.map_or_else(|| "-".to_owned(), |limit| limit.to_string()),
            inspection.waiting.to_string(),
        ];
        Row { cells, text: flags.join(", ") }
    };
    let rows = inspections.iter().map(row).collect();
    Table { head: ["NAME", "HELD", "LIMIT", "WAITING"], text: "", rows }.print()
}
