//! The tables and blocks of code of the directory `docs`, which tests compare with the programs that they
//! describe, and run.

use std::fs;
use std::path::Path;

/// The text of a document, such as `start.md`.
#[track_caller]
pub fn read(document: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(document);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The rows of the first table below a heading of the second level, each as its cells.
#[track_caller]
pub fn table(document: &str, heading: &str) -> Vec<Vec<String>> {
    let page = read(document);
    let Some((_, section)) = page.split_once(&format!("\n## {heading}\n")) else {
        panic!("{document} has no heading {heading:?}");
    };
    let section = section.split("\n## ").next().unwrap_or_default();
    let lines = section.lines().skip_while(|line| !line.starts_with('|'));
    let rows = lines.take_while(|line| line.starts_with('|')).skip(2);
    let cells = |row: &str| row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
    let rows: Vec<Vec<String>> = rows.map(cells).collect();
    assert!(!rows.is_empty(), "{document}: {heading:?} has no table");
    rows
}

/// A block of code.
#[derive(Debug)]
pub struct Block<'a> {
    /// The nearest heading above it, of any level.
    pub heading: &'a str,
    /// The word behind the fence, such as `sh`.
    pub language: &'a str,
    /// The words behind the language, which readers of the page do not see.
    pub attributes: &'a str,
    /// Its lines.
    pub text: &'a str,
}

/// The blocks of code of a page.
pub fn blocks(page: &str) -> impl Iterator<Item = Block<'_>> {
    let mut heading = "";
    let mut parts = page.split("\n```");
    std::iter::from_fn(move || {
        let nearest = parts.next()?.lines().rfind(|line| line.starts_with('#'));
        heading = nearest.map_or(heading, |line| line.trim_start_matches('#').trim());
        let (kind, text) = parts.next()?.split_once('\n')?;
        let (language, attributes) = kind.split_once(' ').unwrap_or((kind, ""));
        Some(Block { heading, language, attributes, text })
    })
}

/// The words of a cell that are in backticks, sorted.
pub fn quoted(cell: &str) -> Vec<String> {
    let mut words: Vec<String> = cell.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    words.sort();
    words
}

/// A metric of the library.
#[derive(Debug, Clone)]
pub struct LibraryMetric {
    /// Its name, such as `permits_wait_seconds`.
    pub name: String,
    /// `histogram`, `gauge` or `counter`.
    pub kind: String,
    /// `seconds` or `count`.
    pub unit: String,
    /// The names of its labels, sorted.
    pub labels: Vec<String>,
    /// Its description.
    pub meaning: String,
}

/// The metrics that `docs/reference/metrics.md` lists. The suite `observability` shows that the library has
/// these.
pub fn library_metrics() -> Vec<LibraryMetric> {
    let metric = |cells: Vec<String>| LibraryMetric {
        name: quoted(&cells[0]).remove(0),
        kind: cells[1].clone(),
        unit: cells[2].clone(),
        labels: quoted(&cells[3]),
        meaning: cells[4].clone(),
    };
    table("reference/metrics.md", "Metrics of a program").into_iter().map(metric).collect()
}
