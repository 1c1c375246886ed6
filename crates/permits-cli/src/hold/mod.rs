//! `permits hold`: holds a permit for a program in any language that can start a process.
//!
//! The protocol is docs/hold.md: an [`Event`] a line on standard output, a [`Command`] a line on standard
//! input. The permit is released when the program says so, closes standard input, or ends. Until then it is
//! kept, also through a Ctrl-C, which reaches the whole process group: the program may still use the
//! resource.

mod events;
mod input;

use std::convert::Infallible;
use std::future::pending;
use std::io::{self, IsTerminal as _};
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use permits::{Client, Lost, Permit, PermitSet, PermitStatus, ReleaseError, RenewError};
use rustix::process::{Pid, Signal, getppid};
use serde_json::json;
use tokio::time::{Interval, interval, timeout};

use crate::acquire::{Caller, LEASE, NoPermit, Pending, RELEASE_TIMEOUT, Requested, UNANSWERED};
use crate::args::{Common, Hold};
use crate::clock::milliseconds;
use crate::exit::{self, Failure};
use crate::output::Output;
use crate::report;
use crate::run::LOST_TIMEOUT;
use crate::run::signals::Signals;
use events::Event;
use input::{Command, Input};

/// The longest interval between two checks of a position, the state of a permit, and the parent process.
const CHECK_EVERY: Duration = Duration::from_millis(250);

/// The least number of checks of a permit in one lease.
const CHECKS_PER_LEASE: u32 = 16;

/// Holds a permit until the program that started this process lets go of it.
pub(crate) async fn hold(common: &Common, options: &Hold) -> Result<u8, Failure> {
    let requested = Requested::new(common, &options.request, &options.others.also, Caller::Verb("hold"))?;
    let output = Output::start().map_err(Failure::system)?;
    let mut ending = Ending::listen().map_err(Failure::system)?;
    let lease = options.request.lease.unwrap_or(LEASE);
    let show = async |wait: &Pending<'_>| show(wait, &output).await;
    let result = match requested.permits(lease, ending.before_grant(&output), show).await {
        Ok((client, permits)) => held(client, permits, &options.request.name, &mut ending, &output).await,
        Err(NoPermit::Stopped(end)) => Ok(end),
        Err(NoPermit::Failure(failure)) => {
            let reason = failure.message.clone();
            let refused = requested.refused(failure);
            output.write(&Event::Failed { exit_code: refused.code, reason: &reason });
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
        let (name, position) = wait.line();
        if let Some(position) = position
            && shown != Some((name.clone(), position))
            && !output.is_behind()
        {
            output.write(&Event::Waiting { name: &name, position });
            shown = Some((name, position));
        }
    }
}

/// Keeps the permits until the end, and releases them.
async fn held(
    client: Client,
    permits: PermitSet,
    name: &str,
    ending: &mut Ending,
    output: &Output,
) -> Result<End, Failure> {
    let kept = keep(&permits, name, ending, output).await;
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
            output.write(&Event::Failed { exit_code: exit::UNAVAILABLE, reason: &reason });
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
async fn keep(permits: &PermitSet, name: &str, ending: &mut Ending, output: &Output) -> Result<End, Fault> {
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
            command = ending.next() => match command {
                Asked::End(end) => return Ok(end),
                Asked::Renew => asked = true,
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

/// An orderly end.
enum End {
    Asked,
    InputClosed,
    /// The grant could not be reported.
    OutputClosed,
    ParentEnded,
    Signal(Signal),
}

impl End {
    fn reason(&self) -> String {
        match self {
            Self::Asked => "asked on standard input".to_owned(),
            Self::InputClosed => "standard input is closed".to_owned(),
            Self::OutputClosed => "standard output is closed".to_owned(),
            Self::ParentEnded => "the parent process has ended".to_owned(),
            Self::Signal(signal) => format!("signal {}", signal.as_raw()),
        }
    }

    fn code(&self) -> u8 {
        match self {
            Self::Signal(signal) => exit::from_signal(signal.as_raw()),
            _ => exit::SUCCESS,
        }
    }
}

/// A wish of the program or of the system.
enum Asked {
    End(End),
    Renew,
}

/// Everything that ends a hold, apart from the loss of a permit.
struct Ending {
    signals: Signals,
    input: Input,
    /// The parent at the start. The kernel's death signal is no alternative: it comes when the parent's
    /// *thread* ends that started this process.
    parent: Option<Pid>,
    check: Interval,
    /// Standard input is a terminal: a person uses this process alone.
    is_interactive: bool,
}

impl Ending {
    fn listen() -> io::Result<Self> {
        Ok(Self {
            signals: Signals::ending()?,
            input: Input::start()?,
            parent: getppid(),
            check: interval(CHECK_EVERY),
            is_interactive: io::stdin().is_terminal(),
        })
    }

    /// The next wish. Cancel safe.
    async fn next(&mut self) -> Asked {
        loop {
            tokio::select! {
                biased;
                signal = self.signals.next() => {
                    // A terminal sends the others to the program as well, which may still use the resource.
                    if self.is_interactive || signal == Signal::TERM {
                        return Asked::End(End::Signal(signal));
                    }
                }
                command = self.input.next() => match command {
                    None => return Asked::End(End::InputClosed),
                    Some(Command::Release) => return Asked::End(End::Asked),
                    Some(Command::Renew) => return Asked::Renew,
                    Some(Command::Unknown(line)) => {
                        report::say(format_args!("{line:?} is no command: write release or renew"));
                    }
                },
                _ = self.check.tick() => {
                    if getppid() != self.parent {
                        return Asked::End(End::ParentEnded);
                    }
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
                    Asked::Renew => report::say("nothing is held yet"),
                },
                () = output.failed() => return End::OutputClosed,
            }
        }
    }
}
