//! What a client tells of itself, by the one clock of this host; and as lines, a line an event, written and read
//! here alone, for clients in processes of their own.
//!
//! A line begins with a mark, because the harness in which such a process runs prints too.

use std::fmt;
use std::io::Write as _;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// What the lines of workers begin with.
const MARK: &str = "@";

/// Something that happened to one acquisition, or (with the tag `-`) to the client itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, by [`now`].
    pub at: u64,
    /// Which acquisition of this client, in one word.
    pub tag: String,
    /// What happened.
    pub what: What,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// The client has connected.
    Connected,
    /// An acquisition is about to be asked for.
    Asked {
        /// How many units.
        weight: u32,
    },
    /// Somebody saw it stand in line.
    Enqueued,
    /// It returned a permit, which says that it is held `until` then.
    Acquired {
        /// Its fencing token.
        token: u64,
        /// Its slot.
        slot: u32,
        /// The deadline that it states, by [`now`].
        until: u64,
    },
    /// The holder looked before its next step: it holds, until then.
    Held {
        /// The deadline that the permit states, by [`now`].
        until: u64,
    },
    /// The holder looked before its next step: it does not hold any more.
    NotHeld,
    /// The loss was signalled.
    Lost(String),
    /// The release is about to be called.
    Releasing,
    /// It has returned: `ok` or why not.
    Released(String),
    /// The acquisition has failed.
    Failed(String),
    /// The client has inspected the semaphore.
    Inspected {
        /// Units held.
        held: u64,
        /// How many wait.
        waiting: u64,
        /// For how long free units are held back, in milliseconds.
        recovering_ms: u64,
    },
    /// All loops have ended.
    Stopped,
    /// The client was closed: `ok` or why not.
    Closed(String),
}

#[cfg(target_os = "linux")]
const CLOCK: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const CLOCK: ClockId = ClockId::Monotonic;

/// Microseconds by a clock that all processes of this host share, and that counts on while they are paused.
pub fn now() -> u64 {
    micros(CLOCK)
}

/// How far the wall clock is ahead of [`now`], in microseconds.
pub(super) fn wall_offset_us() -> u64 {
    micros(ClockId::Realtime) - now()
}

fn micros(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let (seconds, nanoseconds) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
    seconds.expect("the clock began at 0") * 1_000_000 + nanoseconds.expect("it counts upwards") / 1000
}

/// The time now, and until when a permit is held that then says how much is `remaining`: never later than it says.
pub fn deadline(remaining: impl FnOnce() -> Duration) -> (u64, u64) {
    let at = now();
    (at, at + u64::try_from(remaining().as_micros()).expect("a lease is at most a day"))
}

/// Tells that `what` happens now.
pub fn tell(tag: &str, what: What) {
    tell_at(now(), tag, what);
}

/// Tells that `what` happened at `at`.
pub fn tell_at(at: u64, tag: &str, what: What) {
    let event = Event { at, tag: tag.to_owned(), what };
    let mut stdout = std::io::stdout().lock();
    // One write, so that a worker killed in the middle leaves no half line. With nobody to read, the test is
    // over.
    let _ = stdout.write_all(format!("{event}\n").as_bytes());
    let _ = stdout.flush();
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, tag, what } = self;
        write!(f, "{MARK} {at} {tag} {what}")
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            What::Connected => write!(f, "connected"),
            What::Asked { weight } => write!(f, "asked {weight}"),
            What::Enqueued => write!(f, "enqueued"),
            What::Acquired { token, slot, until } => write!(f, "acquired {token} {slot} {until}"),
            What::Held { until } => write!(f, "held {until}"),
            What::NotHeld => write!(f, "not_held"),
            What::Lost(reason) => write!(f, "lost {reason}"),
            What::Releasing => write!(f, "releasing"),
            What::Released(outcome) => write!(f, "released {outcome}"),
            What::Failed(error) => write!(f, "failed {error}"),
            What::Inspected { held, waiting, recovering_ms } => {
                write!(f, "inspected {held} {waiting} {recovering_ms}")
            }
            What::Stopped => write!(f, "stopped"),
            What::Closed(outcome) => write!(f, "closed {outcome}"),
        }
    }
}

impl Event {
    /// Reads a line; `None` if it is not one of these.
    pub fn parse(line: &str) -> Option<Self> {
        let mut words = line.strip_prefix(MARK)?.trim_start().splitn(4, ' ');
        let (at, tag, kind) = (words.next()?.parse().ok()?, words.next()?.to_owned(), words.next()?);
        let text = words.next().unwrap_or_default();
        let numbers: Vec<u64> = text.split(' ').map_while(|word| word.parse().ok()).collect();
        let what = match (kind, &numbers[..]) {
            ("connected", _) => What::Connected,
            ("asked", &[weight]) => What::Asked { weight: u32::try_from(weight).ok()? },
            ("enqueued", _) => What::Enqueued,
            ("acquired", &[token, slot, until]) => {
                What::Acquired { token, slot: u32::try_from(slot).ok()?, until }
            }
            ("held", &[until]) => What::Held { until },
            ("not_held", _) => What::NotHeld,
            ("lost", _) => What::Lost(text.to_owned()),
            ("releasing", _) => What::Releasing,
            ("released", _) => What::Released(text.to_owned()),
            ("failed", _) => What::Failed(text.to_owned()),
            ("inspected", &[held, waiting, recovering_ms]) => {
                What::Inspected { held, waiting, recovering_ms }
            }
            ("stopped", _) => What::Stopped,
            ("closed", _) => What::Closed(text.to_owned()),
            _ => return None,
        };
        Some(Self { at, tag, what })
    }
}

#[cfg(test)]
#[test]
fn events_survive_the_line() {
    for what in [
        What::Connected,
        What::Asked { weight: 3 },
        What::Enqueued,
        What::Acquired { token: 1 << 52, slot: 3, until: 17 },
        What::Held { until: 18 },
        What::Lost("the permit was lost: why".to_owned()),
        What::Inspected { held: 1, waiting: 2, recovering_ms: 3 },
    ] {
        let event = Event { at: 5, tag: "a.1".to_owned(), what };
        assert_eq!(Event::parse(&event.to_string()), Some(event));
    }
    for foreign in ["", "running 1 test", "@", "@ 5", "@ 5 a unknown", "@ 5 a acquired 1 2"] {
        assert_eq!(Event::parse(foreign), None, "{foreign:?}");
    }
}
