//! `permits run`: waits in line, runs a command while the permit is held, and releases it. With `--also`
//! there are several permits, and the command runs while all are held.
//!
//! The order: look for the command; listen to signals; connect; acquire, which a signal cancels; start the
//! command; supervise it until it has ended, or end it when the permit is lost; release the permit within a
//! bounded time, even if the store is gone. When the permit is released, the command has ended.

mod child;
pub(crate) mod signals;
mod supervisor;
mod terminal;

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use permits::PermitSet;
use rustix::process::Signal;
use tokio::time::timeout;

use crate::acquire::{self, Caller, NoPermit, RELEASE_TIMEOUT, Requested};
use crate::args::{Common, Run};
use crate::exit::{self, Failure};
use crate::report;
use crate::text::shell_word;
use child::{Child, Ended, NotStarted};
use signals::Signals;
use supervisor::{Interrupt, Supervisor};
use terminal::Terminal;

/// Time for the release after the command was ended, when the permit is lost or about to end by itself.
pub(crate) const LOST_TIMEOUT: Duration = Duration::from_millis(500);

/// The variables by which systemd tells a service that something is for it, with the number of its process:
/// its sockets, its watchdog, and that it was started by systemd itself.
const OF_PROCESS: [&str; 3] = ["LISTEN_PID", "WATCHDOG_PID", "SYSTEMD_EXEC_PID"];

/// The bytes of a script of which the kernel reads its interpreter.
const MAX_FIRST_LINE: u64 = 256;

/// Runs the command. Returns the command's exit code, unless the permit was lost or not granted.
pub(crate) async fn run(common: &Common, options: Run) -> Result<u8, Failure> {
    let caller = Caller::Command(&options.command);
    let requested = Requested::new(common, &options.name, &options.request, &options.others.also, caller)?;
    // The command is looked for before the wait, and before a mistyped argument that looks like the name
    // makes a semaphore.
    if is_missing(&options.command[0]) {
        return Err(not_started(&options.command[0], &io::ErrorKind::NotFound.into(), &options));
    }
    let mut signals = Signals::listen().map_err(Failure::system)?;
    let acquired = requested.permits(signals.next_ending(), requested.show()).await;
    let (client, permits) = match acquired {
        Ok(acquired) => acquired,
        Err(NoPermit::Stopped(signal)) => return exit_by_signal(signal),
        Err(NoPermit::Failure(failure)) => return Err(failure),
    };
    let finished = hold(&permits, &options, signals).await;
    // The command has ended: a later loss no longer counts.
    let lost = if permits.is_held() { None } else { Some(supervisor::EndReason::lost(&permits).await) };
    drop(permits);
    if lost.is_some() || finished.as_ref().is_ok_and(|finished| finished.was_ended) {
        let _ = timeout(LOST_TIMEOUT, client.close()).await;
    } else {
        acquire::close(client, RELEASE_TIMEOUT).await;
    }
    let Finished { ended, interrupt, was_ended } = finished?;
    match (lost, ended) {
        _ if was_ended => Ok(exit::LOST),
        (None, Some(ended)) => {
            supervisor::die_by(interrupt).map_err(Failure::system)?;
            Ok(ended.code())
        }
        (Some(lost), Some(ended)) => {
            let message = format!("{lost}, noticed after the command had ended: {ended}");
            Err(Failure::new(exit::LOST, message).with(lost.fields()))
        }
        (Some(lost), None) => {
            let message = format!("{lost}, before the command ran");
            Err(Failure::new(exit::LOST, message).with(lost.fields()))
        }
        (None, None) => Ok(exit::LOST),
    }
}

/// Ends this process after a signal that ended the wait.
pub(crate) fn exit_by_signal(signal: Signal) -> Result<u8, Failure> {
    let from_terminal = || Terminal::controlling().is_some_and(|terminal| terminal.is_ours());
    if signal == Signal::INT && from_terminal() {
        supervisor::die_by(Interrupt::Own).map_err(Failure::system)?;
    }
    Ok(exit::from_signal(signal.as_raw()))
}

/// The result of the command.
struct Finished {
    /// The end of the command, or `None` if it never ran or survived SIGKILL.
    ended: Option<Ended>,
    interrupt: Interrupt,
    /// True if this process ended the command and has reported why.
    was_ended: bool,
}

/// Runs the command while the permit is held. When this returns, the command has ended, unless it has
/// survived SIGKILL.
async fn hold(permits: &PermitSet, options: &Run, mut signals: Signals) -> Result<Finished, Failure> {
    // Writes all messages and erases the status line before the command writes.
    report::flush();
    if !permits.is_held() {
        return Ok(Finished { ended: None, interrupt: Interrupt::None, was_ended: false });
    }
    signals.listen_to_child().map_err(Failure::system)?;
    let terminal = Terminal::controlling();
    // Any other command gets the terminal on demand, because it may run beside others that use it.
    let wants_terminal = terminal.as_ref().is_some_and(Terminal::is_stdin) && terminal::is_alone();
    let in_front = terminal.clone().filter(|terminal| wants_terminal && terminal.is_ours());
    let environment = environment(permits, &options.name);
    let numbered = OF_PROCESS.into_iter().filter(|name| is_own_number(name));
    let numbered: Vec<_> = numbered.collect();
    let child =
        Child::spawn(&options.command, &environment, &numbered, in_front.clone()).map_err(|error| {
            // The child may have taken the foreground before it failed.
            if let Some(terminal) = in_front {
                terminal.take_back();
            }
            match error {
                NotStarted::Program(error) => not_started(&options.command[0], &error, options),
                NotStarted::Call(call, error) => Failure::call(call, &error),
            }
        })?;
    let mut supervisor = Supervisor::new(child, signals, terminal, wants_terminal);
    let watched = supervisor.watch(permits, options.request.max_hold).await;
    if let Err(reason) = &watched {
        supervisor.end_command(reason).await;
    }
    let (ended, interrupt) = supervisor.finish(watched.is_err());
    Ok(Finished { ended, interrupt, was_ended: watched.is_err() })
}

/// True if the variable has the number of this process. Then it is meant for the command.
fn is_own_number(name: &str) -> bool {
    env::var(name).is_ok_and(|number| number == std::process::id().to_string())
}

/// The variables of the command: the fields of the permit of `name`, a list of the other permits, and a list
/// of all, with the permits of the runs around this one.
fn environment(permits: &PermitSet, name: &str) -> Vec<(&'static str, String)> {
    let mut environment = Vec::new();
    let mut also = Vec::new();
    let mut all: Vec<_> = env::var(acquire::OUTER).into_iter().filter(|outer| !outer.is_empty()).collect();
    for permit in permits.permits() {
        let (name_of, token, slot) = (permit.semaphore(), permit.token(), permit.slot());
        // The name is the last, because it may have spaces. It has no line feed.
        let line = format!("{token} {slot} {name_of}");
        all.push(line.clone());
        if name_of != name {
            also.push(line);
            continue;
        }
        environment.extend([
            ("PERMITS_NAME", name_of.to_owned()),
            ("PERMITS_HOLDER", permit.holder().to_owned()),
            ("PERMITS_TOKEN", token.to_string()),
            ("PERMITS_SLOT", slot.to_string()),
        ]);
    }
    // Also if it is empty: a permits that runs in a permits would pass on the outer one's.
    environment.push(("PERMITS_ALSO", also.join("\n")));
    environment.push((acquire::OUTER, all.join("\n")));
    environment
}

/// Returns true if the system would find no such program.
fn is_missing(program: &OsStr) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound};
    // A permission error does not prove that the file is missing.
    let is_missing = |path: &PathBuf| match fs::metadata(path) {
        Err(error) => matches!(error.kind(), NotFound | NotADirectory),
        Ok(_) => false,
    };
    places(program).is_some_and(|places| places.iter().all(is_missing))
}

/// The paths of a program, as the system looks for it; `None` if that is not known.
fn places(program: &OsStr) -> Option<Vec<PathBuf>> {
    if program.as_bytes().contains(&b'/') {
        return Some(vec![program.into()]);
    }
    let path = env::var_os("PATH")?;
    Some(env::split_paths(&path).map(|directory| directory.join(program)).collect())
}

/// The interpreter of a script, by its first line.
fn interpreter(script: &Path) -> Option<String> {
    let mut line = Vec::new();
    File::open(script).ok()?.take(MAX_FIRST_LINE).read_to_end(&mut line).ok()?;
    let line = String::from_utf8_lossy(&line);
    // The end of a line of Windows is a part of the name, for the kernel and so in the message.
    let blanks = [' ', '\t'];
    let name = line.split('\n').next()?.strip_prefix("#!")?.trim_matches(blanks).split(blanks).next()?;
    Some(name.to_owned())
}

fn not_started(program: &OsString, error: &io::Error, options: &Run) -> Failure {
    match error.kind() {
        io::ErrorKind::NotFound => {
            if let Some(interpreter) = places(program).iter().flatten().find_map(|path| interpreter(path)) {
                let message =
                    format!("cannot execute {program:?}: its interpreter {interpreter:?} was not found");
                return Failure::new(exit::NOT_EXECUTABLE, message);
            }
            let text = program.to_string_lossy();
            let hint = if options.request.no_wait && text.parse::<u32>().is_ok() {
                Some(format!("-n is --no-wait, and the limit is --limit {text}"))
            } else if Path::new(program).is_file() && !text.contains('/') {
                Some(format!("the file of this directory is {}", shell_word(&format!("./{text}"))))
            } else if text.contains(char::is_whitespace) {
                Some(format!("there is no shell: write sh -c {}", shell_word(&text)))
            } else {
                acquire::forgotten_name(&options.name)
            };
            let hint = hint.map(|hint| format!("; {hint}"));
            let message = format!("command not found: {program:?}{}", hint.unwrap_or_default());
            Failure::new(exit::NOT_FOUND, message)
        }
        _ => Failure::new(exit::NOT_EXECUTABLE, format!("cannot execute {program:?}: {error}")),
    }
}
