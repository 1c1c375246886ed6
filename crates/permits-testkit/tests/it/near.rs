//! `scripts/test-near`: the commands that it runs name packages and test programs that exist.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use permits_testkit::skip;

use crate::tidy::{files, repository};

#[track_caller]
fn lines(command: &mut Command) -> Vec<String> {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let [said, errors] =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success() && errors.is_empty(), "{command:?}: {said}{errors}");
    said.lines().map(str::to_owned).collect()
}

/// The reason why cargo would refuse these arguments of `cargo test --all-features`.
fn refusal(arguments: &str) -> Option<&'static str> {
    let words: Vec<&str> = arguments.split(' ').collect();
    let ["-p", package, ref rest @ ..] = words[..] else { return Some("they name no package") };
    let package = repository().join("crates").join(package);
    let (sources, filters): (Vec<PathBuf>, &[&str]) = match rest {
        ["--lib", filters @ ..] => (vec![package.join("src/lib.rs")], filters),
        ["--bins", filters @ ..] => (vec![package.join("src/main.rs")], filters),
        ["--test", name, filters @ ..] => {
            let tests = package.join("tests");
            (vec![tests.join(name).join("main.rs"), tests.join(format!("{name}.rs"))], filters)
        }
        _ => return Some("they select no test program"),
    };
    if !sources.iter().any(|source| source.exists()) {
        return Some("there is no such test program");
    }
    (filters.len() > 1).then_some("cargo takes one filter")
}

#[track_caller]
fn are_accepted(arguments: &[String]) {
    let refused: Vec<_> =
        arguments.iter().filter_map(|arguments| Some((arguments, refusal(arguments)?))).collect();
    assert!(refused.is_empty(), "{refused:#?}");
}

/// The laboratory, which has the mutants, may have been deleted.
fn without_mutants() -> bool {
    let is_absent = !repository().join("lab").is_dir();
    if is_absent {
        println!("SKIPPED: this tree has no lab/");
    }
    is_absent
}

#[test]
fn the_suites_of_every_mutant_can_be_run() {
    if without_mutants() {
        return;
    }
    let table = fs::read_to_string(repository().join("lab/mutants.txt")).expect("it is there");
    let rows = table.lines().filter(|line| !line.is_empty() && !line.starts_with(['#', '+']));
    let file_of = |row: &str| format!("crates/{}", row.split(" ∣ ").nth(2).expect("a file is the third"));
    let edited: Vec<String> = rows.map(file_of).collect();
    assert!(edited.len() > 300, "{edited:?}");
    let suites = lines(Command::new(repository().join("lab/mutants")).arg("--near").args(&edited));
    are_accepted(&suites);
    for package in ["permits", "permits-core", "permits-redis", "permits-store", "permits-cli"] {
        let is_of = |suite: &String| suite.starts_with(&format!("-p {package} "));
        assert!(suites.iter().any(is_of), "{package}: {suites:#?}");
    }
}

/// The test makes a repository whose files have the names of the files of this one, and changes one at a
/// time.
#[test]
fn a_changed_file_is_tested_by_commands_that_can_be_run() {
    if skip::without_program("git") || without_mutants() {
        return;
    }
    let (here, place) = (repository(), tempfile::tempdir().expect("a directory"));
    for directory in ["scripts/more", "lab"] {
        fs::create_dir_all(place.path().join(directory)).expect("there is room");
    }
    for script in ["scripts/test-near", "scripts/more/check-shell", "lab/mutants", "lab/mutants.txt"] {
        fs::copy(here.join(script), place.path().join(script)).expect("there is room");
    }
    let mut all = Vec::new();
    files(&here.join("crates"), &mut all);
    for path in all {
        let copy = place.path().join(path.strip_prefix(&here).expect("it is below"));
        fs::create_dir_all(copy.parent().expect("it is below")).expect("there is room");
        fs::write(copy, "").expect("there is room");
    }
    let git = |arguments: &[&str]| {
        let mut git = Command::new("git");
        git.args(["-c", "user.name=test", "-c", "user.email=test@localhost"]).args(arguments);
        lines(git.current_dir(place.path()))
    };
    git(&["init", "--quiet"]);
    git(&["add", "."]);
    git(&["commit", "--quiet", "--message", "all"]);
    for (changed, expected) in [
        (
            "crates/permits-cli/src/top/model.rs",
            &["-p permits-cli --bins", "-p permits-cli --test cli top"][..],
        ),
        ("crates/permits-cli/src/serve/write.rs", &["-p permits-cli --test cli serve"]),
        ("crates/permits-cli/tests/cli/line.rs", &["-p permits-cli --test cli"]),
        (
            "crates/permits-core/src/timing.rs",
            &["-p permits-core --lib", "-p permits-core --test exhaustive"],
        ),
        ("crates/permits-redis/src/script/lua/clock.lua", &["-p permits --test conformance redis"]),
    ] {
        fs::write(place.path().join(changed), "changed").expect("there is room");
        let commands = lines(Command::new(place.path().join("scripts/test-near")).arg("--list"));
        git(&["checkout", "--quiet", "."]);
        let begins = |command: &String| command.strip_prefix("cargo test --all-features ").map(str::to_owned);
        let listed: Option<Vec<String>> = commands.iter().map(begins).collect();
        let listed = listed.unwrap_or_else(|| panic!("{changed}: {commands:#?}"));
        are_accepted(&listed);
        for suite in expected {
            assert!(listed.iter().any(|of| of.starts_with(suite)), "{changed}: no {suite} in {listed:#?}");
        }
    }
}
