//! `permits list`: all semaphores, as a table or as JSON.

use permits::{AdminError, Client, Inspection, Limit};
use serde::Serialize;

use crate::args::{Common, List};
use crate::clock::milliseconds;
use crate::cooling::Cooling;
use crate::detail::Totals;
use crate::each::{Listed, Unreadable};
use crate::exit::{self, Failure};
use crate::table::{Row, Table};
use crate::{connect, each, names, report, status};

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
    each::inspect_listed(names::under(client, prefix).await?, inspect, |listed| listed).await
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
    pub(crate) totals: Totals,
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
            totals: inspection.into(),
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
