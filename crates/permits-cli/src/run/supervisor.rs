//! Stands between the command and everybody who wants something of it: those who send signals, the terminal,
//! and the store that may take the permit away.
//!
//! Invariant: the command runs only while the permit is held. If the permit is not renewed, the command is asked to
//! end early enough that it can be killed before the deadline. If the permit is lost at once, because an operator
//! revoked it or this process stood still, the command is asked to end before anything else is done. Whenever this
//! process may have stood still, the permit is looked at before the command is continued.

use std::fmt;
use std::io;
use std::time::Duration;

use permits::{Lost, Permit};
use rustix::process::{Signal, getpid, kill_current_process_group, kill_process};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::child::{self, Child, ChildChange, Ended};
use super::posix::ByDefault;
use super::signals::Signals;
use super::terminal::Terminal;
use crate::report;

/// The longest time that a command has to end when it is asked to.
const MAX_GRACE: Duration = Duration::from_secs(5);

/// The part of the lease that is kept for a command to end in, should the permit not be renewed. The rest of it is
/// what the store may be out of reach. Part of the grace is spent on killing: see [`Supervisor::end_command`].
const GRACE_SHARE: u32 = 5;

/// The part of the grace that is spent before it on a last try to renew the permit.
const LAST_TRY_SHARE: u32 = 8;

/// The part of the grace before the deadline at which a command is killed, so that it is dead at the deadline.
const KILL_SHARE: u32 = 8;

/// How long the system may take to end what it was told to kill.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// How often to look whether the rest of the group has ended. The system does not tell.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// How soon this process stops when it has told itself to. It does not where nobody could continue it: as the
/// first process of a container or of a session.
const STOP_TIMEOUT: Duration = Duration::from_millis(200);

/// A command under supervision.
pub(super) struct Supervisor {
    child: Child,
    signals: Signals,
    terminal: Option<Terminal>,
    /// The command wants the terminal whenever this process could have it.
    wants_terminal: bool,
    /// A SIGTSTP came to this process, and was passed on.
    forwarded_stop: bool,
    /// A SIGINT came to this process, and was passed on.
    forwarded_interrupt: bool,
}

/// Why a command is ended.
pub(super) enum EndReason {
    Lost(Lost),
    /// The permit was not renewed, and this is left of it.
    RunningOut(Duration),
}

impl fmt::Display for EndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(lost) => lost.fmt(f),
            Self::RunningOut(left) => {
                write!(f, "the permit ends in {:.1} s: it could not be renewed in time", left.as_secs_f64())
            }
        }
    }
}

/// Who else has to hear of a Ctrl-C.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Interrupt {
    /// It was none.
    None,
    /// Only whoever waits for this process.
    Own,
    /// The whole group of this process, since the terminal told the command alone.
    Group,
}

impl Supervisor {
    pub(super) fn new(
        child: Child,
        signals: Signals,
        terminal: Option<Terminal>,
        wants_terminal: bool,
    ) -> Self {
        Self { child, signals, terminal, wants_terminal, forwarded_stop: false, forwarded_interrupt: false }
    }

    /// Watches over the command until it has ended, or has to be.
    pub(super) async fn watch(&mut self, permit: &Permit) -> Result<Ended, EndReason> {
        let grace = MAX_GRACE.min(permit.lease() / GRACE_SHARE);
        let last_try = grace / LAST_TRY_SHARE;
        loop {
            let left = permit.remaining();
            tokio::select! {
                biased;
                lost = permit.lost() => return Err(EndReason::Lost(lost)),
                // Each renewal puts it off.
                () = sleep(left.saturating_sub(grace + last_try)) => {
                    // One is due at once if this process has stood still.
                    let _ = timeout(last_try.min(permit.remaining() / LAST_TRY_SHARE), permit.renew()).await;
                    let left = permit.remaining();
                    if left > Duration::ZERO && left <= grace + last_try {
                        return Err(EndReason::RunningOut(left));
                    }
                }
                signal = self.signals.next() => {
                    if let Some(ended) = self.on_signal(signal, permit).await? {
                        return Ok(ended);
                    }
                }
            }
        }
    }

    async fn on_signal(&mut self, signal: Signal, permit: &Permit) -> Result<Option<Ended>, EndReason> {
        match signal {
            Signal::CHILD => {
                while let Some(change) = self.child.next_change() {
                    match change {
                        ChildChange::Ended(ended) => return Ok(Some(ended)),
                        ChildChange::Stopped(signal) => self.on_stop(signal, permit).await?,
                    }
                }
            }
            Signal::CONT => self.continue_child(permit).await?,
            _ => self.forward(signal),
        }
        Ok(None)
    }

    fn forward(&mut self, signal: Signal) {
        self.forwarded_stop |= signal == Signal::TSTP;
        self.forwarded_interrupt |= signal == Signal::INT;
        if let Err(error) = self.child.signal(signal) {
            report::say(format_args!("signal {} could not be passed on: {error}", signal.as_raw()));
        }
    }

    /// The command is stopped. Under job control this process stops, too, for the shell looks at nobody else.
    async fn on_stop(&mut self, signal: i32, permit: &Permit) -> Result<(), EndReason> {
        let group = self.child.group();
        let in_front = self.terminal.as_ref().is_some_and(|terminal| terminal.is_of(group));
        let by = |wanted: Signal| signal == wanted.as_raw();
        if let Some(terminal) = &self.terminal
            && (by(Signal::TTIN) || by(Signal::TTOU))
            && terminal.is_ours()
        {
            // It wants to use the terminal after all, and it is our turn.
            self.wants_terminal = true;
            return self.continue_child(permit).await;
        }
        // Somebody looks into the command, say, with a debugger: the permit is renewed meanwhile.
        let not_ours = by(Signal::STOP) && !in_front;
        if not_ours || (self.terminal.is_none() && !self.forwarded_stop) {
            return Ok(());
        }
        if let Some(terminal) = &self.terminal {
            terminal.take_back_from(group);
        }
        self.stop_self(signal).await;
        self.continue_child(permit).await
    }

    async fn stop_self(&mut self, signal: i32) {
        let signal = Signal::from_named_raw(signal).filter(|signal| *signal != Signal::STOP);
        let signal = signal.unwrap_or(Signal::TSTP);
        let Ok(_by_default) = ByDefault::set(signal) else { return };
        // What the terminal or the kernel told the command would have been for our whole group; what we were
        // told is for us, and the others have been told as well.
        let stopped = if std::mem::take(&mut self.forwarded_stop) {
            kill_process(getpid(), signal)
        } else {
            kill_current_process_group(signal)
        };
        if stopped.is_ok() {
            self.signals.continued(STOP_TIMEOUT).await;
        }
    }

    /// Continues the command, and lets it have the terminal if it is ours. Nothing was renewed while we stood
    /// still, so the permit may be lost.
    async fn continue_child(&mut self, permit: &Permit) -> Result<(), EndReason> {
        if !permit.is_held() {
            return Err(EndReason::Lost(permit.lost().await));
        }
        if let Some(terminal) = &self.terminal
            && self.wants_terminal
            && terminal.is_ours()
        {
            // Refused only if the group has ended, of which we shall hear.
            let _ = terminal.give_to(self.child.group());
        }
        let _ = self.child.signal(Signal::CONT);
        Ok(())
    }

    /// Ends the command and all of its process group: asks, and when the grace is over kills. Nothing is said before
    /// the command is asked.
    pub(super) async fn end_command(&mut self, reason: &EndReason) {
        child::adopt_orphans();
        let asked = self.child.signal(Signal::TERM);
        // A stopped one would not hear it.
        let _ = self.child.signal(Signal::CONT);
        let kill_after = match reason {
            EndReason::Lost(_) => MAX_GRACE,
            EndReason::RunningOut(left) => left.saturating_sub(*left / KILL_SHARE),
        };
        let kill_at = Instant::now() + kill_after;
        report::say(format_args!("{reason}; ending the command"));
        if let Err(error) = asked {
            report::say(format_args!("the command could not be signalled: {error}"));
        }
        let mut killed = false;
        while self.child.ended().is_none() || self.child.group_is_alive() {
            let deadline = if killed { kill_at + KILL_TIMEOUT } else { kill_at };
            tokio::select! {
                biased;
                () = sleep_until(deadline) => {
                    if killed {
                        if self.child.ended().is_none() {
                            report::say("the command was killed and has not ended yet");
                        }
                        return;
                    }
                    killed = true;
                    // Nobody is left, or nobody whom we may signal.
                    let _ = self.child.signal(Signal::KILL);
                }
                signal = self.signals.next() => match signal {
                    Signal::CHILD => while self.child.next_change().is_some() {},
                    Signal::CONT | Signal::TSTP => {}
                    _ => drop(self.child.signal(signal)),
                },
                () = sleep(POLL_INTERVAL), if self.child.ended().is_some() => {}
            }
        }
    }

    /// The command has ended: the terminal is ours again. Says how it ended, and who else has to hear of it.
    pub(super) fn finish(&self) -> (Option<Ended>, Interrupt) {
        let ended = self.child.ended();
        let Some(terminal) = &self.terminal else { return (ended, Interrupt::None) };
        let in_front = terminal.is_of(self.child.group());
        terminal.take_back_from(self.child.group());
        let interrupted = ended.is_some_and(|ended| ended.is_by(Signal::INT));
        let interrupt = match interrupted {
            true if in_front => Interrupt::Group,
            true if self.forwarded_interrupt && terminal.is_ours() => Interrupt::Own,
            _ => Interrupt::None,
        };
        (ended, interrupt)
    }
}

/// Ends this process by SIGINT. A shell that was told of a Ctrl-C goes on with its script if the program it
/// waited for ended otherwise, be it with code 130: it takes it that the program knew what to do about it.
/// Returns if that has no effect.
pub(super) fn die_by(interrupt: Interrupt) -> io::Result<()> {
    if interrupt == Interrupt::None {
        return Ok(());
    }
    report::flush();
    let _by_default = ByDefault::set(Signal::INT)?;
    if interrupt == Interrupt::Group {
        kill_current_process_group(Signal::INT)?;
    } else {
        kill_process(getpid(), Signal::INT)?;
    }
    Ok(())
}
