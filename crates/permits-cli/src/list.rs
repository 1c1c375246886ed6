//! `permits list`: all semaphores, as a table or as JSON.

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use permits::{AdminError, Client, Inspection, Limit};
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

/// A semaphore that is in use, or one whose keys cannot be read, with the reason.
pub(crate) type Listed = Result<Inspection, Unreadable>;

/// A semaphore whose keys belong to another program, are damaged or have another layout.
#[derive(Debug)]
pub(crate) struct Unreadable {
    pub(crate) name: String,
    pub(crate) reason: String,
}

/// Prints a line for each semaphore. An empty list is no failure.
pub(crate) async fn list(common: &Common, options: &List) -> Result<u8, Failure> {
    let client = connect::viewer(common, options.json).await?;
    let mut listed = inspect_all(&client, &options.under).await?;
    if options.busy {
        let is_busy = |inspection: &Inspection| inspection.held > 0 || inspection.waiting > 0;
        // One that cannot be read may be in use.
        listed.retain(|listed| listed.as_ref().map_or(true, is_busy));
    }
    if options.json {
        let all: Vec<ListJson> = listed.iter().map(ListJson::from).collect();
        return exit::print_json(&all);
    }
    if listed.is_empty() {
        // Standard output is for names.
        let none = if options.busy { "no semaphore is in use" } else { "there are no semaphores" };
        let prefix = Some(&options.under).filter(|prefix| !prefix.is_empty());
        let under = prefix.map(|prefix| format!(" that begin with {prefix:?}")).unwrap_or_default();
        report::say(format_args!("{none}{under}"));
        return Ok(exit::SUCCESS);
    }
    Ok(exit::print(human(&listed)))
}

/// Inspects each semaphore whose name begins with `prefix`. The list of holders shows which of them cool.
async fn inspect_all(client: &Client, prefix: &str) -> Result<Vec<Listed>, AdminError> {
    let inspect = |name: String| async move { client.semaphore(name, Limit::Stored)?.inspect().await };
    inspect_each(names::under(client, prefix).await?, inspect, |listed| listed).await
}

/// Inspects each semaphore of `names`, and makes a `T` of each that is in use or cannot be read. Fails with
/// an error that concerns the store as a whole.
pub(crate) async fn inspect_each<T, F: Future<Output = Result<Inspection, AdminError>>>(
    names: Vec<String>,
    inspect: impl Fn(String) -> F,
    make: impl Fn(Listed) -> T,
) -> Result<Vec<T>, AdminError> {
    let inspections = stream::iter(names).map(|name| {
        let inspected = inspect(name.clone());
        async move {
            match inspected.await {
                Ok(inspection) => Ok(is_used(&inspection).then_some(Ok(inspection))),
                Err(AdminError::Store(error)) if error.concerns_one_semaphore() => {
                    Ok(Some(Err(Unreadable { name, reason: report::with_causes(&error) })))
                }
                Err(error) => Err(error),
            }
        }
    });
    let listed = inspections.buffered(CONCURRENCY).try_filter_map(async |listed| Ok(listed));
    listed.map_ok(make).try_collect().await
}

/// False for a semaphore that the store does not know, or that has ended since it was listed.
pub(crate) fn is_used(inspection: &Inspection) -> bool {
    let Inspection { limit, held, waiting, paused, pinned, ref closed, .. } = *inspection;
    limit.is_some() || held > 0 || waiting > 0 || paused || pinned || closed.is_some()
}

/// An element of the array that `--json` prints. Scripts depend on it: fields may be added, never changed.
#[derive(Debug, Clone, Default, Serialize)]
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
    /// The units of those listed holders that have gone and whose units stay taken.
    pub(crate) cooling: u64,
    /// The reason for which the semaphore cannot be read. If there is one, all other fields have their
    /// defaults.
    pub(crate) unreadable: Option<String>,
    #[serde(flatten)]
    pub(crate) counts: CountsJson,
}

impl From<&Listed> for ListJson {
    fn from(listed: &Listed) -> Self {
        match listed {
            Ok(inspection) => inspection.into(),
            Err(Unreadable { name, reason }) => {
                Self { name: name.clone(), unreadable: Some(reason.clone()), ..Self::default() }
            }
        }
    }
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
            cooling: Cooling::of(inspection).units,
            unreadable: None,
            counts: inspection.into(),
        }
    }
}

fn human(listed: &[Listed]) -> String {
    let row = |listed: &Listed| {
        let inspection = match listed {
            Ok(inspection) => inspection,
            Err(Unreadable { name, reason }) => {
                let cells = [name, "-", "-", "-"].map(str::to_owned);
                return Row { cells, text: format!("UNREADABLE: {reason}").into() };
            }
        };
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
    let rows = listed.iter().map(row).collect();
    let head = ["NAME", "HELD", "LIMIT", "WAITING"];
    Table { head, essential: head.len(), text: "", rows }.print()
}
