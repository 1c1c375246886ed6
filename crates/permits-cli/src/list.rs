//! `permits list`: all semaphores, as a table or as JSON.

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use permits::{AdminError, Client, Inspection, Limit, StoreError};
use serde::Serialize;

use crate::args::{Common, List};
use crate::cooling::Cooling;
use crate::exit::{self, Failure};
use crate::status::{CountsJson, milliseconds};
use crate::table::{Row, Table};
use crate::{connect, names, report, status};

/// The most inspections in flight at once: enough to hide the round trips, and few enough that a server
/// serves other clients in between.
pub(crate) const CONCURRENCY: usize = 64;

/// Prints a line for each semaphore. An empty list is no failure.
pub(crate) async fn list(common: &Common, options: &List) -> Result<u8, Failure> {
    let client = connect::viewer(common, options.json).await?;
    let mut inspections = inspect_all(&client, &options.under).await?;
    if options.busy {
        inspections.retain(|inspection| inspection.held > 0 || inspection.waiting > 0);
    }
    if options.json {
        let all: Vec<ListJson> = inspections.iter().map(ListJson::from).collect();
        return exit::print_json(&all);
    }
    if inspections.is_empty() {
        // Standard output is for names.
        let none = if options.busy { "no semaphore is in use" } else { "there are no semaphores" };
        let prefix = Some(&options.under).filter(|prefix| !prefix.is_empty());
        let under = prefix.map(|prefix| format!(" that begin with {prefix:?}")).unwrap_or_default();
        report::say(format_args!("{none}{under}"));
        return Ok(exit::SUCCESS);
    }
    Ok(exit::print(human(&inspections)))
}

/// Inspects each semaphore whose name begins with `prefix`. The list of holders shows which of them cool.
async fn inspect_all(client: &Client, prefix: &str) -> Result<Vec<Inspection>, AdminError> {
    let inspect = |name: String| async move { client.semaphore(name, Limit::Stored)?.inspect().await };
    inspect_each(names::under(client, prefix).await?, inspect, |inspection| inspection, report_foreign).await
}

/// Inspects each semaphore of `names`, and makes a `T` of each that is used. `foreign` gets the errors of keys that belong
/// to another program.
pub(crate) async fn inspect_each<T, F: Future<Output = Result<Inspection, AdminError>>>(
    names: Vec<String>,
    inspect: impl Fn(String) -> F,
    make: impl Fn(Inspection) -> T,
    foreign: impl Fn(&StoreError),
) -> Result<Vec<T>, AdminError> {
    let inspections = stream::iter(names).map(inspect).buffered(CONCURRENCY);
    let listed = inspections
        .try_filter_map(async |inspection| Ok(is_used(&inspection).then_some(inspection)))
        .map_ok(make);
    // A key of another program that looks like a semaphore must not hide the semaphores.
    let ours = listed.filter_map(async |listed| match listed {
        Err(AdminError::Store(error @ StoreError::WrongType { .. })) => {
            foreign(&error);
            None
        }
        listed => Some(listed),
    });
    ours.try_collect().await
}

/// Reports a key that looks like one of a semaphore.
pub(crate) fn report_foreign(error: &StoreError) {
    report::say(format_args!("not listed: {}", report::with_causes(error)));
}

/// False for a semaphore that the store does not know, or that has ended since it was listed.
pub(crate) fn is_used(inspection: &Inspection) -> bool {
    let Inspection { limit, held, waiting, paused, pinned, ref closed, .. } = *inspection;
    limit.is_some() || held > 0 || waiting > 0 || paused || pinned || closed.is_some()
}

/// An element of the array that `--json` prints. Scripts depend on it: fields may be added, never changed.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ListJson {
    pub(crate) name: String,
    pub(crate) limit: Option<u32>,
    pub(crate) held: u64,
    pub(crate) waiting: u64,
    pub(crate) paused: bool,
    pub(crate) pinned: bool,
    pub(crate) limit_version: u64,
    pub(crate) recovering_ms: u64,
    pub(crate) oldest_holder_age_ms: Option<u64>,
    pub(crate) oldest_waiter_age_ms: Option<u64>,
    pub(crate) closed: Option<String>,
    #[serde(flatten)]
    pub(crate) counts: CountsJson,
}

impl From<&Inspection> for ListJson {
    fn from(inspection: &Inspection) -> Self {
        let Inspection { ref name, limit, limit_version, held, waiting, paused, pinned, recovering, .. } =
            *inspection;
        Self {
            name: name.clone(),
            limit,
            held,
            waiting,
            paused,
            pinned,
            limit_version,
            recovering_ms: milliseconds(recovering),
            oldest_holder_age_ms: status::oldest_holder_age_ms(inspection),
            oldest_waiter_age_ms: status::oldest_waiter_age_ms(inspection),
            closed: inspection.closed.clone(),
            counts: inspection.into(),
        }
    }
}

fn human(inspections: &[Inspection]) -> String {
    let row = |inspection: &Inspection| {
        let recovering = status::is_recovering(inspection);
        let cooling = Cooling::of(inspection);
        let cools = cooling.text().unwrap_or_default();
        let flags = [
            (cools.as_str(), !cools.is_empty()),
            ("pinned", inspection.pinned),
            ("PAUSED", inspection.paused),
            ("CLOSED", inspection.closed.is_some()),
            ("recovering", recovering),
        ];
        let flags: Vec<&str> = flags.iter().filter(|(_, is_set)| *is_set).map(|(flag, _)| *flag).collect();
        let cells = [
            inspection.name.clone(),
            cooling.in_use(inspection.held).to_string(),
            inspection.limit.map_or_else(|| "-".to_owned(), |limit| limit.to_string()),
            inspection.waiting.to_string(),
        ];
        Row { cells, text: flags.join(", ").into() }
    };
    let rows = inspections.iter().map(row).collect();
    let head = ["NAME", "HELD", "LIMIT", "WAITING"];
    Table { head, essential: head.len(), text: "", rows }.print()
}
