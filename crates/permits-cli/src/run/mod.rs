//! `permits run`: waits in line, runs a command while the permit is held, and releases it.
//!
//! The order: listen to signals; connect; acquire, which a signal cancels; start the command; supervise it
//! until it has ended, or end it when the permit is lost; release the permit within a bounded time, even if
//! the store is gone. When the permit is released, the command has ended.

mod child;
pub(crate) mod posix;
pub(crate) mod signals;
mod supervisor;
mod terminal;
mod waiting;

use std::cell::Cell;
use std::ffi::OsString;
use std::future::{Future as _, poll_fn};
use std::io;
use std::pin::Pin;
use std::time::Duration;

use permits::{AcquireError, AcquireOptions, Client, Limit, Permit, Semaphore};
use rustix::process::Signal;
use tokio::time::{Instant, timeout};

use crate::args::{Common, Run};
use crate::connect::Target;
use crate::exit::{self, Failure};
use crate::report;
use child::{Child, Ended};
use signals::Signals;
use supervisor::{Interrupt, Supervisor};
use terminal::Terminal;

/// Time for the release: a little longer than the library retries.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(6);

/// Time for leaving the line after a signal or a refusal.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);

/// Time for the release after the command was ended, when the permit is lost or about to end by itself.
const LOST_TIMEOUT: Duration = Duration::from_millis(500);

/// The default store timeout, and its minimum with any `--wait`: connecting takes a while on a slow network.
const STORE_TIMEOUT: Duration = Duration::from_secs(10);
const MIN_STORE_TIMEOUT: Duration = Duration::from_secs(1);

/// Runs the command. Returns the command's exit code, unless the permit was lost or not granted.
pub(crate) async fn run(common: &Common, options: Run) -> Result<u8, Failure> {
    let began = Instant::now();
    let mut signals = Signals::listen().map_err(Failure::system)?;
    let mut target = Target::of(common)?;
    if common.verbose > 0 {
        report::say(format_args!("store {}", target.store));
    }
    target.builder = target.builder.lease(options.lease);
    if let Some(recovery) = options.recovery {
        target.builder = target.builder.recovery(recovery.into());
    }
    let default_timeout = options.wait.map_or(STORE_TIMEOUT, |wait| wait.max(MIN_STORE_TIMEOUT));
    let client = tokio::select! {
        biased;
        signal = signals.next_ending() => return exit_by_signal(signal),
        client = target.connect(common.store_timeout.unwrap_or(default_timeout)) => client?,
    };
    // `--wait` covers connecting and waiting.
    let wait = options.wait.map(|wait| wait.saturating_sub(began.elapsed()));
    let permit = match acquire(&client, &options, wait, common.verbose, &mut signals).await {
        Ok(permit) => permit,
        Err(reason) => {
            close(client, LEAVE_TIMEOUT).await;
            return match reason {
                NoPermit::Signal(signal) => exit_by_signal(signal),
                NoPermit::Failure(failure) if failure.code == exit::NOT_NOW => {
                    let message = if options.quiet { String::new() } else { failure.message };
                    Err(Failure::new(options.conflict_exit_code, message))
                }
                NoPermit::Failure(failure) => Err(failure),
            };
        }
    };
    let finished = hold(&permit, &options.command, signals).await;
    // The command has ended: a later loss no longer counts.
    let lost = if permit.is_held() { None } else { Some(permit.lost().await) };
    drop(permit);
    if lost.is_some() || finished.as_ref().is_ok_and(|finished| finished.was_ended) {
        let _ = timeout(LOST_TIMEOUT, client.close()).await;
    } else {
        close(client, RELEASE_TIMEOUT).await;
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
            Err(Failure::new(exit::LOST, message))
        }
        (Some(lost), None) => Err(Failure::new(exit::LOST, format!("{lost}, before the command ran"))),
        (None, None) => Ok(exit::LOST),
    }
}

/// The reason why no permit was acquired.
enum NoPermit {
    Signal(Signal),
    Failure(Failure),
}

/// Acquires a permit, or waits in line for one.
async fn acquire(
    client: &Client,
    options: &Run,
    wait: Option<Duration>,
    verbose: u8,
    signals: &mut Signals,
) -> Result<Permit, NoPermit> {
    let limit = match options.limit {
        Some(limit) if options.require_limit => Limit::Exactly(limit),
        Some(limit) => Limit::Declared(limit),
        None => Limit::Stored,
    };
    let semaphore =
        client.semaphore(&options.name, limit).map_err(|invalid| NoPermit::Failure(invalid.into()))?;
    let mut request = AcquireOptions::new().weight(options.weight).at_least(options.at_least);
    if options.no_wait {
        request = request.no_wait();
    } else if let Some(wait) = wait {
        request = request.timeout(wait);
    }
    if let Some(holder) = &options.holder {
        request = request.holder(holder);
    }
    if let Some(label) = &options.label {
        request = request.label(label);
    }
    let position = Cell::new(None);
    let mut acquire = semaphore.acquire_with(request);
    let acquire = poll_fn(|context| {
        let polled = Pin::new(&mut acquire).poll(context);
        position.set(acquire.position());
        polled
    });
    let acquired = tokio::select! {
        biased;
        signal = signals.next_ending() => Err(NoPermit::Signal(signal)),
        acquired = acquire => match acquired {
            Ok(permit) => Ok(permit),
            Err(error) => Err(NoPermit::Failure(refusal(error, options.wait, &semaphore).await)),
        },
        never = waiting::show(&semaphore, || position.get(), verbose > 0) => match never {},
    };
    report::erase_status();
    let permit = acquired?;
    if verbose > 0 {
        let (holder, token, slot) = (permit.holder(), permit.token(), permit.slot());
        report::say(format_args!("{:?} granted to {holder:?}, token {token}, slot {slot}", options.name));
    }
    Ok(permit)
}

/// The failure for `error`. A refusal gets the reason why no permit is free, which need not be other holders.
async fn refusal(error: AcquireError, wait: Option<Duration>, semaphore: &Semaphore) -> Failure {
    let refused = match (&error, wait) {
        (AcquireError::Recovering { remaining }, _) => {
            let message = format!("no permit now: {}", waiting::recovery_reason(*remaining));
            return Failure::new(exit::NOT_NOW, message);
        }
        (AcquireError::TimedOut { .. }, Some(wait)) => format!("no permit within {wait:?}"),
        // The store was reached when the time was nearly over.
        (AcquireError::NoPermits, Some(wait)) if !wait.is_zero() => format!("no permit within {wait:?}"),
        (AcquireError::NoPermits, _) => "no permit now".to_owned(),
        _ => return Failure::from(error),
    };
    let message = match waiting::blocking_reason(semaphore).await {
        Some(reason) => format!("{refused}: {reason}"),
        None => refused,
    };
    Failure::new(exit::NOT_NOW, message)
}

/// Ends this process after a signal that ended the wait.
fn exit_by_signal(signal: Signal) -> Result<u8, Failure> {
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

/// Runs the command while the permit is held. When this returns, the command has ended.
async fn hold(permit: &Permit, command: &[OsString], mut signals: Signals) -> Result<Finished, Failure> {
    // Writes all messages and erases the status line before the command writes.
    report::flush();
    if !permit.is_held() {
        return Ok(Finished { ended: None, interrupt: Interrupt::None, was_ended: false });
    }
    signals.listen_to_child().map_err(Failure::system)?;
    let terminal = Terminal::controlling();
    // A command that does not read from the terminal gets it on demand, because it may run beside others that read.
    let wants_terminal = terminal.as_ref().is_some_and(Terminal::is_stdin);
    let in_front = terminal.clone().filter(|terminal| wants_terminal && terminal.is_ours());
    let environment = [
        ("PERMITS_NAME", permit.semaphore().to_owned()),
        ("PERMITS_HOLDER", permit.holder().to_owned()),
        ("PERMITS_TOKEN", permit.token().to_string()),
        ("PERMITS_SLOT", permit.slot().to_string()),
    ];
    let child = Child::spawn(command, &environment, in_front.clone()).map_err(|error| {
        // The child may have taken the foreground before it failed.
        if let Some(terminal) = in_front {
            terminal.take_back();
        }
        not_started(&command[0], &error)
    })?;
    let mut supervisor = Supervisor::new(child, signals, terminal, wants_terminal);
    let watched = supervisor.watch(permit).await;
    if let Err(reason) = &watched {
        supervisor.end_command(reason).await;
    }
    let (ended, interrupt) = supervisor.finish();
    Ok(Finished { ended, interrupt, was_ended: watched.is_err() })
}

fn not_started(program: &OsString, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::NotFound => Failure::new(exit::NOT_FOUND, format!("command not found: {program:?}")),
        _ => Failure::new(exit::NOT_EXECUTABLE, format!("cannot execute {program:?}: {error}")),
    }
}

/// Closes the client within `timeout`.
async fn close(client: Client, timeout: Duration) {
    match tokio::time::timeout(timeout, client.close()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => report::say(report::with_causes(&error)),
        Err(_) => report::say("the store does not answer; it frees the units when the lease ends"),
    }
}
