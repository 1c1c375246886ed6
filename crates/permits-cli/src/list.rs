//! `permits list`: all semaphores, as a table or as JSON.

use permits::{AdminError, Client, Limit};

use crate::args::{Common, List};
use crate::exit::{self, Failure};
use crate::inspected::ListRow;
use crate::table::{Row, Table};
use crate::{connect, each, names, report, text};

/// Prints a line for each semaphore. An empty list is no failure.
pub(crate) async fn list(common: &Common, options: &List) -> Result<u8, Failure> {
    let client = connect::viewer(common, options.json).await?;
    let mut listed = inspect_all(&client, &options.under).await?;
    if options.busy {
        // A semaphore that cannot be read may be in use.
        listed.retain(|row| !row.is_idle() || row.unreadable.is_some());
    }
    listed.sort_by(|row, other| options.sort.compare((&row.name, Some(row)), (&other.name, Some(other))));
    if options.json {
        return exit::print_json(&listed);
    }
    if listed.is_empty() {
        // Standard output is for names.
        let none = if options.busy { "no semaphore is in use" } else { "there are no semaphores" };
        let prefix = Some(&options.under).filter(|prefix| !prefix.is_empty());
        let under = prefix.map(|prefix| format!(" that begin with {prefix:?}")).unwrap_or_default();
        report::say(format_args!("{none}{under}"));
        return Ok(exit::SUCCESS);
    }
    Ok(exit::print_lines(&human(&listed)))
}

/// Inspects each semaphore whose name begins with `prefix`. The list of holders shows which of them cool or
/// may be kept.
async fn inspect_all(client: &Client, prefix: &str) -> Result<Vec<ListRow>, AdminError> {
    let inspect = |name: String| async move { client.semaphore(name, Limit::Stored)?.inspect().await };
    each::inspect_listed(names::under(client, prefix).await?, inspect, |listed| ListRow::from(&listed)).await
}

fn human(listed: &[ListRow]) -> String {
    let row = |listed: &ListRow| {
        if let Some(reason) = &listed.unreadable {
            let cells = [listed.name.as_str(), "-", "-", "-"].map(str::to_owned);
            return Row { cells, text: format!("UNREADABLE: {reason}").into() };
        }
        let units = listed.units.text().unwrap_or_default();
        let flags = [
            (units.as_str(), !units.is_empty()),
            ("alert", listed.alert.is_set()),
            ("pinned", listed.pinned),
            ("PAUSED", listed.paused),
            ("CLOSED", listed.closed.is_some()),
            ("recovering", listed.is_recovering()),
        ];
        let flags: Vec<&str> = flags.iter().filter(|(_, is_set)| *is_set).map(|(flag, _)| *flag).collect();
        let cells = [
            listed.name.clone(),
            listed.in_use().to_string(),
            listed.limit.map_or_else(|| "-".to_owned(), |limit| limit.to_string()),
            listed.waiting.to_string(),
        ];
        Row { cells, text: flags.join(", ").into() }
    };
    let rows = listed.iter().map(row).collect();
    let head = ["NAME", "HELD", "LIMIT", "WAITING"];
    Table { head, essential: head.len(), text: "", rows }.print(text::columns())
}
