//! `permits acquire`, `permits renew` and `permits release`: a permit as a text, for scripts that cannot run
//! inside `permits run`.
//!
//! The store holds the permit between these calls, without a process of ours. The permit ends with its lease
//! unless `permits renew` is called in time.

use std::io::{self, BufRead as _, Read as _};
use std::thread;
use std::time::Duration;

use permits::{AdminError, Client, Permit, PermitHandle, RenewError};
use serde::Serialize;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use crate::acquire::{self, Caller, LEASE, LEAVE_TIMEOUT, NoPermit, PermitJson, RELEASE_TIMEOUT, Requested};
use crate::args::{Acquire, Common, Handle, Release, Renew, Request};
use crate::clock::milliseconds;
use crate::connect::{self, Target};
use crate::exit::{self, Failure};
use crate::posix::is_stdout_closed;
use crate::report;
use crate::run;
use crate::run::signals::Signals;
use crate::stdout;

/// The default lease of a permit that no process renews.
pub(crate) const HANDLE_LEASE: Duration = Duration::from_secs(5 * 60);

/// The longest handle: a name and a holder of 200 bytes each, percent-encoded, and some numbers.
const MAX_HANDLE: u64 = 2048;

/// The object that `permits acquire --json` prints, and `POST /v1/acquire` replies with. Programs depend on
/// it: fields may be added, never changed.
#[derive(Serialize)]
pub(crate) struct Acquired<'a> {
    handle: String,
    #[serde(flatten)]
    permit: &'a PermitJson,
    remaining_ms: u64,
}

impl<'a> Acquired<'a> {
    /// A permit that is held at least until `until`.
    pub(crate) fn new(handle: &PermitHandle, permit: &'a PermitJson, until: Instant) -> Self {
        let remaining_ms = milliseconds(until.saturating_duration_since(Instant::now()));
        Self { handle: handle.to_string(), permit, remaining_ms }
    }

    /// Prints the handle, or the whole object. Fails if no reader can have it.
    ///
    /// # Cancel safety
    /// The thread that writes ends with the process: a pipe that is full and not read would block it.
    async fn print(&self, as_json: bool) -> Result<u8, Failure> {
        let json = || serde_json::to_string(self).expect("it has neither maps nor failing fields");
        let line = if as_json { json() } else { self.handle.clone() };
        let (sender, written) = oneshot::channel();
        let write = move || drop(sender.send(stdout::write(format!("{line}\n").as_bytes())));
        thread::Builder::new().name("stdout".into()).spawn(write).map_err(Failure::system)?;
        let written = written.await.expect("the thread sends a result");
        written.map(|()| exit::SUCCESS).map_err(|error| {
            let message =
                format!("cannot write the handle to standard output: {error}; the permit is released");
            Failure::new(exit::SYSTEM, message)
        })
    }
}

/// Acquires a permit and prints its handle.
pub(crate) async fn acquire(common: &Common, options: &Acquire) -> Result<u8, Failure> {
    if is_stdout_closed() {
        return Err(Failure::new(exit::SYSTEM, "standard output is closed: no reader would have the handle"));
    }
    if Target::of(common)?.store.starts_with("memory:") {
        let message = "memory: ends with this process, and so would the permit: use local: or a server";
        return Err(Failure::new(exit::USAGE, message));
    }
    if options.request.max_hold.is_some() {
        let message =
            "--max-hold is for run and hold: no process watches a handle, which ends with its --lease";
        return Err(Failure::new(exit::USAGE, message));
    }
    let lease = options.request.lease.unwrap_or(HANDLE_LEASE);
    // A waiter that dies leaves the line when the short lease ends.
    let request = Request { lease: Some(lease.min(LEASE)), ..options.request.clone() };
    let requested = Requested::new(common, &options.name, &request, &[], Caller::Verb("acquire"))?;
    let mut signals = Signals::listen().map_err(Failure::system)?;
    let acquired = requested.permits(signals.next_ending(), requested.show()).await;
    let (client, permits) = match acquired {
        Ok(acquired) => acquired,
        Err(NoPermit::Stopped(signal)) => return run::exit_by_signal(signal),
        Err(NoPermit::Failure(failure)) => return Err(failure),
    };
    let Ok([permit]) = <[Permit; 1]>::try_from(permits.into_permits()) else {
        unreachable!("one semaphore was requested");
    };
    let permit_json = PermitJson::new(&permit);
    let handed_over = tokio::select! {
        biased;
        // The permit is dropped, which releases it.
        signal = signals.next_ending() => Err(NoPermit::Stopped(signal)),
        handed_over = hand_over(permit, lease) => handed_over.map_err(|error| {
            let code = if matches!(error, RenewError::Lost(_)) { exit::LOST } else { exit::UNAVAILABLE };
            NoPermit::Failure(Failure::new(code, report::with_causes(&error)))
        }),
    };
    let result = match handed_over {
        Ok((handle, until)) => {
            let acquired = Acquired::new(&handle, &permit_json, until);
            let printed = tokio::select! {
                biased;
                printed = acquired.print(options.json) => printed.map_err(NoPermit::Failure),
                signal = signals.next_ending() => Err(NoPermit::Stopped(signal)),
            };
            if printed.is_err() {
                // The handle was not printed, so no other process has it.
                let _ = timeout(RELEASE_TIMEOUT, client.release(&handle)).await;
            }
            printed
        }
        Err(stopped) => Err(stopped),
    };
    acquire::close(client, LEAVE_TIMEOUT).await;
    match result {
        Ok(code) => Ok(code),
        Err(NoPermit::Stopped(signal)) => run::exit_by_signal(signal),
        Err(NoPermit::Failure(failure)) => Err(failure),
    }
}

/// Gives the permit the lease, and turns it into a handle. Returns also the time until which the permit is
/// held at least.
pub(crate) async fn hand_over(
    permit: Permit,
    lease: Duration,
) -> Result<(PermitHandle, Instant), RenewError> {
    if permit.lease() != lease {
        permit.set_lease(lease).await?;
    }
    let until = Instant::now() + lease;
    Ok((permit.hand_over().await?, until))
}

/// Why the store no longer has the permit of a handle, as far as it can be known.
pub(crate) fn gone(handle: &PermitHandle) -> String {
    let why = "its lease ended, it was released, revoked or adopted, or the store lost it";
    format!("the store no longer has this permit of {:?}: {why}", handle.semaphore())
}

/// Renews the permit of a handle.
pub(crate) async fn renew(common: &Common, options: Renew) -> Result<u8, Failure> {
    let handle = options.handle.given.read()?;
    let client = connect::operator(common).await?;
    let renewed = client.renew(&handle).await;
    finish(client, &handle, renewed).await
}

/// Releases the permit of a handle.
pub(crate) async fn release(common: &Common, options: Release) -> Result<u8, Failure> {
    let mut handle = options.handle.given.read()?;
    if let Some(units) = options.count {
        handle.count(units)?;
    }
    let client = connect::operator(common).await?;
    let released = client.release(&handle).await;
    finish(client, &handle, released).await
}

/// Ends the session. It fails if the store does not have the permit.
async fn finish(
    client: Client,
    handle: &PermitHandle,
    done: Result<bool, AdminError>,
) -> Result<u8, Failure> {
    // Nothing is left to release.
    let _ = timeout(LEAVE_TIMEOUT, client.close()).await;
    if done? {
        return Ok(exit::SUCCESS);
    }
    Err(Failure::new(exit::LOST, gone(handle)))
}

impl Handle {
    /// The handle, from standard input if the argument says so.
    fn read(self) -> Result<PermitHandle, Failure> {
        if let Self::Text(handle) = self {
            return Ok(*handle);
        }
        let mut line = String::new();
        let read = io::stdin().lock().take(MAX_HANDLE).read_line(&mut line);
        let wrong = |why: &str| Failure::new(exit::USAGE, format!("no handle on standard input: {why}"));
        read.map_err(|error| wrong(&error.to_string()))?;
        line.parse().map_err(|error: permits::InvalidInput| wrong(&error.to_string()))
    }
}
