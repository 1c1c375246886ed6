//! `permits-comparison COMMAND`: `permits` beside other libraries, run by `scripts/lab`.

mod compare;
mod peers;
mod rates;

use std::process::ExitCode;

use permits_bench::driver;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["compare", options @ ..] => compare::run(options),
        ["rates", options @ ..] => rates::run(options),
        // A process of `permits` or of a lower bound.
        ["driver", rates::OURS, url, _] => rates::drive(url),
        ["driver", kind, url, lease_ms] => driver::run(kind, url, lease_ms),
        _ => {
            eprintln!("usage: permits-comparison compare | rates");
            return ExitCode::from(64);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("permits-comparison: {error}");
            ExitCode::FAILURE
        }
    }
}
