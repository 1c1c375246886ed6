//! The tables of `docs/observability.md`.

/// The page.
const PAGE: &str = include_str!("../../../../docs/observability.md");

/// The rows of the table under a heading, each as its cells.
fn table(heading: &str) -> Vec<Vec<&'static str>> {
    let (_, section) = PAGE.split_once(&format!("\n## {heading}\n")).expect("the page has the heading");
    let section = section.split("\n## ").next().unwrap_or_default();
    let lines = section.lines().skip_while(|line| !line.starts_with('|'));
    let rows = lines.take_while(|line| line.starts_with('|')).skip(2);
    let rows: Vec<Vec<&str>> =
        rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect();
    assert!(!rows.is_empty(), "{heading} has a table");
    rows
}

/// The words in backticks, sorted.
fn quoted(cell: &str) -> Vec<String> {
    let mut words: Vec<String> = cell.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    words.sort();
    words
}

/// An event: target, level, fields.
pub(crate) type EventRow = (String, String, Vec<String>);

pub(crate) fn events() -> Vec<EventRow> {
    let row = |cells: Vec<&str>| (quoted(cells[0]).remove(0), cells[1].to_owned(), quoted(cells[2]));
    table("Events").into_iter().map(row).collect()
}

pub(crate) fn span_fields() -> Vec<String> {
    let mut fields: Vec<String> =
        table("The span of an acquisition").iter().flat_map(|cells| quoted(cells[0])).collect();
    fields.sort();
    fields
}

/// A metric: name, kind, unit, description.
pub(crate) type MetricRow = (String, String, String, String);

/// The metrics, each with its labels.
pub(crate) fn metrics() -> Vec<(MetricRow, Vec<String>)> {
    let row = |cells: Vec<&str>| {
        let metric = (quoted(cells[0]).remove(0), cells[1].into(), cells[2].into(), cells[4].into());
        (metric, quoted(cells[3]))
    };
    table("Metrics").into_iter().map(row).collect()
}
