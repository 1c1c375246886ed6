//! The environment of a test: the seed and the number of random cases, and the server program.
//!
//! Each variable is tested in a copy of this test program, which runs one test in an environment of its own.

use std::env;
use std::process::{Command, Output};

use permits_testkit::{random, skip};

/// Set for a copy.
const COPY: &str = "PERMITS_TEST_COPY";

fn is_copy() -> bool {
    env::var_os(COPY).is_some()
}

/// Runs `test` in a copy. The harness shows the output of a test that fails, or of all if `shown`.
fn copy(test: &str, shown: bool, environment: &[(&str, &str)]) -> (Output, String) {
    let mut command = Command::new(env::current_exe().expect("a test has a program"));
    command.args(["--exact", test]).args(shown.then_some("--nocapture"));
    for variable in ["PERMITS_CASES", "PERMITS_TEST_SEED", skip::REQUIRED] {
        command.env_remove(variable);
    }
    command.env(COPY, "1");
    let output = command.envs(environment.iter().copied()).output().expect("it starts");
    let text = [&output.stdout[..], &output.stderr].concat();
    (output, String::from_utf8(text).expect("it prints text"))
}

#[test]
fn a_seed_that_is_given_is_taken_and_a_failing_test_shows_its_seed() {
    if is_copy() {
        panic!("failed with {}", random::seed());
    }
    let of = |environment: &[(&str, &str)]| {
        copy("a_seed_that_is_given_is_taken_and_a_failing_test_shows_its_seed", false, environment).1
    };
    let given = of(&[("PERMITS_TEST_SEED", "7")]);
    assert!(given.contains("PERMITS_TEST_SEED=7\n") && given.contains("failed with 7\n"), "{given}");
    let drawn = of(&[]);
    let seed = drawn.lines().find_map(|line| line.strip_prefix("PERMITS_TEST_SEED=")).expect("it is shown");
    assert!(drawn.contains(&format!("failed with {seed}\n")), "{drawn}");
    let wrong = of(&[("PERMITS_TEST_SEED", "seven")]);
    assert!(wrong.contains(r#"PERMITS_TEST_SEED is "seven", and must be a whole number"#), "{wrong}");
}

#[test]
fn cases_are_multiplied_by_a_number_above_0() {
    if is_copy() {
        println!("times {}.", random::cases());
        return;
    }
    let of =
        |environment: &[(&str, &str)]| copy("cases_are_multiplied_by_a_number_above_0", true, environment);
    assert!(of(&[]).1.contains("times 1."));
    assert!(of(&[("PERMITS_CASES", "20")]).1.contains("times 20."));
    for wrong in ["0", "many", ""] {
        let (output, text) = of(&[("PERMITS_CASES", wrong)]);
        assert!(!output.status.success() && text.contains("PERMITS_CASES is "), "{wrong}: {text}");
    }
}

#[test]
fn a_skipped_test_is_reported_although_it_passes() {
    if is_copy() {
        assert!(!skip::before(1, 0), "no server is that old");
        assert!(skip::before(1000, 0), "no server is that new");
        return;
    }
    let test = "a_skipped_test_is_reported_although_it_passes";
    let (output, text) = copy(test, false, &[]);
    assert!(output.status.success(), "{text}");
    let line = format!("SKIPPED {test}: needs Redis 1000.0, and this is ");
    assert_eq!(text.matches(&line).count(), 1, "{text}");
    assert_eq!(text.matches("SKIPPED").count(), 1, "{text}");
}

#[test]
fn a_required_program_that_is_missing_fails_its_tests() {
    if is_copy() {
        assert!(skip::without_program("no-such-program"));
        return;
    }
    let of = |environment: &[(&str, &str)]| {
        copy("a_required_program_that_is_missing_fails_its_tests", false, environment)
    };
    let (output, text) = of(&[(skip::REQUIRED, "no-such,promtool")]);
    assert!(output.status.success() && text.contains("needs no-such-program"), "{text}");
    let (output, text) = of(&[(skip::REQUIRED, "promtool,no-such-program")]);
    assert!(!output.status.success() && !text.contains("SKIPPED"), "{text}");
    assert!(text.contains("no-such-program is not in PATH, and PERMITS_TEST_REQUIRED names it"), "{text}");
}
