//! The tables and blocks of code of the documents, which tests compare with the programs that they describe,
//! and run. A block says by its info words what runs it: see [`Run`].

use std::fs;
use std::path::{Path, PathBuf};

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

/// A page of the documents.
#[derive(Debug)]
pub struct Page {
    /// The path in the repository.
    pub path: String,
    /// The whole text.
    pub text: String,
}

/// The pages that users read, in the order of their paths: `README.md`, the pages of the packages and of
/// `contrib`, and everything below `docs`.
pub fn pages() -> Vec<Page> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut paths = vec![root.join("README.md")];
    for (directory, depth) in [("docs", usize::MAX), ("bindings", 1), ("contrib", 1)] {
        add_pages(&root.join(directory), depth, &mut paths);
    }
    paths.sort();
    let page = |path: PathBuf| Page {
        text: fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())),
        path: path.strip_prefix(&root).expect("it is below").display().to_string(),
    };
    paths.into_iter().map(page).collect()
}

fn add_pages(directory: &Path, depth: usize, paths: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("it can be read") {
        let path = entry.expect("it can be read").path();
        if path.is_dir() && depth > 0 {
            add_pages(&path, depth - 1, paths);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            paths.push(path);
        }
    }
}

/// A block of code.
#[derive(Debug, Clone, Copy)]
pub struct Block<'a> {
    /// The path of its page.
    pub page: &'a str,
    /// The nearest heading above it, of any level.
    pub heading: &'a str,
    /// The first of the info words behind the fence, such as `sh`.
    pub language: &'a str,
    /// The other info words, which readers of the page do not see.
    pub words: &'a str,
    /// The lines between the fences.
    pub text: &'a str,
}

/// How a block is run, by its info words. `CONTRIBUTING.md` explains them.
#[derive(Debug, PartialEq, Eq)]
pub enum Run<'a> {
    /// The block has no words, and the runner of its language runs it.
    Alone,
    /// `copies=4 post.sh=8/1`: four copies at once, which call `post.sh` 8 times, and once at once at most.
    Copies(usize, Vec<(&'a str, usize, usize)>),
    /// `situation=NAME`: the commands of an operator, in a situation that has this name.
    Situation(&'a str),
    /// `run=FILE WORDS`: by a test of its own in this file, which reads the words.
    By(&'a str, &'a str),
    /// `not run: REASON`.
    Not(&'a str),
}

impl Page {
    /// The blocks of code of the page, in order.
    pub fn blocks(&self) -> impl Iterator<Item = Block<'_>> {
        let (page, mut heading) = (&*self.path, "");
        let mut parts = self.text.split("\n```");
        std::iter::from_fn(move || {
            let nearest = parts.next()?.lines().rfind(|line| line.starts_with('#'));
            heading = nearest.map_or(heading, |line| line.trim_start_matches('#').trim());
            let (info, text) = parts.next()?.split_once('\n')?;
            let (language, words) = info.split_once([' ', ',']).unwrap_or((info, ""));
            Some(Block { page, heading, language, words, text })
        })
    }
}

impl<'a> Block<'a> {
    /// How it is run. `None` if its words say nothing of the kind.
    pub fn run(&self) -> Option<Run<'a>> {
        let (first, rest) = self.words.split_once(' ').unwrap_or((self.words, ""));
        if let Some((_, reason)) = self.words.split_once("not run: ") {
            return (!reason.is_empty()).then_some(Run::Not(reason));
        }
        match first.split_once('=') {
            None if first.is_empty() => Some(Run::Alone),
            // A word of rustdoc: the block is compiled.
            None if (self.language, self.words) == ("rust", "no_run") => Some(Run::Alone),
            Some(("run", file)) => Some(Run::By(file, rest)),
            Some(("situation", name)) if rest.is_empty() => Some(Run::Situation(name)),
            Some(("copies", number)) => {
                let function = |word: &'a str| {
                    let (name, numbers) = word.split_once('=')?;
                    let (runs, most) = numbers.split_once('/')?;
                    Some((name, runs.parse().ok()?, most.parse().ok()?))
                };
                let functions = rest.split_whitespace().map(function).collect::<Option<_>>()?;
                Some(Run::Copies(number.parse().ok()?, functions))
            }
            _ => None,
        }
    }
}

/// The blocks that a test runs, of a source file with this name.
#[track_caller]
pub fn blocks_of<'a>(pages: &'a [Page], file: &str) -> Vec<Block<'a>> {
    let blocks = pages.iter().flat_map(Page::blocks);
    let found: Vec<_> =
        blocks.filter(|block| matches!(block.run(), Some(Run::By(name, _)) if name == file)).collect();
    assert!(!found.is_empty(), "no block has the words run={file}");
    found
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
    /// The name, such as `permits_wait_seconds`.
    pub name: String,
    /// `histogram`, `gauge` or `counter`.
    pub kind: String,
    /// `seconds` or `count`.
    pub unit: String,
    /// The names of the labels, sorted.
    pub labels: Vec<String>,
    /// The description.
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
