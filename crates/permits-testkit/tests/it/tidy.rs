//! Comments are at most as wide as the code. How they read is a matter for readers, not for a test.

use std::path::{Path, PathBuf};

/// The columns of code, by `rustfmt.toml`, and of comments.
pub(crate) const WIDTH: usize = 110;

pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("it is there")
}

/// The files of prose and code, without what is built.
pub(crate) fn files(directory: &Path, all: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).expect("it can be read") {
        let path = entry.expect("it can be read").path();
        let name = path.file_name().expect("it has a name").to_string_lossy().into_owned();
        if path.is_dir() {
            if !matches!(&*name, "target" | ".git" | "node_modules" | "dist") {
                files(&path, all);
            }
        } else {
            all.push(path);
        }
    }
}

/// The mark of a comment in the language of a file.
fn mark(path: &Path) -> Option<&'static str> {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("rs" | "ts" | "mjs") => Some("//"),
        Some("lua") => Some("--"),
        _ => None,
    }
}

/// Returns true if a line of a comment, other than the row of a table, is wider than the code may be.
fn is_wide_comment(line: &str, mark: &str) -> bool {
    let comment = line.trim_start().strip_prefix(mark);
    let is_row = |text: &str| text.trim_start_matches(['/', '!', ' ']).starts_with('|');
    comment.is_some_and(|text| !is_row(text)) && line.chars().count() > WIDTH
}

#[test]
fn comments_are_as_wide_as_the_code() {
    let root = repository();
    let mut all = Vec::new();
    for part in ["bindings", "contrib", "crates", "lab"] {
        // A tree may be without the laboratory.
        if root.join(part).exists() {
            files(&root.join(part), &mut all);
        }
    }
    let (mut checked, mut found) = (0, Vec::new());
    for path in all {
        let Some(mark) = mark(&path) else { continue };
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        checked += 1;
        let wide = text.lines().enumerate().filter(|(_, line)| is_wide_comment(line, mark));
        let place = path.strip_prefix(&root).expect("it is below").display();
        found.extend(wide.map(|(index, _)| format!("{place}:{}", index + 1)));
    }
    assert!(checked > 300, "only {checked} files were found");
    assert!(found.is_empty(), "comments of more than {WIDTH} columns: wrap them:\n{}", found.join("\n"));
}
