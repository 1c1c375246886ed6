//! `permits-bench COMMAND`: the benchmarks of a change.

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match permits_bench::run(&words) {
        None => {
            eprintln!("usage: permits-bench {}", permits_bench::COMMANDS);
            ExitCode::from(64)
        }
        Some(Ok(())) => ExitCode::SUCCESS,
        Some(Err(error)) => {
            eprintln!("permits-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
