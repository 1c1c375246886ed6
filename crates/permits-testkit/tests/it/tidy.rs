//! The prose of the repository is plain technical English: comments, documentation, help and scripts use none
//! of the words below, and a doc begins with a noun or a verb. Comments are at most as wide as the code.
//!
//! An actor has a name (caller, client, session, waiter, holder, store, server, task), a mechanism too
//! (timeout, retry, push, reply), and a quantity is named. Code in backticks and generated tables do not
//! count.

use std::path::{Path, PathBuf};

/// Words and phrases that do not stand in prose, with what to write instead.
const INSTEAD: &[(&str, &[&str])] = &[
    (
        "the actor: caller, client, session, waiter, holder, store, server, task",
        &[
            "whoever",
            "whosoever",
            "nobody",
            "somebody",
            "anybody",
            "everybody",
            "no one",
            "someone",
            "anyone",
            "everyone",
        ],
    ),
    ("the thing, or \"at any\", \"if\"", &["whatever", "wherever"]),
    (
        "retry, again, reset",
        &["anew", "asks again", "asked again", "ask again", "tries again", "try again", "tried again"],
    ),
    ("timeout", &["patience", "patient", "patiently", "impatient", "impatiently"]),
    ("failed, without a result", &["in vain"]),
    ("still, nevertheless", &["all the same"]),
    ("malformed, damaged", &["nonsense", "makes no sense", "make no sense", "makes sense"]),
    ("is ignored", &["does not mind", "do not mind", "doesn't mind", "minds"]),
    ("reports, notifies, distinguishes", &["told", "tell", "tells", "news", "hear", "hears", "heard"]),
    (
        "the quantity by name",
        &["after so long", "at most so", "for so long", "for so many", "than so", "within so", "every so"],
    ),
    ("continues", &["goes on", "go on", "going on", "went on"]),
    ("is freed, reconnects, restarts", &["comes back", "come back", "came back"]),
    ("releases, returns", &["gives back", "give back", "gave back", "given back", "giving back"]),
    ("the cause, the obstacle", &["in the way"]),
    ("except; forever", &["but for", "as it were", "for ever"]),
    ("unreachable, disconnected", &["out of reach"]),
    ("waits, is queued", &["stands in line", "stand in line"]),
    ("checks, reads", &["looked at", "looks at", "look at"]),
    (
        "single call; action; workers; mutant",
        &["errand", "errands", "deed", "deeds", "crew", "crews", "planted", "plants"],
    ),
    ("too", &["likewise"]),
];

/// Openings that no doc has: it begins with a noun ("The releases to send") or a verb ("Sends WAIT").
const OPENINGS: &[&str] = &["What", "That", "How", "Whether", "Why", "Who"];

/// The columns of code, by `rustfmt.toml`, and of comments.
pub(crate) const WIDTH: usize = 110;

pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("it is there")
}

/// The files of prose and code, without other programs' and what is built.
pub(crate) fn files(directory: &Path, all: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).expect("it can be read") {
        let path = entry.expect("it can be read").path();
        let name = path.file_name().expect("it has a name").to_string_lossy().into_owned();
        if path.is_dir() {
            if !matches!(&*name, "target" | "peers" | ".git" | "node_modules" | "dist") {
                files(&path, all);
            }
        } else if name != "CHANGELOG.md" && name != "tidy.rs" {
            all.push(path);
        }
    }
}

/// Where the prose of a file is.
#[derive(Clone, Copy, PartialEq)]
enum Prose {
    /// After this mark.
    Comments(&'static str),
    Everywhere,
}

fn prose(path: &Path) -> Option<Prose> {
    let in_scripts = path.parent().is_some_and(|parent| parent.ends_with("scripts"));
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("rs" | "ts" | "mjs") => Some(Prose::Comments("//")),
        Some("lua") => Some(Prose::Comments("--")),
        Some("toml" | "yml") => Some(Prose::Comments("#")),
        // Documentation strings are no comments.
        Some("md" | "py" | "pyi") => Some(Prose::Everywhere),
        None if in_scripts => Some(Prose::Comments("#")),
        _ => None,
    }
}

/// The prose of a line, without code in backticks, in lower case.
fn words(line: &str, prose: Prose) -> Option<String> {
    let text = match prose {
        Prose::Everywhere => line,
        Prose::Comments(mark) => {
            let at = line
                .match_indices(mark)
                .map(|(at, _)| at)
                .find(|at| !line[..*at].ends_with([':', '"', '\'']))?;
            &line[at..]
        }
    };
    Some(text.split('`').step_by(2).collect::<String>().to_lowercase())
}

/// Returns true if `phrase` stands in `text` as whole words.
fn contains(text: &str, phrase: &str) -> bool {
    text.match_indices(phrase).any(|(at, _)| {
        let is_part = |character: Option<char>| character.is_some_and(|c| c.is_alphanumeric() || c == '_');
        !is_part(text[..at].chars().next_back()) && !is_part(text[at + phrase.len()..].chars().next())
    })
}

/// Returns true if a line of a comment, other than the row of a table, is wider than the code may be.
fn is_wide_comment(line: &str, prose: Prose) -> bool {
    let Prose::Comments(mark @ ("//" | "--")) = prose else { return false };
    let comment = line.trim_start().strip_prefix(mark);
    let is_row = |text: &str| text.trim_start_matches(['/', '!', ' ']).starts_with('|');
    comment.is_some_and(|text| !is_row(text)) && line.chars().count() > WIDTH
}

/// The faults of a text, with the numbers of their lines.
fn faults(text: &str, prose: Prose) -> Vec<(usize, String)> {
    let mut faults = Vec::new();
    let (mut generated, mut in_doc) = (false, false);
    for (index, line) in text.lines().enumerate() {
        generated = (generated || line.contains("<!-- measured") || line.contains("<!-- figures"))
            && !line.contains("<!-- end");
        let Some(words) = words(line, prose).filter(|_| !generated) else {
            in_doc = false;
            continue;
        };
        for (instead, phrases) in INSTEAD {
            for phrase in phrases.iter().filter(|phrase| contains(&words, phrase)) {
                faults.push((index + 1, format!("{phrase:?}: write {instead}")));
            }
        }
        if is_wide_comment(line, prose) {
            faults.push((index + 1, format!("a comment of more than {WIDTH} columns: wrap it")));
        }
        let doc = ["///", "//!"].iter().find_map(|mark| line.trim_start().strip_prefix(mark));
        if let (Some(doc), false) = (doc, in_doc) {
            let first = doc.split_whitespace().next().unwrap_or_default();
            if OPENINGS.contains(&first) && !doc.contains('?') {
                faults.push((index + 1, format!("a doc begins with {first:?}: begin with a noun or a verb")));
            }
            if doc.trim_start().starts_with("The same") {
                faults.push((index + 1, "a doc begins with \"The same\": name it".to_owned()));
            }
        }
        in_doc = doc.is_some();
    }
    faults
}

#[test]
fn the_prose_of_the_repository_is_plain() {
    let root = repository();
    let mut all = Vec::new();
    for part in ["bindings", "comparison", "contrib", "crates", "docs", "scripts", ".github"] {
        files(&root.join(part), &mut all);
    }
    for name in ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "Cargo.toml"] {
        all.push(root.join(name));
    }
    let (mut checked, mut found) = (0, Vec::new());
    for path in all {
        let Some(prose) = prose(&path) else { continue };
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        checked += 1;
        for (line, fault) in faults(&text, prose) {
            found.push(format!(
                "{}:{line}: {fault}",
                path.strip_prefix(&root).expect("it is below").display()
            ));
        }
    }
    assert!(checked > 300, "only {checked} files were found");
    found.sort();
    assert!(found.is_empty(), "{} faults:\n{}", found.len(), found.join("\n"));
}
