//! Supervision of the command: signals, the terminal, and the loss of a permit.
//!
//! A command with `--also` has several permits, and *the permit* below means the one that ends first.
//!
//! The command runs while the permit is held, and for [`MAX_GRACE`] at most after a loss. If the permit is
//! not renewed, the command gets SIGTERM early enough to be killed before the deadline. If the permit is lost
//! at once, because an operator revoked it or this process was suspended, the command gets SIGTERM before
//! anything else is done. After every possible suspension of this process, the permit is checked before the
//! command is continued.

use std::fmt;
use std::io;
use std::time::Duration;

use permits::{Lost, Permit, PermitSet};
use rustix::process::{Signal, getpid, kill_current_process_group, kill_process};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::child::{self, Child, ChildChange, Ended};
use super::signals::Signals;
use super::terminal::{Foreground, Terminal};
use crate::posix::{self, ByDefault};
use crate::report;

/// The longest time between SIGTERM and SIGKILL.
const MAX_GRACE: Duration = Duration::from_secs(5);

/// The part of the lease, or of a longest hold that is shorter, reserved for the end of a command whose
/// permit is not renewed. During the rest the store may be unreachable. A part of the grace is spent on
/// SIGKILL: see [`Supervisor::end_command`].
const GRACE_SHARE: u32 = 5;

/// Before the grace comes a last attempt to renew, for at most this part of the grace.
const LAST_TRY_SHARE: u32 = 8;

/// The part of the grace before the deadline at which a command is killed, so that it is dead at the
/// deadline.
const KILL_SHARE: u32 = 8;

/// The longest wait for the end of a killed command.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// Interval of checks for the end of the rest of the group, which the system does not report.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The longest wait for this process to be stopped by its own signal. It is not stopped where no process
/// could continue it: as the first process of a container or of a session.
const STOP_TIMEOUT: Duration = Duration::from_millis(200);

/// The intervals at which a command that was told to stop is looked at again, and the number of them while it
/// could stop.
const URGE_INTERVAL: Duration = Duration::from_millis(50);
const URGES: u32 = 40;

/// A command under supervision.
pub(super) struct Supervisor {
    child: Child,
    signals: Signals,
    terminal: Option<Terminal>,
    /// The command gets the terminal whenever this process could have it.
    wants_terminal: bool,
    /// The last of SIGTSTP, SIGTTIN and SIGTTOU that came to this process and was forwarded.
    forwarded_stop: Option<Signal>,
    /// The number of intervals for which [`Supervisor::urge_to_stop`] looks after the stop.
    urges: u32,
    /// The command was continued so that it can stop.
    continued_to_stop: bool,
    /// A SIGINT came to this process and was forwarded.
    forwarded_interrupt: bool,
}

/// The reason to end a command.
pub(super) struct EndReason {
    semaphore: String,
    is_one_of_several: bool,
    fault: Fault,
}

enum Fault {
    Lost(Lost),
    /// The permit was not renewed, and ends after this time.
    RunningOut(Duration),
    /// The permit ends after `left`, because it was held for almost `longest`.
    HeldTooLong {
        left: Duration,
        longest: Duration,
    },
}

impl EndReason {
    fn new(permits: &PermitSet, permit: &Permit, fault: Fault) -> Self {
        let is_one_of_several = permits.permits().len() > 1;
        Self { semaphore: permit.semaphore().to_owned(), is_one_of_several, fault }
    }

    pub(super) async fn lost(permits: &PermitSet) -> Self {
        let (permit, lost) = permits.lost().await;
        Self::new(permits, permit, Fault::Lost(lost))
    }

    /// The values of the text.
    pub(super) fn fields(&self) -> Value {
        json!({ "semaphore": self.semaphore, "reason": self.fault.to_string() })
    }
}

impl fmt::Display for EndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_one_of_several {
            write!(f, "{:?}: ", self.semaphore)?;
        }
        self.fault.fmt(f)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(lost) => lost.fmt(f),
            Self::RunningOut(left) => {
                write!(f, "the permit ends in {:.1} s: it could not be renewed in time", left.as_secs_f64())
            }
            Self::HeldTooLong { left, longest } => write!(
                f,
                "the permit ends in {:.1} s: {longest:?} is the longest time that its request allows",
                left.as_secs_f64()
            ),
        }
    }
}

/// The receivers of a SIGINT that has to be passed on after the command's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Interrupt {
    /// Nobody gets the signal.
    None,
    /// The process itself gets the signal, so that its parent sees how it ended.
    Own,
    /// The whole group of this process gets it, because the terminal has signalled the command's group alone.
    Group,
}

impl Supervisor {
    pub(super) fn new(
        child: Child,
        signals: Signals,
        terminal: Option<Terminal>,
        wants_terminal: bool,
    ) -> Self {
        Self {
            child,
            signals,
            terminal,
            wants_terminal,
            forwarded_stop: None,
            urges: 0,
            continued_to_stop: false,
            forwarded_interrupt: false,
        }
    }

    /// Supervises the command until it has ended or has to be ended. `max_hold` is the longest time for which
    /// its permits are held.
    pub(super) async fn watch(
        &mut self,
        permits: &PermitSet,
        max_hold: Option<Duration>,
    ) -> Result<Ended, EndReason> {
        let lease = permits.permits().iter().map(Permit::lease).min().unwrap_or_default();
        let grace = MAX_GRACE.min(lease.min(max_hold.unwrap_or(lease)) / GRACE_SHARE);
        let last_try = grace / LAST_TRY_SHARE;
        let began = Instant::now();
        loop {
            let left = permits.remaining();
            tokio::select! {
                biased;
                reason = EndReason::lost(permits) => return Err(reason),
                () = sleep(left.saturating_sub(grace + last_try)) => {
                    // The client has renewed the permits meanwhile, unless this process was suspended.
                    if permits.remaining() > grace + last_try {
                        continue;
                    }
                    let limit = last_try.min(permits.remaining() / LAST_TRY_SHARE);
                    let renewed = matches!(timeout(limit, permits.renew()).await, Ok(Ok(())));
                    if let Some((permit, left)) = first_to_end(permits)
                        && left > Duration::ZERO
                        && left <= grace + last_try
                    {
                        // The reply may be late on a slow link. Then the longest hold is the reason if it is
                        // shorter than the lease, or if it ends now, counted from the start of the command.
                        let is_reached = |longest: &Duration| {
                            renewed || *longest < lease || *longest <= began.elapsed() + left + grace
                        };
                        let fault = match max_hold.filter(is_reached) {
                            Some(longest) => Fault::HeldTooLong { left, longest },
                            None => Fault::RunningOut(left),
                        };
                        return Err(EndReason::new(permits, permit, fault));
                    }
                }
                signal = self.signals.next() => {
                    if let Some(ended) = self.on_signal(signal, permits).await? {
                        return Ok(ended);
                    }
                }
                () = sleep(URGE_INTERVAL), if self.urges > 0 => self.urge_to_stop(),
            }
        }
    }

    async fn on_signal(&mut self, signal: Signal, permits: &PermitSet) -> Result<Option<Ended>, EndReason> {
        match signal {
            Signal::CHILD => {
                while let Some(change) = self.child.next_change() {
                    match change {
                        ChildChange::Ended(ended) => return Ok(Some(ended)),
                        ChildChange::Stopped(signal) => self.on_stop(signal, permits).await?,
                    }
                }
            }
            Signal::CONT => self.continue_child(permits).await?,
            Signal::TTIN | Signal::TTOU => {
                let senders = posix::senders(signal);
                // A neighbour in the background has stopped the whole job, as far as this process can see.
                if senders.process || (senders.kernel && !self.give_way()) {
                    self.forward(signal);
                }
            }
            _ => self.forward(signal),
        }
        Ok(None)
    }

    /// Gives the foreground back to the group of this process, of which a process has asked for it and was
    /// stopped. Returns false if the foreground is elsewhere, so that this process cannot give it.
    fn give_way(&mut self) -> bool {
        let group = self.child.group();
        let Some(terminal) = self.terminal.as_ref().filter(|it| it.is_of(group) || it.is_ours()) else {
            return false;
        };
        // The command gets the terminal back when it asks.
        self.wants_terminal = false;
        terminal.take_back_from(group);
        let _ = kill_current_process_group(Signal::CONT);
        true
    }

    fn forward(&mut self, signal: Signal) {
        if matches!(signal, Signal::TSTP | Signal::TTIN | Signal::TTOU) {
            (self.forwarded_stop, self.urges) = (Some(signal), URGES);
        }
        self.forwarded_interrupt |= signal == Signal::INT;
        if let Err(error) = self.child.signal(signal) {
            let error = not_signalled(&error);
            report::say(format_args!("signal {} could not be forwarded: {error}", signal.as_raw()));
        }
    }

    /// Stops a command that has stopped in the middle of starting a program. A shell that starts one by vfork
    /// cannot stop until its child has called exec, and the child cannot call exec once it is stopped. Both
    /// would stand still, and no process would be told. So the child gets a moment to call exec, again and
    /// again until it has: on a busy machine that takes long.
    fn urge_to_stop(&mut self) {
        self.urges -= 1;
        let Some(signal) = self.forwarded_stop else { return self.urges = 0 };
        if self.continued_to_stop {
            self.continued_to_stop = false;
            let _ = self.child.signal(signal);
        } else if self.child.cannot_stop() {
            (self.continued_to_stop, self.urges) = (true, URGES);
            let _ = self.child.signal(Signal::CONT);
        }
    }

    /// The command is stopped. Under job control this process stops, too, because the shell watches this
    /// process only.
    async fn on_stop(&mut self, signal: i32, permits: &PermitSet) -> Result<(), EndReason> {
        let group = self.child.group();
        let in_front = self.terminal.as_ref().is_some_and(|terminal| terminal.is_of(group));
        let by = |other: Signal| signal == other.as_raw();
        if self.terminal.is_some()
            && (by(Signal::TTIN) || by(Signal::TTOU))
            && !self.forwarded_stop.is_some_and(by)
        {
            return self.on_request(permits).await;
        }
        // Stopped from outside, say, by a debugger: the permit is renewed meanwhile.
        let not_ours = by(Signal::STOP) && !in_front;
        if not_ours || (self.terminal.is_none() && self.forwarded_stop.is_none()) {
            return Ok(());
        }
        if let Some(terminal) = &self.terminal {
            terminal.take_back_from(group);
        }
        self.stop_self(signal).await;
        self.continue_child(permits).await
    }

    /// The command was stopped because it used the terminal in the background: it asks for the foreground.
    async fn on_request(&mut self, permits: &PermitSet) -> Result<(), EndReason> {
        let Some(terminal) = self.terminal.clone() else { return Ok(()) };
        match terminal.foreground(self.child.group()) {
            // A `permits run` inside the command has the foreground. It gives the foreground back to the
            // command and continues the command. If this process were stopped meanwhile, the command would be
            // left without a permit.
            Foreground::Below => return Ok(()),
            Foreground::Own | Foreground::Command => {}
            Foreground::Elsewhere => self.ask(&terminal).await,
        }
        self.wants_terminal = true;
        self.continue_child(permits).await
    }

    /// Asks for the foreground, which stops this process's group if it is a job in the background. In another
    /// `permits run` of this job, whose command has the foreground, it is the request of a neighbour.
    async fn ask(&mut self, terminal: &Terminal) {
        let Ok(_by_default) = ByDefault::set(Signal::TTOU) else { return };
        posix::unblock(Signal::TTOU);
        if terminal.ask().is_err() {
            // The system did not stop this process, because no process could continue it. The command asks
            // again, but not at once.
            self.signals.continued(STOP_TIMEOUT).await;
        }
    }

    async fn stop_self(&mut self, signal: i32) {
        let signal = Signal::from_named_raw(signal).filter(|signal| *signal != Signal::STOP);
        let signal = signal.unwrap_or(Signal::TSTP);
        let Ok(_by_default) = ByDefault::set(signal) else { return };
        // A signal of the terminal or the kernel to the command was meant for the whole group of this
        // process. A signal to this process was sent to the others as well.
        let stopped = if self.forwarded_stop.take().is_some() {
            kill_process(getpid(), signal)
        } else {
            kill_current_process_group(signal)
        };
        if stopped.is_ok() {
            self.signals.continued(STOP_TIMEOUT).await;
        }
    }

    /// Continues the command, in the foreground if this process is there. The permit may be lost, because
    /// nothing was renewed during a suspension.
    async fn continue_child(&mut self, permits: &PermitSet) -> Result<(), EndReason> {
        if !permits.is_held() {
            return Err(EndReason::lost(permits).await);
        }
        (self.urges, self.continued_to_stop) = (0, false);
        if let Some(terminal) = &self.terminal
            && self.wants_terminal
            && terminal.is_ours()
        {
            // Fails only if the group has ended, which SIGCHLD reports.
            let _ = terminal.give_to(self.child.group());
        }
        let _ = self.child.signal(Signal::CONT);
        Ok(())
    }

    /// Ends the command and all of its process group: SIGTERM, and SIGKILL after the grace. SIGTERM is sent
    /// before anything is reported.
    pub(super) async fn end_command(&mut self, reason: &EndReason) {
        child::adopt_orphans();
        let asked = self.child.signal(Signal::TERM);
        // A stopped command would not get SIGTERM.
        let _ = self.child.signal(Signal::CONT);
        let kill_after = match &reason.fault {
            Fault::Lost(_) => MAX_GRACE,
            Fault::RunningOut(left) | Fault::HeldTooLong { left, .. } => {
                left.saturating_sub(*left / KILL_SHARE)
            }
        };
        let kill_at = Instant::now() + kill_after;
        report::say_with(format_args!("{reason}; ending the command"), reason.fields());
        if let Err(error) = asked {
            report::say(format_args!("the command could not be signalled: {}", not_signalled(&error)));
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
                    // Fails also if the group has ended.
                    if let Err(error) = self.child.kill()
                        && error.kind() == io::ErrorKind::PermissionDenied
                    {
                        report::say(format_args!(
                            "the command runs on without a permit. It could not be killed: {}",
                            not_signalled(&error)
                        ));
                        return;
                    }
                }
                signal = self.signals.next() => match signal {
                    Signal::CHILD => while self.child.next_change().is_some() {},
                    Signal::CONT | Signal::TSTP => {}
                    Signal::TTIN | Signal::TTOU => {
                        if posix::senders(signal).kernel {
                            self.give_way();
                        }
                    }
                    _ => drop(self.child.signal(signal)),
                },
                () = sleep(POLL_INTERVAL), if self.child.ended().is_some() => {}
            }
        }
    }

    /// Takes the terminal back after the command's end, and restores its modes if this process ended the
    /// command. A program that ends by itself does that itself. Returns the end, and the receivers of an
    /// interrupt.
    pub(super) fn finish(&self, was_ended: bool) -> (Option<Ended>, Interrupt) {
        let ended = self.child.ended();
        let Some(terminal) = &self.terminal else { return (ended, Interrupt::None) };
        let in_front = terminal.is_of(self.child.group());
        terminal.take_back_from(self.child.group());
        if was_ended && terminal.is_ours() {
            terminal.restore_modes();
        }
        if posix::senders(Signal::TTIN).kernel || posix::senders(Signal::TTOU).kernel {
            // A neighbour asked just before the end.
            let _ = kill_current_process_group(Signal::CONT);
        }
        let interrupted = ended.is_some_and(|ended| ended.is_by(Signal::INT));
        let interrupt = match interrupted {
            true if in_front => Interrupt::Group,
            true if self.forwarded_interrupt && terminal.is_ours() => Interrupt::Own,
            _ => Interrupt::None,
        };
        (ended, interrupt)
    }
}

/// The error of a signal, with its remedy.
fn not_signalled(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "it runs as another user, as sudo and su do, and this user may not \
            signal it. Run permits as that user: sudo permits run …"
                .to_owned()
        }
        _ => error.to_string(),
    }
}

/// The permit that ends first, and the time until then.
fn first_to_end(permits: &PermitSet) -> Option<(&Permit, Duration)> {
    let all = permits.permits().iter().map(|permit| (permit, permit.remaining()));
    all.min_by_key(|(_, left)| *left)
}

/// Ends this process by SIGINT. After a Ctrl-C, a shell continues its script unless the program it waited
/// for ended by SIGINT, because exit code 130 counts as handled. Returns if the signal has no effect.
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
