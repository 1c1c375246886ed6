//! The state of a semaphore in a line of any width: paused, closed, recovering and pinned are visible in
//! each.

use std::time::Duration;

use crate::inspected::ListRow;
use crate::status::closed;
use crate::table::Text;
use crate::text::{duration, paused};

/// The state, the most important part first: as a phrase, as words, and as letters, which `?` explains. The
/// rest is the reason of a closed line.
pub(super) fn state(row: &ListRow) -> Text {
    let is_recovering = row.is_recovering();
    let recovering = format!("recovering for {}", duration(Duration::from_millis(row.recovering_ms)));
    let paused = paused(row.pause_remaining_ms.map(Duration::from_millis), row.pause_reason.as_deref());
    let paused = paused.replacen("paused", "PAUSED", 1);
    let no_limit = if row.is_idle() { "not in use, no limit" } else { "no limit" };
    let units = row.units.text();
    let units = units.as_deref().unwrap_or_default();
    let parts = [
        (row.paused, paused.as_str(), "PAUSED", "P"),
        (is_recovering, recovering.as_str(), "recovering", "R"),
        (row.pinned, "limit pinned", "pinned", "L"),
        (!units.is_empty(), units, units, ""),
        (row.limit.is_none(), no_limit, "", ""),
        // Last, because its reason follows.
        (row.closed.is_some(), "CLOSED", "CLOSED", "C"),
    ];
    let present = || parts.iter().filter(|(is_set, ..)| *is_set);
    let words: Vec<&str> = present().map(|part| part.2).filter(|word| !word.is_empty()).collect();
    let phrase = present().map(|part| part.1).collect::<Vec<_>>().join(", ");
    let letters = present().map(|part| part.3).collect();
    let rest = row.closed.as_deref().map(|reason| closed(reason).replacen("CLOSED", "", 1));
    Text { forms: vec![phrase, words.join(" "), letters], rest: rest.unwrap_or_default() }
}
