//! Child tasks: parts of a test that need a process of their own, because it is stopped, or has other rights
//! or little room.

use std::env;
use std::process::{Command, Stdio};

use permits_testkit::{ChildGuard, HANGS};

use crate::local::{crashes, full, idle, killed, rights, time};

/// The name of the test under which the harness runs a child task.
const TEST: &str = "local::child_task_process";

/// The variable with the name of the task.
const TASK: &str = "PERMITS_LOCAL_TASK";

/// The variable with the directory or file of the task.
const PLACE: &str = "PERMITS_LOCAL_PLACE";

/// All child tasks.
const TASKS: &[(&str, fn())] = &[
    ("lock", crashes::lock_until_told),
    ("sleep", idle::sleep),
    ("one_command", killed::one_command),
    ("in_another_time", time::in_another_time),
    ("without_rights", rights::without_rights),
    ("as_a_member", rights::as_a_member),
    ("as_an_outsider", rights::as_an_outsider),
    ("without_room", full::without_room),
    ("on_a_full_disk", full::on_a_full_disk),
    ("without_descriptors", full::without_descriptors),
];

/// Runs a child task if the environment names one.
pub(crate) fn run_if_told() {
    let Ok(name) = env::var(TASK) else { return };
    // Ends the line that the harness may have begun.
    println!();
    let (_, child_task) =
        TASKS.iter().find(|(child_task, _)| *child_task == name).expect("there is such a child task");
    child_task();
}

/// The directory or file of this task.
pub(crate) fn place() -> std::path::PathBuf {
    env::var_os(PLACE).expect("it is set").into()
}

/// The arguments with which this executable runs a child task.
pub(crate) const ARGUMENTS: &[&str] = &[TEST, "--exact", "--ignored", "--nocapture", "--test-threads=1"];

/// Sets a command up to run a child task.
pub(crate) fn send<'a>(
    command: &'a mut Command,
    child_task: &str,
    place: &std::path::Path,
) -> &'a mut Command {
    command.env(TASK, child_task).env(PLACE, place).stdin(Stdio::piped()).stdout(Stdio::piped())
}

/// The command of a child task.
pub(crate) fn command(child_task: &str, place: &std::path::Path) -> Command {
    let mut command = Command::new(env::current_exe().expect("a test knows its executable"));
    send(command.args(ARGUMENTS), child_task, place);
    command
}

/// Waits until the task has succeeded. Returns its output.
#[track_caller]
pub(crate) fn done(command: &mut Command) -> Vec<String> {
    let mut process = ChildGuard::spawn(command);
    let lines = process.lines();
    let said: Vec<String> = std::iter::from_fn(|| lines.next_line(HANGS)).collect();
    let status = process.wait_timeout(HANGS).expect("it ends");
    assert!(status.success(), "{status}: {said:#?}");
    said
}
