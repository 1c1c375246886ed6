//! The history of a cell as a file, in the format of `lab/judge/operations.md`.

use std::path::Path;

use permits_bench::Failure;
use permits_testkit::faults::Cell;
use permits_testkit::history::History;
use serde_json::json;

/// Writes the history to a file of its own in the directory.
pub(crate) fn write(cell: &Cell, history: &History, directory: &Path) -> Result<(), Failure> {
    let (row, limit, seed) = (cell.row.name, cell.limit, cell.seed);
    let promise = cell.row.promise;
    let head = json!({
        "row": row,
        "limit": limit,
        "seed": seed,
        "bound": promise.bound,
        "order": promise.order,
        "keep": promise.keep.is_some(),
    });
    let mut text = format!("{head}\n");
    for (worker, record) in &history.events {
        let mut line = serde_json::to_value(record)?;
        line["worker"] = json!(worker);
        text += &format!("{line}\n");
    }
    Ok(std::fs::write(directory.join(format!("{row}-{limit}-{seed}.jsonl")), text)?)
}
