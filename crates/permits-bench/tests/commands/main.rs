//! The commands of the benchmarks and of the fault matrix, each for a moment. They are run by hand and
//! rarely, and would rot unnoticed.

mod faults;
mod figures;

use std::process::{Command, Output};

/// The output of a command, which runs in `directory` if there is one.
fn bench(directory: Option<&std::path::Path>, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_permits-bench"));
    if let Some(directory) = directory {
        command.current_dir(directory);
    }
    command.args(words).output().expect("it can be started")
}

fn text(output: &Output) -> String {
    let [said, complained] = [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it));
    format!("{said}\n{complained}")
}
