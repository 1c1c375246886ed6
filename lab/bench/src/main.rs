//! `permits-lab COMMAND`: the long benchmarks, the fault matrix at length, and the soak.

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match permits_lab::run(&words) {
        None => {
            eprintln!("usage: permits-lab {}", permits_lab::COMMANDS);
            ExitCode::from(64)
        }
        Some(Ok(())) => ExitCode::SUCCESS,
        Some(Err(error)) => {
            eprintln!("permits-lab: {error}");
            ExitCode::FAILURE
        }
    }
}
