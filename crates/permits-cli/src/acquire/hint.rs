//! Remedies for arguments in a wrong order.

use std::env;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::Caller;
use crate::text::shell_word;

/// The remedy if the semaphore `name` has no limit.
pub(super) fn no_limit(name: &str, caller: Caller<'_>) -> String {
    if caller.has_argument("--limit") {
        return "--limit behind the command belongs to the command: write it before".to_owned();
    }
    let how = "give one with --limit N, or set one with: permits limit NAME N";
    match caller {
        Caller::Command(_) if is_program(name) => format!("{how}; {}", taken_as_name(name)),
        _ => how.to_owned(),
    }
}

/// The remedy if the semaphore `name` of `--also` has no limit.
pub(super) fn no_limit_of_other(name: &str) -> String {
    let how = "give one with --also NAME=LIMIT, or set one with: permits limit NAME N";
    match name.split_once('@') {
        Some((name, lane)) => {
            format!(
                "{how}; a lane needs a limit or a weight before it: --also {}",
                shell_word(&format!("{name}:1@{lane}"))
            )
        }
        None => how.to_owned(),
    }
}

/// The hint that `name` is the name of a semaphore, if it looks like a command.
pub(crate) fn forgotten_name(name: &str) -> Option<String> {
    is_program(name).then(|| taken_as_name(name))
}

fn taken_as_name(name: &str) -> String {
    format!("{name:?} was taken as the name of the semaphore, which precedes the command")
}

/// True if a shell would find a program of this name.
fn is_program(name: &str) -> bool {
    let is_executable = |path: &Path| {
        path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    if name.contains('/') {
        return is_executable(Path::new(name));
    }
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|directory| is_executable(&directory.join(name)))
}
