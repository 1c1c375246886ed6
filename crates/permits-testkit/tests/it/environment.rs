//! The environment of a test: the seed and the number of random cases, and the tests that are skipped.
//!
//! Each variable is tested in a copy of this test program, which runs one test in an environment of its own.

use std::env;
use std::process::Command;

use permits_testkit::{random, skip};

/// Set for a copy.
const COPY: &str = "PERMITS_TEST_COPY";

fn is_copy() -> bool {
    env::var_os(COPY).is_some()
}

/// Runs `test` of this file in a copy, with all output shown. Returns whether it passes, and the output.
fn copy(test: &str, environment: &[(&str, &str)]) -> (bool, String) {
    let mut command = Command::new(env::current_exe().expect("a test has a program"));
    command.args(["--exact", &format!("environment::{test}"), "--nocapture"]).env(COPY, "1");
    for variable in ["PERMITS_CASES", "PERMITS_TEST_SEED", skip::REQUIRED] {
        command.env_remove(variable);
    }
    let output = command.envs(environment.iter().copied()).output().expect("it starts");
    let text = String::from_utf8([&output.stdout[..], &output.stderr].concat()).expect("it prints text");
    (output.status.success(), text)
}

#[test]
fn seeds_and_cases_are_taken_and_a_failing_test_shows_its_seed() {
    if is_copy() {
        println!("times {}.", random::cases());
        panic!("failed with {}", random::seed());
    }
    let of = |environment: &[(&str, &str)]| {
        copy("seeds_and_cases_are_taken_and_a_failing_test_shows_its_seed", environment).1
    };
    let given = of(&[("PERMITS_TEST_SEED", "7"), ("PERMITS_CASES", "20")]);
    for line in ["times 20.", "PERMITS_TEST_SEED=7\n", "failed with 7\n"] {
        assert!(given.contains(line), "{line}: {given}");
    }
    let drawn = of(&[]);
    let seed = drawn.lines().find_map(|line| line.strip_prefix("PERMITS_TEST_SEED=")).expect("it is shown");
    assert!(drawn.contains("times 1.") && drawn.contains(&format!("failed with {seed}\n")), "{drawn}");
    let wrong = of(&[("PERMITS_TEST_SEED", "seven")]);
    assert!(wrong.contains(r#"PERMITS_TEST_SEED is "seven", and must be a whole number"#), "{wrong}");
    for wrong in ["0", "many", ""] {
        let text = of(&[("PERMITS_CASES", wrong)]);
        assert!(text.contains("PERMITS_CASES is ") && !text.contains("times "), "{wrong}: {text}");
    }
}

#[test]
fn a_skipped_test_is_reported_and_fails_if_its_program_is_required() {
    if is_copy() {
        assert!(!skip::before(1, 0), "no server is that old");
        assert!(skip::before(1000, 0), "no server is that new");
        assert!(skip::without_program("no-such-program"));
        return;
    }
    let test = "a_skipped_test_is_reported_and_fails_if_its_program_is_required";
    let (passes, text) = copy(test, &[(skip::REQUIRED, "no-such,promtool")]);
    let skipped =
        |reason: &str| text.matches(&format!("SKIPPED environment::{test}: needs {reason}")).count();
    assert!(passes && text.matches("SKIPPED").count() == 2, "{text}");
    assert_eq!((skipped("Redis 1000.0, and this is "), skipped("no-such-program")), (1, 1), "{text}");
    let (passes, text) = copy(test, &[(skip::REQUIRED, "promtool,no-such-program")]);
    assert!(!passes && text.contains("is not in PATH, and PERMITS_TEST_REQUIRED names it"), "{text}");
}
