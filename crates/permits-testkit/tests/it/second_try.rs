//! The second try of `scripts/test`: what it excuses, and what it does not.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::tidy::repository;

/// Runs the script for commands that failed, in `place`. Returns whether it excuses them, and its output.
fn second_try(place: &TempDir, commands: &[&str]) -> (bool, String) {
    let (failures, outputs) = (place.path().join("failures"), place.path().join("outputs"));
    let lines: String = commands.iter().map(|command| format!("failed: {command}\n")).collect();
    fs::write(&failures, lines).expect("there is room");
    fs::create_dir_all(&outputs).expect("there is room");
    fs::write(outputs.join("permits-it"), "the first output").expect("there is room");
    let mut script = Command::new(repository().join("scripts/more/second-try"));
    script.args([&failures, &outputs]).env("CARGO_TARGET_DIR", place.path());
    let output = script.output().expect("python3 is installed");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
}

fn kept(place: &Path) -> usize {
    fs::read_dir(place.join("flaky")).map_or(0, Iterator::count)
}

#[test]
fn a_test_that_passes_the_second_time_is_flaky_once() {
    let place = tempfile::tempdir().expect("a directory");
    let (excused, said) = second_try(&place, &["PERMITS_TEST_SEED=1 true"]);
    assert!(excused && said.contains("flaky: PERMITS_TEST_SEED=1 true"), "{said}");
    let output = place.path().join("flaky/true/outputs/permits-it");
    assert_eq!(fs::read_to_string(output).expect("it is kept"), "the first output");
    let (excused, said) = second_try(&place, &["PERMITS_TEST_SEED=2 true"]);
    assert!(!excused && said.contains("flaky before"), "{said}");
}

#[test]
fn a_failure_that_lasts_is_not_excused() {
    let place = tempfile::tempdir().expect("a directory");
    for commands in [&["true", "false"][..], &[]] {
        let (excused, said) = second_try(&place, commands);
        assert!(!excused, "{said}");
    }
    assert_eq!(kept(place.path()), 1);
}

/// cargo ends with 0 if no test has the name.
#[test]
fn a_second_try_that_runs_nothing_excuses_nothing() {
    let place = tempfile::tempdir().expect("a directory");
    for (passed, is_excused) in [(0, false), (1, true)] {
        let command = format!("echo 'test result: ok. {passed} passed' -- --exact named");
        let (excused, said) = second_try(&place, &[&command]);
        assert_eq!(excused, is_excused, "{said}");
    }
}

#[test]
fn a_test_of_an_example_is_tried_again_as_one() {
    let place = tempfile::tempdir().expect("a directory");
    let program = place.path().join("shown-0123456789abcdef");
    fs::write(&program, "#!/bin/sh\nprintf 'failures:\\n    tests::it_runs\\n'\nexit 101\n")
        .expect("there is room");
    fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).expect("it is ours");
    fs::create_dir(place.path().join("examples")).expect("there is room");
    fs::write(place.path().join("examples/shown.rs"), "").expect("there is room");
    let failures = place.path().join("failures");
    let mut script = Command::new(repository().join("scripts/more/run-tests"));
    script.arg(&program).current_dir(place.path()).env("CARGO_PKG_NAME", "permits");
    script.env("PERMITS_TEST_FAILURES", &failures).env_remove("PERMITS_TEST_OUTPUTS");
    script.env_remove("PERMITS_TEST_ELSEWHERE");
    let output = script.output().expect("bash is installed");
    assert_eq!(output.status.code(), Some(101), "{output:?}");
    let named = fs::read_to_string(&failures).expect("it is written");
    assert_eq!(
        named,
        "failed: cargo test -p permits --all-features --example shown -- --exact tests::it_runs\n"
    );
}

#[test]
fn many_failures_are_no_accident() {
    let place = tempfile::tempdir().expect("a directory");
    let numbered: Vec<String> = (0..6).map(|number| format!("true {number}")).collect();
    let commands: Vec<&str> = numbered.iter().map(String::as_str).collect();
    for (count, tried) in [(6, 0), (3, 3)] {
        let (excused, said) = second_try(&place, &commands[..count]);
        assert!(!excused, "{said}");
        assert_eq!(kept(place.path()), tried, "{said}");
    }
    let other = tempfile::tempdir().expect("a directory");
    let (excused, said) = second_try(&other, &commands[..2]);
    assert!(excused, "{said}");
}
