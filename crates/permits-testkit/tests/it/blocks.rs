//! Each block of code of the documents says what runs it, or why nothing does. The runners find their blocks
//! by the same words, on every page: rustdoc, `permits-cli/tests/cli/documents/`, `test_docs.py` of the
//! Python package, `docs.test.ts` of the Node package, and `docs_test.go` of the Go package.

use std::fs;

use permits_testkit::documents::{Block, Page, Run, pages};

use crate::tidy::{files, repository};

/// Blocks that are no programs.
const DATA: [&str; 5] = ["dockerfile", "json", "text", "toml", "yaml"];

/// The sources that include pages, so that rustdoc runs the blocks of these.
const INCLUDING: [&str; 2] = ["crates/permits/src/lib.rs", "crates/permits-tower/src/lib.rs"];

/// The directories of the tests that `run=FILE` names.
const TESTS: [&str; 4] =
    ["crates/permits-cli/tests", "bindings/python/tests", "bindings/node/tests", "bindings/node/runners"];

/// Returns true if its words say what runs the block, which is one of these sources and tests, or why nothing
/// does.
fn is_settled(block: &Block<'_>, included: &str, tests: &[String]) -> bool {
    let Some(run) = block.run() else { return false };
    match (block.language, run) {
        (_, Run::Not(_)) => true,
        (_, Run::By(file, _)) => tests.iter().any(|test| test == file),
        ("rust", Run::Alone) => included.contains(block.page),
        ("go", Run::Alone) => block.page == "docs/languages/go.md",
        ("python" | "ts" | "console", Run::Alone) | ("console", Run::Situation(_)) => true,
        ("python" | "ts" | "sh" | "crontab" | "yaml", Run::Copies(..)) => true,
        (language, Run::Alone) => DATA.contains(&language),
        _ => false,
    }
}

#[test]
fn each_block_is_run_or_says_why_not() {
    let (root, mut tests, pages) = (repository(), Vec::new(), pages());
    TESTS.iter().for_each(|directory| files(&root.join(directory), &mut tests));
    let name = |path: std::path::PathBuf| path.file_name().expect("a name").to_string_lossy().into_owned();
    let tests: Vec<String> = tests.into_iter().map(name).collect();
    let read = |path: &&str| fs::read_to_string(root.join(path)).expect("it is there");
    let included: String = INCLUDING.iter().map(read).collect();

    let blocks: Vec<Block<'_>> = pages.iter().flat_map(Page::blocks).collect();
    assert!(blocks.len() > 200, "only {} blocks were found", blocks.len());
    let unsettled = blocks.iter().filter(|block| !is_settled(block, &included, &tests));
    let place = |block: &Block<'_>| {
        format!("{}: below {:?}: {} {}", block.page, block.heading, block.language, block.words)
    };
    let mut faults: Vec<String> = unsettled.map(place).collect();
    // Within a list the runners do not see it.
    let indented =
        |page: &&Page| page.text.lines().any(|line| line.trim_start() != line && line.contains("```"));
    faults.extend(pages.iter().filter(indented).map(|page| format!("{}: an indented block", page.path)));
    assert!(faults.is_empty(), "what runs these? (CONTRIBUTING.md, Blocks of code)\n{}", faults.join("\n"));
}
