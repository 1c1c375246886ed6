//! The events and spans that `docs/observability.md` lists.

use permits_testkit::documents::{quoted, table};

const PAGE: &str = "observability.md";

/// An event: target, level, fields.
pub(crate) type EventRow = (String, String, Vec<String>);

pub(crate) fn events() -> Vec<EventRow> {
    let row = |cells: Vec<String>| (quoted(&cells[0]).remove(0), cells[1].clone(), quoted(&cells[2]));
    table(PAGE, "Events").into_iter().map(row).collect()
}

pub(crate) fn span_fields() -> Vec<String> {
    let rows = table(PAGE, "The span of an acquisition");
    let mut fields: Vec<String> = rows.iter().flat_map(|cells| quoted(&cells[0])).collect();
    fields.sort();
    fields
}
