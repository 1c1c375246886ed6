//! Signals: the ones that end any verb, and the ones that `permits run` forwards.
//!
//! `permits run` forwards each signal that a program can catch, because it cannot know which ones its command
//! uses: a server may be stopped by SIGWINCH or SIGRTMIN+3. It leaves out SIGCHLD, SIGPIPE, and the signals
//! of a fault (SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV, SIGSYS), which the kernel sends to the process that
//! made it: with a handler, this process would repeat the fault for ever.

use std::future::poll_fn;
use std::io;
use std::task::Poll;
use std::time::Duration;

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};
use tokio::time::timeout;

use crate::posix;

/// Signals that end a verb: the ones of a terminal, and SIGTERM. While a command runs, they are forwarded.
const ENDING: [Signal; 4] = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT];

/// Signals for the command that do not end the wait for its permit.
const FOR_COMMAND: [Signal; 2] = [Signal::USR1, Signal::USR2];

/// More signals that are forwarded, with the real-time ones. Their default ends a process, so they are
/// listened to from the start, and end the wait.
const OTHER: [Signal; 7] =
    [Signal::ALARM, Signal::ABORT, Signal::IO, Signal::PROF, Signal::VTALARM, Signal::XCPU, Signal::XFSZ];

#[cfg(target_os = "linux")]
const OF_LINUX: [Signal; 2] = [Signal::POWER, Signal::STKFLT];
#[cfg(not(target_os = "linux"))]
const OF_LINUX: [Signal; 0] = [];

/// Signals that matter while the command runs. Before that, Ctrl-Z suspends this process as any other.
const WITH_CHILD: [Signal; 7] =
    [Signal::CHILD, Signal::CONT, Signal::TSTP, Signal::TTIN, Signal::TTOU, Signal::URG, Signal::WINCH];

/// Listeners, from their creation to the end of the process. Signals ignored by the parent stay ignored.
/// Those that it blocked are received: without them the end of the command would not be noticed.
pub(crate) struct Signals {
    streams: Vec<(Signal, unix::Signal)>,
}

impl Signals {
    /// Listens to `signals`.
    pub(crate) fn of(signals: &[Signal]) -> io::Result<Self> {
        let mut listening = Self { streams: Vec::new() };
        listening.add(signals)?;
        Ok(listening)
    }

    /// Listens to the signals that end a verb.
    pub(crate) fn ending() -> io::Result<Self> {
        Self::of(&ENDING)
    }

    /// Listens to the signals that other processes send.
    pub(crate) fn listen() -> io::Result<Self> {
        let mut signals = Self::ending()?;
        signals.add(&FOR_COMMAND)?;
        signals.add(&OTHER)?;
        signals.add(&OF_LINUX)?;
        signals.add(&posix::real_time_signals())?;
        Ok(signals)
    }

    /// Listens also to the signals of having a child.
    pub(super) fn listen_to_child(&mut self) -> io::Result<()> {
        // First, so that the sender of each is known.
        posix::note_senders(Signal::TTIN)?;
        posix::note_senders(Signal::TTOU)?;
        self.add(&WITH_CHILD)
    }

    fn add(&mut self, signals: &[Signal]) -> io::Result<()> {
        for &signal in signals {
            // A handler for SIGCHLD is always set: if it were ignored, the system would discard the child's
            // exit status.
            if signal == Signal::CHILD || !posix::is_ignored(signal) {
                self.streams.push((signal, unix::signal(SignalKind::from_raw(signal.as_raw()))?));
                // The signal is unblocked last, since one may be pending.
                posix::unblock(signal);
            }
        }
        Ok(())
    }

    /// The next signal. Cancel safe.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            for (signal, stream) in &mut self.streams {
                if stream.poll_recv(context).is_ready() {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// The next signal that ends the wait. Cancel safe.
    pub(crate) async fn next_ending(&mut self) -> Signal {
        loop {
            let signal = self.next().await;
            if !FOR_COMMAND.contains(&signal) {
                return signal;
            }
        }
    }

    /// Waits until this process is continued, at most `limit` of its running time. Other signals stay
    /// pending.
    pub(crate) async fn continued(&mut self, limit: Duration) {
        let stream = self.streams.iter_mut().find(|(signal, _)| *signal == Signal::CONT);
        match stream {
            Some((_, stream)) => drop(timeout(limit, stream.recv()).await),
            None => tokio::time::sleep(limit).await,
        }
    }
}
