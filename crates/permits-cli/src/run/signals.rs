//! Signals, in order of arrival: those that end any verb, and those that `permits run` forwards.

use std::future::poll_fn;
use std::io;
use std::task::Poll;
use std::time::Duration;

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};
use tokio::time::timeout;

use super::posix;

/// Signals that end a verb: those of a terminal, and SIGTERM. While a command runs, they are forwarded to it.
const ENDING: [Signal; 4] = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT];

/// Other signals that are forwarded. Their default ends a process, so they are listened to from the start and
/// ignored before the command runs.
const OTHER: [Signal; 2] = [Signal::USR1, Signal::USR2];

/// Signals that matter while the command runs. Before that, Ctrl-Z suspends this process as any other.
const WITH_CHILD: [Signal; 3] = [Signal::CHILD, Signal::CONT, Signal::TSTP];

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
        signals.add(&OTHER)?;
        Ok(signals)
    }

    /// Listens also to the signals of having a child.
    pub(super) fn listen_to_child(&mut self) -> io::Result<()> {
        self.add(&WITH_CHILD)
    }

    fn add(&mut self, signals: &[Signal]) -> io::Result<()> {
        for &signal in signals {
            // With SIGCHLD ignored, the system would discard the child's exit status.
            if signal == Signal::CHILD || !posix::is_ignored(signal) {
                self.streams.push((signal, unix::signal(SignalKind::from_raw(signal.as_raw()))?));
                // After that, since one may be pending.
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
            if ENDING.contains(&signal) {
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
