//! The commands of the laboratory, each for a moment. They are run rarely, and would rot unnoticed.

mod faults;
mod scale;

use std::process::{Command, Output};

/// The output of a command, which runs in `directory` if there is one.
fn lab(directory: Option<&std::path::Path>, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_permits-lab"));
    if let Some(directory) = directory {
        command.current_dir(directory);
    }
    command.args(words).output().expect("it can be started")
}

fn text(output: &Output) -> String {
    let [said, complained] = [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it));
    format!("{said}\n{complained}")
}
