//! `permits hold`: holds permits for a program in any language that can start a process.
//!
//! The protocol is docs/hold.md: an [`Event`] a line on standard output, a command a line on standard input.
//! The permit is released when the program says so, closes standard input, or ends. Until then it is kept,
//! also through a Ctrl-C, which reaches the whole process group: the program may still use the resource.
//!
//! Here is the hold of one permit, or of those of `--also` with it; [`many`] has the hold of any number.

mod ending;
mod events;
mod lines;
mod many;

use std::convert::Infallible;
use std::future::pending;

use futures_util::future::LocalBoxFuture;
use permits::{Client, Lost, Permit, PermitSet, PermitStatus, ReleaseError, RenewError};
use serde_json::json;
use tokio::time::{interval, timeout};

use crate::acquire::{Caller, LEASE, NoPermit, Pending, RELEASE_TIMEOUT, Requested, UNANSWERED};
use crate::args::{Common, Hold};
use crate::clock::milliseconds;
use crate::exit::{self, Failure};
use crate::output::Output;
use crate::report;
use crate::run::LOST_TIMEOUT;
use crate::text;
use ending::{CHECK_EVERY, End, Ending};
use events::Event;
use lines::Lines;

/// The least number of checks of a permit in one lease.
const CHECKS_PER_LEASE: u32 = 16;

/// The columns of a line that is no command, in the message.
const SHOWN_COLUMNS: usize = 256;

/// Holds permits until the program that started this process lets go of them.
pub(crate) async fn hold(common: &Common, options: &Hold) -> Result<u8, Failure> {
    match (&options.listen, &options.name) {
        (Some(path), _) => many::listen(common, path).await,
        (None, None) => many::hold(common).await,
        (None, Some(name)) => hold_one(common, name, options).await,
    }
}

/// Holds a permit of `name`, and those of `--also` with it.
async fn hold_one(common: &Common, name: &str, options: &Hold) -> Result<u8, Failure> {
    let caller = Caller::Verb("hold");
    let requested = Requested::new(common, name, &options.request, &options.others.also, caller)?;
    let output = Output::start().map_err(Failure::system)?;
    let mut program = Program::listen().map_err(Failure::system)?;
    let lease = options.request.lease.unwrap_or(LEASE);
    let show = async |wait: &Pending<'_>| show(wait, &output).await;
    let result = match requested.permits(lease, program.before_grant(&output), show).await {
        Ok((client, permits)) => held(client, permits, name, &mut program, &output).await,
        Err(NoPermit::Stopped(end)) => Ok(end),
        Err(NoPermit::Failure(failure)) => {
            let reason = failure.message.clone();
            let retry_after_ms = failure.fields["retry_after_ms"].as_u64();
            let refused = requested.refused(failure);
            output.write(&Event::Failed { exit_code: refused.code, reason: &reason, retry_after_ms });
            Err(refused)
        }
    };
    if let Ok(end) = &result {
        output.write(&Event::Released { reason: &end.reason() });
    }
    output.flush();
    result.map(|end| end.code())
}

/// Writes each change of the position, for as long as this future is polled.
async fn show(wait: &Pending<'_>, output: &Output) -> Infallible {
    let (mut check, mut shown) = (interval(CHECK_EVERY), None);
    loop {
        check.tick().await;
        let (name, position, expected) = wait.line();
        if let Some(position) = position
            && shown != Some((name.clone(), position))
            && !output.is_behind()
        {
            let expected_ms = expected.map(milliseconds);
            output.write(&Event::Waiting { name: &name, position, expected_ms });
            shown = Some((name, position));
        }
    }
}

/// Keeps the permits until the end, and releases them.
async fn held(
    client: Client,
    permits: PermitSet,
    name: &str,
    program: &mut Program,
    output: &Output,
) -> Result<End, Failure> {
    let kept = keep(&permits, name, program, output).await;
    let result = match kept {
        Ok(end) => release(permits).await.map(|()| end),
        Err(lost) => Err(lost),
    };
    let _ = timeout(LOST_TIMEOUT, client.close()).await;
    result.map_err(|fault| match fault {
        Fault::Lost(name, lost) => {
            let name = name.as_deref();
            let fields = json!({ "semaphore": name, "reason": lost.to_string() });
            output.write(&Event::Lost { name, reason: &lost.to_string() });
            let name = name.map(|name| format!("{name:?}: ")).unwrap_or_default();
            Failure::new(exit::LOST, format!("{name}{lost}")).with(fields)
        }
        Fault::Unreleased(reason) => {
            let exit_code = exit::UNAVAILABLE;
            output.write(&Event::Failed { exit_code, reason: &reason, retry_after_ms: None });
            Failure::new(exit::UNAVAILABLE, reason)
        }
    })
}

/// The reason why permits were not released.
enum Fault {
    /// One was lost, of this semaphore if it is known.
    Lost(Option<String>, Lost),
    Unreleased(String),
}

/// Reports the grant and the state of the permits until the end of the hold or the loss of one of them.
async fn keep(permits: &PermitSet, name: &str, program: &mut Program, output: &Output) -> Result<End, Fault> {
    let granted = output.write(&Event::granted(permits, name));
    let lease = permits.permits().iter().map(Permit::lease).min().unwrap_or_default();
    let mut check = interval(CHECK_EVERY.min(lease / CHECKS_PER_LEASE));
    let mut renewal: Option<LocalBoxFuture<'_, Result<(), RenewError>>> = None;
    let mut shown = State::Held;
    loop {
        let renewed = async {
            match &mut renewal {
                Some(renewal) => renewal.await,
                None => pending().await,
            }
        };
        let (mut state, mut asked) = (None, false);
        tokio::select! {
            biased;
            (permit, lost) = permits.lost() => return Err(Fault::Lost(Some(permit.semaphore().to_owned()), lost)),
            command = program.next() => match command {
                Asked::End(end) => return Ok(end),
                Asked::Renew => asked = true,
                Asked::Count(units) => {
                    let named = permits.get(name).expect("it is one of them");
                    if let Err(error) = named.count(units) {
                        report::say(report::with_causes(&error));
                    }
                }
            },
            renewed = renewed => state = Some(if renewed.is_ok() { State::Held } else { State::Unsure }),
            _ = check.tick() => {}
        }
        if asked && renewal.is_none() {
            renewal = Some(Box::pin(permits.renew()));
        }
        if state.is_some() {
            renewal = None;
        }
        // Without this line, the program does not know that it may use the resource.
        if output.has_failed_before(granted) {
            return Ok(End::OutputClosed);
        }
        let is_unsure = permits.permits().iter().any(|permit| permit.status() == PermitStatus::Unsure);
        let now = state.unwrap_or(if is_unsure { State::Unsure } else { State::Held });
        if state.is_some() || now != shown {
            let remaining_ms = milliseconds(permits.remaining());
            output.write(&match now {
                State::Held => Event::Held { remaining_ms },
                State::Unsure => Event::Unsure { remaining_ms },
            });
            shown = now;
        }
    }
}

/// The state of permits that are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Held,
    Unsure,
}

async fn release(permits: PermitSet) -> Result<(), Fault> {
    match timeout(RELEASE_TIMEOUT, permits.release()).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(ReleaseError::Lost(lost))) => Err(Fault::Lost(None, lost)),
        Ok(Err(error)) => Err(Fault::Unreleased(report::with_causes(&error))),
        Err(_) => Err(Fault::Unreleased(UNANSWERED.to_owned())),
    }
}

/// A wish of the program or of the system.
enum Asked {
    End(End),
    Renew,
    /// The units that the grant counts for.
    Count(u32),
}

/// The program that started this process: its commands, and its end.
struct Program {
    ending: Ending,
    lines: Lines,
}

impl Program {
    fn listen() -> std::io::Result<Self> {
        Ok(Self { ending: Ending::listen()?, lines: Lines::standard()? })
    }

    /// The next wish. Cancel safe.
    async fn next(&mut self) -> Asked {
        loop {
            let line = tokio::select! {
                biased;
                end = self.ending.next() => return Asked::End(end),
                line = self.lines.next() => line,
            };
            match line.as_ref().map(|line| line.bytes.as_slice()) {
                None => return Asked::End(End::InputClosed),
                Some(b"release") => return Asked::End(End::Asked),
                Some(b"renew") => return Asked::Renew,
                Some(other) => {
                    let line = String::from_utf8_lossy(other);
                    if let Some(units) = line.strip_prefix("count ").and_then(|units| units.parse().ok()) {
                        return Asked::Count(units);
                    }
                    let line = text::truncate(&line, SHOWN_COLUMNS);
                    report::say(format_args!("{line:?} is no command: write release, renew, or count UNITS"));
                }
            }
        }
    }

    /// The end of the wait.
    async fn before_grant(&mut self, output: &Output) -> End {
        loop {
            tokio::select! {
                asked = self.next() => match asked {
                    Asked::End(end) => return end,
                    Asked::Renew | Asked::Count(_) => report::say("nothing is held yet"),
                },
                () = output.failed() => return End::OutputClosed,
            }
        }
    }
}
