//! Checks that no wait of a test has a limit of its own. A number of seconds beside a wait for what must come
//! says that the machine is slow, where only a hang is a failure. Each language has one limit, in its support
//! code.

use std::path::{Path, PathBuf};

use crate::tidy::{files, repository};

/// The calls that wait, by the language of the file, with their limits among the arguments.
const WAITS: &[(&str, &[&str])] = &[
    (
        "rs",
        &[
            "wait::within(",
            "timeout(",
            "recv_timeout(",
            "wait_timeout(",
            "next_line(",
            "lost_within(",
            "set_timeout(",
            "set_read_timeout(",
            "set_write_timeout(",
            "connect_timeout(",
        ],
    ),
    (
        "py",
        &[
            ".wait(",
            ".join(",
            ".result(",
            ".get(",
            "communicate(",
            "wait_for(",
            "runpytest_subprocess(",
            "urlopen(",
            "create_connection(",
            "Timer(",
        ],
    ),
    ("ts", &["test(", "describe("]),
];

/// The files with the limits, and the tests of the waits themselves.
const SUPPORT: &[&str] =
    &["permits-testkit/src/wait.rs", "bindings/python/tests/support.py", "bindings/node/tests/support.ts"];

/// The arguments of a call, from behind its opening parenthesis.
fn arguments(text: &str) -> &str {
    let mut depth = 1;
    let end = text.find(|character| {
        depth += match character {
            '(' => 1,
            ')' => -1,
            _ => 0,
        };
        depth == 0
    });
    &text[..end.unwrap_or(text.len())]
}

/// Returns true if a number of seconds or milliseconds stands among the arguments of a wait.
fn has_own_limit(language: &str, arguments: &str) -> bool {
    let number_after = |text: &str, mark: &str| {
        let mut after = text.match_indices(mark).map(|(at, _)| text[at + mark.len()..].trim_start());
        after.any(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
    };
    match language {
        // A duration behind the bar of a closure is not a limit.
        "rs" => arguments.split('|').next().is_some_and(|first| first.contains("Duration::from_")),
        "py" => {
            number_after(arguments, "timeout=") || arguments.starts_with(|first: char| first.is_ascii_digit())
        }
        _ => arguments.split("=>").next().is_some_and(|options| number_after(options, "{ timeout:")),
    }
}

/// The waits of a text with limits of their own, by line.
fn faults(language: &str, text: &str) -> Vec<(usize, String)> {
    let mut faults = Vec::new();
    let calls = WAITS.iter().filter(|(of, _)| *of == language).flat_map(|(_, calls)| *calls);
    for call in calls {
        for (at, _) in text.match_indices(call) {
            // A method of this name is an option of a request, and part of a longer name is another function.
            let before = text[..at].chars().next_back();
            let is_method = *call == "timeout(" && before == Some('.');
            let is_part = call.starts_with(char::is_alphabetic)
                && before.is_some_and(|before| before.is_alphanumeric() || before == '_');
            let arguments = arguments(&text[at + call.len()..]);
            if !is_method && !is_part && has_own_limit(language, arguments) {
                let shown = arguments.lines().next().unwrap_or_default();
                faults.push((text[..at].lines().count(), format!("{call}{shown}")));
            }
        }
    }
    for (number, line) in text.lines().enumerate() {
        let named = line.split_once(": Duration = ").filter(|(_, value)| value.contains("from_secs"));
        let is_limit =
            |name: &str| ["LIMIT", "TIMEOUT", "HANGS", "AT_ONCE"].iter().any(|end| name.ends_with(end));
        if language == "rs" && named.is_some_and(|(name, _)| name.contains("const ") && is_limit(name)) {
            faults.push((number + 1, line.trim().to_owned()));
        }
    }
    if language.is_empty() {
        for (number, line) in text.lines().enumerate() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let is_number = |word: &&str| word.parse::<u32>().is_ok();
            let at = words.iter().position(|word| *word == "timeout");
            if at.is_some_and(|at| words[at..].iter().take(5).any(is_number)) {
                faults.push((number + 1, line.trim().to_owned()));
            }
        }
    }
    faults
}

/// Takes a path below the repository.
fn is_of_tests(path: &Path) -> bool {
    let is_script = (path.starts_with("scripts") || path.starts_with("lab")) && path.extension().is_none();
    let path = path.to_string_lossy();
    let of_tests = path.contains("/tests/") || path.contains("permits-testkit/") || is_script;
    of_tests && !SUPPORT.iter().any(|end| path.ends_with(end)) && !path.ends_with("it/limits.rs")
}

#[test]
fn no_wait_has_a_limit_of_its_own() {
    let root = repository();
    let mut all = Vec::new();
    for part in ["bindings", "crates", "lab", "scripts"] {
        // A tree may be without the laboratory.
        if root.join(part).exists() {
            files(&root.join(part), &mut all);
        }
    }
    let (mut checked, mut found) = (0, Vec::new());
    let below = |path: &PathBuf| path.strip_prefix(&root).expect("it is below").to_owned();
    for path in all.iter().map(below).filter(|path| is_of_tests(path)) {
        let Ok(text) = std::fs::read_to_string(root.join(&path)) else { continue };
        let language = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        checked += 1;
        for (line, fault) in faults(language, &text) {
            found.push(format!("{}:{line}: {fault}", path.display()));
        }
    }
    assert!(checked > 150, "only {checked} files were found");
    assert!(found.is_empty(), "{} waits have limits of their own:\n{}", found.len(), found.join("\n"));
}
