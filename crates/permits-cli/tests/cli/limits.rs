//! Few descriptors, and no further thread: an error with its exit code, and no panic.

use std::process::Command;

use crate::support::{Local, Output, Store, fresh, output, permits, without_home};

/// Verbs that connect, and end by themselves if all goes well.
const VERBS: [&[&str]; 4] = [
    &["list", "--store-timeout", "0s"],
    &["run", "semaphore", "--limit", "1", "--store-timeout", "0s", "true"],
    &["hold", "--many", "--store-timeout", "0s"],
    &["doctor"],
];

/// The diagnosis finds a problem, the store cannot be reached, the system refuses, the program cannot be run,
/// or a library cannot be loaded.
const ERRORS: [i32; 5] = [1, 69, 71, 126, 127];

#[track_caller]
fn assert_is_an_error(what: &str, found: &Output) {
    assert!(ERRORS.contains(&found.code), "{what}: {found:?}");
    assert!(!found.stderr.contains("panicked"), "{what}: {found:?}");
    assert!(!found.stderr.is_empty() || found.code == 1, "{what}: {found:?}");
}

#[test]
fn few_descriptors_are_an_error() {
    let (server, _) = fresh();
    for store in [&Local::new() as &dyn Store, &server] {
        for verb in VERBS {
            let mut succeeded = false;
            for descriptors in 3..=20 {
                let script = format!("ulimit -n {descriptors}; exec \"$0\" \"$@\"");
                let permits = permits(&store.url(), verb);
                let mut limited = Command::new("sh");
                limited.args(["-c", &script]).arg(permits.get_program()).args(permits.get_args());
                let found = output(without_home(limited.env("PERMITS_URL", store.url())));
                let what = format!("{verb:?} with {descriptors} descriptors on {}", store.url());
                match found.code {
                    0 => succeeded = true,
                    _ if succeeded => panic!("{what}: it needed fewer: {found:?}"),
                    _ => assert_is_an_error(&what, &found),
                }
            }
            assert!(succeeded, "{verb:?} needs more than 20");
        }
    }
}

/// A command with at most `most` threads. The limit counts all threads of the user, and does not hold for
/// root. So if other programs of the user run, no thread can be made.
fn with_threads(most: u32) -> Command {
    let mut command = Command::new("setpriv");
    if rustix::process::getuid().is_root() {
        command.args(["--reuid=54321", "--regid=54321", "--clear-groups"]);
    }
    command.args(["prlimit", &format!("--nproc={most}"), env!("CARGO_BIN_EXE_permits")]);
    command
}

#[test]
fn a_thread_that_cannot_be_made_is_an_error() {
    if !with_threads(1).arg("--version").output().is_ok_and(|output| output.status.success()) {
        println!("SKIPPED: no setpriv or prlimit, or the command is not readable for all users");
        return;
    }
    let (server, _) = fresh();
    // The name of a host is looked up on a thread.
    let by_name = format!("redis://localhost:{}/", server.address().port());
    let serve: &[&str] = &["serve", "--listen", "127.0.0.1:0"];
    for verb in VERBS.into_iter().chain([serve]) {
        for (threads, url) in [(1, server.url()), (2, by_name.clone())] {
            let mut limited = with_threads(threads);
            let found = output(without_home(limited.args(verb).env("PERMITS_URL", url)));
            assert_is_an_error(&format!("{verb:?} with {threads} threads"), &found);
        }
    }
}
