//! The ends of a hold, apart from the loss of a permit.

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use rustix::process::{Pid, Signal, getppid};
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::exit;
use crate::output;
use crate::run::signals::Signals;

/// The longest interval between two checks of a position, the state of a permit, and the parent process.
pub(super) const CHECK_EVERY: Duration = Duration::from_millis(250);

/// An orderly end.
#[derive(Debug, Clone, Copy)]
pub(super) enum End {
    /// A line asked for the end.
    Asked,
    /// A line asked for the end, and for a handle of the permit.
    HandOver,
    InputClosed,
    ConnectionClosed,
    /// Events cannot be written.
    OutputClosed,
    ParentEnded,
    Signal(Signal),
}

impl End {
    pub(super) fn reason(self) -> String {
        match self {
            Self::Asked | Self::HandOver => "asked by the program".to_owned(),
            Self::InputClosed => "standard input is closed".to_owned(),
            Self::ConnectionClosed => "the connection is closed".to_owned(),
            Self::OutputClosed => "standard output is closed".to_owned(),
            Self::ParentEnded => "the parent process has ended".to_owned(),
            Self::Signal(signal) => format!("signal {}", signal.as_raw()),
        }
    }

    pub(super) fn code(self) -> u8 {
        match self {
            Self::Signal(signal) => exit::from_signal(signal.as_raw()),
            _ => output::code(),
        }
    }
}

/// The ends that the system reports to a process that another program has started.
pub(super) struct Ending {
    signals: Signals,
    /// The parent at the start. The kernel's death signal is no alternative: it comes when the parent's
    /// *thread* ends that started this process.
    parent: Option<Pid>,
    check: Interval,
    /// Standard input is a terminal: a person uses this process alone.
    is_interactive: bool,
}

impl Ending {
    /// Listens from now on.
    ///
    /// # Errors
    /// The system's error if it refuses to report signals.
    pub(super) fn listen() -> io::Result<Self> {
        let mut check = interval(CHECK_EVERY);
        check.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Ok(Self {
            signals: Signals::ending()?,
            parent: getppid(),
            check,
            is_interactive: io::stdin().is_terminal(),
        })
    }

    /// The next end. Cancel safe.
    pub(super) async fn next(&mut self) -> End {
        loop {
            tokio::select! {
                biased;
                signal = self.signals.next() => {
                    // A terminal sends the others to the program as well, which may still use the resource.
                    if self.is_interactive || signal == Signal::TERM {
                        return End::Signal(signal);
                    }
                }
                _ = self.check.tick() => {
                    if getppid() != self.parent {
                        return End::ParentEnded;
                    }
                }
            }
        }
    }
}
