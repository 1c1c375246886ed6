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
pub struct ClientRecord {
    /// When, by [`now`].
    pub at: u64,
    /// Which acquisition of this client, in one word.
    pub tag: String,
    /// What happened.
    pub event: ClientEvent,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientEvent {
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
pub fn report(tag: &str, what: ClientEvent) {
    report_at(now(), tag, what);
}

/// Tells that `what` happened at `at`.
pub fn report_at(at: u64, tag: &str, what: ClientEvent) {
    let event = ClientRecord { at, tag: tag.to_owned(), event: what };
    let mut stdout = std::io::stdout().lock();
    // One write, so that a worker killed in the middle leaves no half line. With nobody to read, the test is
    // over.
    let _ = stdout.write_all(format!("{event}\n").as_bytes());
    let _ = stdout.flush();
}

impl fmt::Display for ClientRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, tag, event: what } = self;
        write!(f, "{MARK} {at} {tag} {what}")
    }
}

impl fmt::Display for ClientEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientEvent::Connected => write!(f, "connected"),
            ClientEvent::Asked { weight } => write!(f, "asked {weight}"),
            ClientEvent::Enqueued => write!(f, "enqueued"),
            ClientEvent::Acquired { token, slot, until } => write!(f, "acquired {token} {slot} {until}"),
            ClientEvent::Held { until } => write!(f, "held {until}"),
            ClientEvent::NotHeld => write!(f, "not_held"),
            ClientEvent::Lost(reason) => write!(f, "lost {reason}"),
            ClientEvent::Releasing => write!(f, "releasing"),
            ClientEvent::Released(outcome) => write!(f, "released {outcome}"),
            ClientEvent::Failed(error) => write!(f, "failed {error}"),
            ClientEvent::Inspected { held, waiting, recovering_ms } => {
                write!(f, "inspected {held} {waiting} {recovering_ms}")
            }
            ClientEvent::Stopped => write!(f, "stopped"),
            ClientEvent::Closed(outcome) => write!(f, "closed {outcome}"),
        }
    }
}

impl ClientRecord {
    /// Reads a line; `None` if it is not one of these.
    pub fn parse(line: &str) -> Option<Self> {
        let mut words = line.strip_prefix(MARK)?.trim_start().splitn(4, ' ');
        let (at, tag, kind) = (words.next()?.parse().ok()?, words.next()?.to_owned(), words.next()?);
        let text = words.next().unwrap_or_default();
        let numbers: Vec<u64> = text.split(' ').map_while(|word| word.parse().ok()).collect();
        let what = match (kind, &numbers[..]) {
            ("connected", _) => ClientEvent::Connected,
            ("asked", &[weight]) => ClientEvent::Asked { weight: u32::try_from(weight).ok()? },
            ("enqueued", _) => ClientEvent::Enqueued,
            ("acquired", &[token, slot, until]) => {
                ClientEvent::Acquired { token, slot: u32::try_from(slot).ok()?, until }
            }
            ("held", &[until]) => ClientEvent::Held { until },
            ("not_held", _) => ClientEvent::NotHeld,
            ("lost", _) => ClientEvent::Lost(text.to_owned()),
            ("releasing", _) => ClientEvent::Releasing,
            ("released", _) => ClientEvent::Released(text.to_owned()),
            ("failed", _) => ClientEvent::Failed(text.to_owned()),
            ("inspected", &[held, waiting, recovering_ms]) => {
                ClientEvent::Inspected { held, waiting, recovering_ms }
            }
            ("stopped", _) => ClientEvent::Stopped,
            ("closed", _) => ClientEvent::Closed(text.to_owned()),
            _ => return None,
        };
        Some(Self { at, tag, event: what })
    }
}

#[cfg(test)]
#[test]
fn events_survive_the_line() {
    for what in [
        ClientEvent::Connected,
        ClientEvent::Asked { weight: 3 },
        ClientEvent::Enqueued,
        ClientEvent::Acquired { token: 1 << 52, slot: 3, until: 17 },
        ClientEvent::Held { until: 18 },
        ClientEvent::Lost("the permit was lost: why".to_owned()),
        ClientEvent::Inspected { held: 1, waiting: 2, recovering_ms: 3 },
    ] {
        let event = ClientRecord { at: 5, tag: "a.1".to_owned(), event: what };
        assert_eq!(ClientRecord::parse(&event.to_string()), Some(event));
    }
    for foreign in ["", "running 1 test", "@", "@ 5", "@ 5 a unknown", "@ 5 a acquired 1 2"] {
        assert_eq!(ClientRecord::parse(foreign), None, "{foreign:?}");
    }
}
