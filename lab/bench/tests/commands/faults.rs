//! The command line of the fault matrix, with a row or two for a moment, and windows under crashes.

use std::process::Output;

use crate::{lab, text};

fn faults(words: &[&str]) -> Output {
    lab(None, &[&["faults"], words].concat())
}

/// The cells of a line of the table.
fn line<'a>(text: &'a str, row: &str) -> Vec<&'a str> {
    let found = text.lines().find(|line| line.starts_with(&format!("| {row} |")));
    found.unwrap_or_else(|| panic!("no line for {row}:\n{text}")).split('|').map(str::trim).collect()
}

#[test]
fn a_few_rows_hold_for_a_moment() {
    let rows = ["client-kill", "reply-lost"];
    let output = faults(&[&["--seconds", "1", "--limit", "5"][..], &rows[..]].concat());
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    for row in rows {
        let line = line(&text, row);
        let [grants, injected, violations] = [line[4], line[8], line[9]].map(|cell| cell.parse::<u32>());
        assert!(grants.is_ok_and(|grants| grants > 0), "{row}: {text}");
        assert!(injected.is_ok_and(|injected| injected > 0), "{row}: {text}");
        assert_eq!(violations, Ok(0), "{row}: {text}");
    }
}

#[test]
fn no_window_has_more_grants_than_the_limit_while_processes_are_killed() {
    // Three seconds may be too short on a busy machine for what the run has to meet.
    let mut runs = ["3", "10", "30"].iter().map(|seconds| lab(None, &["windows", seconds]));
    let output = runs.find(|output| !text(output).contains("too short")).expect("thirty seconds suffice");
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("The most grants in any window: "), "{text}");
}
