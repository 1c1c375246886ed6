//! Errands: what a test has done by a process of its own, because it is to be stopped, to have other rights, or
//! little room.

use std::env;
use std::process::{Command, Stdio};

use permits_testkit::ChildGuard;
use permits_testkit::worker::TIMEOUT;

use crate::{crashes, full, idle, rights, time};

/// The test's name under which the harness runs an errand.
const TEST: &str = "errand_process";

/// Which errand it is.
const ERRAND: &str = "PERMITS_LOCAL_ERRAND";

/// The directory or file that it is about.
const PLACE: &str = "PERMITS_LOCAL_PLACE";

/// All there are.
const ERRANDS: &[(&str, fn())] = &[
    ("write", crashes::write_until_told),
    ("hand_over", idle::hand_over),
    ("in_another_time", time::in_another_time),
    ("without_rights", rights::without_rights),
    ("as_a_member", rights::as_a_member),
    ("as_an_outsider", rights::as_an_outsider),
    ("without_room", full::without_room),
    ("on_a_full_disk", full::on_a_full_disk),
];

/// Runs an errand if the environment says so.
pub(crate) fn run_if_told() {
    let Ok(name) = env::var(ERRAND) else { return };
    // The harness may have begun a line.
    println!();
    let (_, errand) = ERRANDS.iter().find(|(errand, _)| *errand == name).expect("there is such an errand");
    errand();
}

/// The place that this process was told.
pub(crate) fn place() -> std::path::PathBuf {
    env::var_os(PLACE).expect("it is set").into()
}

/// With which arguments this executable is an errand.
pub(crate) const ARGUMENTS: &[&str] = &[TEST, "--exact", "--ignored", "--nocapture", "--test-threads=1"];

/// Makes a command an errand.
pub(crate) fn send<'a>(command: &'a mut Command, errand: &str, place: &std::path::Path) -> &'a mut Command {
    command.env(ERRAND, errand).env(PLACE, place).stdin(Stdio::piped()).stdout(Stdio::piped())
}

/// The command of an errand.
pub(crate) fn command(errand: &str, place: &std::path::Path) -> Command {
    let mut command = Command::new(env::current_exe().expect("a test knows its executable"));
    send(command.args(ARGUMENTS), errand, place);
    command
}

/// Waits until the errand has ended well. Returns what it said.
#[track_caller]
pub(crate) fn done(command: &mut Command) -> Vec<String> {
    let mut process = ChildGuard::spawn(command);
    let lines = process.lines();
    let said: Vec<String> = std::iter::from_fn(|| lines.next_line(TIMEOUT)).collect();
    let status = process.wait_timeout(TIMEOUT).expect("it ends");
    assert!(status.success(), "{status}: {said:#?}");
    said
}
