//! Calls of the command, their exit codes and their output, as they stand in the files of `calls/`.
//!
//! A section begins with `# FACT`, and has a store of its own: a local one; a server after `[server]`; one
//! after the other after `[both]`. `$ COMMAND` is run by bash, in a directory of the section, and ends with 0
//! unless `# CODE` follows. Below it are its standard output and then its standard error, in which each line
//! begins with `permits: `. `[..]` stands for any text of a line, `...` for any lines, and several spaces for
//! one. `& COMMAND` starts a program, which holds or waits when the next line is run. `$ said 1` waits until
//! the first one has printed what follows, and `$ wait 1` is its end. That the stores agree is the subject of
//! the library's suite `conformance`: a section or two of each kind of verb run on both.

use std::sync::LazyLock;

use permits_testkit::wait;
use regex::Regex;

use crate::support::Output;
use crate::world::{Step, World, is_missing_a_program, steps};

/// Makes a test of each file.
macro_rules! calls {
    ($($file:ident,)*) => {
        $(#[test]
        fn $file() {
            walk(stringify!($file));
        })*
    };
}

calls! {
    administer,
    doctor,
    handle,
    held_by,
    hints,
    list,
    log,
    run,
    several,
    store,
    under,
    unknown,
}

/// The command of a step, and the exit code that it demands.
fn with_code(command: &str) -> (&str, i32) {
    let parts = command.rsplit_once(" # ").and_then(|(command, code)| Some((command, code.parse().ok()?)));
    parts.unwrap_or((command, 0))
}

/// True if `printed` is what a file shows.
#[track_caller]
fn is_like(shown: &str, printed: &str) -> bool {
    static SPACES: LazyLock<Regex> = LazyLock::new(|| Regex::new(" +").expect("it is valid"));
    let lines = |text: &str| SPACES.replace_all(text.trim_end(), " ").replace(" \n", "\n");
    let expression = regex::escape(&lines(shown)).replace(r"\[\.\.\]", ".*");
    let expression = expression.replace("\n\\.\\.\\.", "(\n.*)*");
    Regex::new(&format!("^{expression}$")).expect("it is valid").is_match(&lines(printed))
}

#[track_caller]
fn run_section(fact: &str, steps: &[Step], mut world: World) {
    for Step { command, output: shown } in steps {
        let (command, expected) = with_code(command);
        let mut output = world.call(command);
        let is_shown = |output: &Output| is_like(shown, &(output.stdout.clone() + &output.stderr));
        if command.starts_with("said ") || command.starts_with("permits list") {
            // A program needs a moment to do what the output shows.
            wait::until(|| {
                is_shown(&output) || {
                    output = world.call(command);
                    is_shown(&output)
                }
            });
        }
        let Output { code, stdout, stderr } = output;
        assert_eq!(code, expected, "{fact}\n$ {command}\n{stdout}{stderr}");
        assert!(
            is_like(shown, &(stdout.clone() + &stderr)),
            "{fact}\n$ {command}\n{stdout}{stderr}in place of\n{shown}"
        );
        let is_own = |line: &str| line.starts_with("permits: ") || line.starts_with("{\"fields\"");
        assert!(
            stderr.lines().all(is_own) && !stdout.lines().any(is_own),
            "{fact}\n$ {command}\n{stdout}\n{stderr}"
        );
    }
}

#[track_caller]
fn walk(file: &str) {
    let path = format!("{}/tests/cli/calls/{file}.calls", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).expect(&path);
    for section in text.split("\n# ").skip(1) {
        let (fact, text) = section.split_once('\n').expect("a section has commands");
        let steps = steps(text.lines());
        if is_missing_a_program(&steps) {
            continue;
        }
        if !fact.starts_with("[server] ") {
            run_section(fact, &steps, World::local());
        }
        if fact.starts_with('[') {
            run_section(fact, &steps, World::server());
        }
    }
}
