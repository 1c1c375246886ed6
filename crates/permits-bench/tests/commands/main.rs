//! The benchmarks, each for a moment. They are run by hand and rarely, and would rot unnoticed.

mod figures;

use std::process::{Command, Output};

/// The output of a command.
fn bench(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_permits-bench")).args(words).output().expect("it can be started")
}

fn text(output: &Output) -> String {
    let [said, complained] = [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it));
    format!("{said}\n{complained}")
}
