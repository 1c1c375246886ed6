//! `permits-recipes`: runs every experiment, and writes `lab/recipes/README.md`. Run by `scripts/lab
//! recipes`.

use std::process::ExitCode;

fn main() -> ExitCode {
    match permits_recipes::report::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("permits-recipes: {error}");
            ExitCode::FAILURE
        }
    }
}
