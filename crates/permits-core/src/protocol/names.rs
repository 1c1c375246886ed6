//! Names, holders, ids and bounds: texts and numbers of a command, each checked once, by its constructor.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The shortest lease, in milliseconds.
pub const MIN_LEASE_MS: u64 = 100;

/// The longest lease, in milliseconds: one day.
pub const MAX_LEASE_MS: u64 = 24 * 60 * 60 * 1000;

/// The longest pause with an end, and the longest wait that an alert names.
const TIME_MAX: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// The largest share of a lane.
pub const MAX_SHARE: u32 = 1_000;

/// A time in a message: in seconds if it has no part of one, for a program whose times are in seconds.
fn shown(ms: impl Into<u128>) -> String {
    match ms.into() {
        ms if ms > 0 && ms % 1000 == 0 => format!("{} s", ms / 1000),
        ms => format!("{ms} ms"),
    }
}

/// A name, holder, limit, weight, lease, handle or setting that is never valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidInput {
    /// The text is empty.
    #[error("{what} is empty: give it 1 to {max} bytes")]
    Empty {
        /// The text's name in a message.
        what: &'static str,
        /// The most bytes allowed.
        max: usize,
    },
    /// The text is too long.
    #[error("{what} has {bytes} bytes: at most {max} are allowed")]
    TooLong {
        /// The text's name in a message.
        what: &'static str,
        /// The bytes it has.
        bytes: usize,
        /// The most bytes allowed.
        max: usize,
    },
    /// The text has a control character, such as a newline.
    #[error("{what} has the control character {character:?} at byte {at}: only printable text is allowed")]
    Control {
        /// The text's name in a message.
        what: &'static str,
        /// The character.
        character: char,
        /// The offset of the character, in bytes.
        at: usize,
    },
    /// The name of a field or option that does not exist.
    #[error("{name:?} is unknown: {advice}")]
    Unknown {
        /// The name.
        name: String,
        /// The name that was meant, or all.
        advice: String,
    },
    /// A limit of 0.
    #[error("the limit is 0: it must be at least 1 (to stop all grants, pause the semaphore)")]
    ZeroLimit,
    /// A share outside the allowed range.
    #[error("a share of {share} is out of range: 1 to {MAX_SHARE}")]
    Share {
        /// The requested share.
        share: u32,
    },
    /// A weight of 0.
    #[error("the weight is 0: a permit takes at least 1 unit")]
    ZeroWeight,
    /// A lease outside the allowed range.
    #[error("a lease of {} is out of range: {MIN_LEASE_MS} ms to 1 day", shown(*lease_ms))]
    Lease {
        /// The requested lease, in milliseconds.
        lease_ms: u64,
    },
    /// A grant that would count for too long.
    #[error("a grant that counts for at least {} is out of range: at most 1 day", shown(*at_least_ms))]
    AtLeast {
        /// The requested time, in milliseconds.
        at_least_ms: u64,
    },
    /// A pause that would be empty or too long.
    #[error("a pause of {} is out of range: 1 ms to 366 days; without a time it has no end", shown(time.as_millis()))]
    Pause {
        /// The requested time.
        time: Duration,
    },
    /// An alert at a wait that would be empty or too long.
    #[error("an alert at a wait of {} is out of range: 1 ms to 366 days", shown(time.as_millis()))]
    AlertWait {
        /// The requested time.
        time: Duration,
    },
    /// An alert at 0 waiters.
    #[error("an alert at 0 waiters is out of range: at least 1")]
    AlertWaiting,
    /// A longest hold that is shorter than any lease.
    #[error("a longest hold of {time:?} is out of range: at least {MIN_LEASE_MS} ms")]
    MaxHold {
        /// The requested time.
        time: Duration,
    },
    /// A request with a share, and without a lane.
    #[error("a share is that of a lane: name the lane")]
    ShareOfNoLane,
    /// A limit of a lane of 0.
    #[error("the limit of the lane is 0: it must be at least 1")]
    ZeroLaneLimit,
    /// A limit of a lane without a lane.
    #[error("a lane limit is that of a lane: name the lane")]
    LimitOfNoLane,
    /// A number of waiters of a lane of 0.
    #[error("the number of waiters of the lane is 0: it must be at least 1")]
    ZeroLaneWaiters,
    /// A number of waiters without a lane.
    #[error("lane waiters are those of a lane: name the lane")]
    WaitersOfNoLane,
    /// A floor without a lane.
    #[error("a lane floor is that of a lane: name the lane")]
    FloorOfNoLane,
    /// A floor that its lane can never hold.
    #[error("the floor of the lane is {floor}: it must be at most {limit}, {what}")]
    FloorAboveLimit {
        /// The floor.
        floor: u32,
        /// The limit.
        limit: u32,
        /// The name of the limit in a message, such as `its limit`.
        what: &'static str,
    },
    /// A lane that is to be pinned without a limit and a floor.
    #[error("neither a limit nor a floor of the lane is given: name one of them")]
    PinsNoBound,
    /// A request with a key by which it supersedes, and that does not wait.
    #[error("supersede needs a wait: use a timeout above 0, or no timeout")]
    SupersedesNow,
    /// Units are counted of a permit whose grant counts only while it is held.
    #[error(
        "the permit was not acquired with at_least: units are counted only of a grant that counts for some time"
    )]
    NothingCounts,
    /// A part of a permit to release that is no unit, or all of them.
    #[error("{units} of {weight} units are no part of a permit: release at least 1, and keep at least 1")]
    Part {
        /// The units to release.
        units: u32,
        /// The weight of the permit.
        weight: u32,
    },
    /// A key prefix that cannot be part of a key with a hash tag.
    #[error(
        "the key prefix {prefix:?} is not valid: use 1 to 64 printable ASCII characters without '{{', '}}' or spaces"
    )]
    Prefix {
        /// The prefix.
        prefix: String,
    },
    /// A permit handle of another version of `permits`.
    #[error(
        "the permit handle has layout {found}, and this version of permits reads layout {supported}: use the version that \
         made it"
    )]
    HandleLayout {
        /// The layout of the handle.
        found: u32,
        /// The layout of this program.
        supported: u32,
    },
    /// A longer line than the store can keep.
    #[error("max_waiters is {max}: this store takes at most {most} waiters of a semaphore, a server more")]
    MaxWaiters {
        /// The requested maximum.
        max: u32,
        /// The most that the store takes.
        most: u32,
    },
    /// A text that is not a permit handle.
    #[error("not a permit handle: {reason}")]
    Handle {
        /// The fault.
        reason: &'static str,
    },
}

/// Checks the reason of a revocation or of a closed line: at most 1,000 bytes of printable text, possibly
/// empty.
///
/// # Errors
/// [`InvalidInput`] if it is too long or has control characters.
pub fn check_reason(reason: &str) -> Result<Arc<str>, InvalidInput> {
    if reason.is_empty() { Ok("".into()) } else { check_text("the reason", reason, 1_000) }
}

/// Checks a lease against [`MIN_LEASE_MS`] and [`MAX_LEASE_MS`].
///
/// # Errors
/// [`InvalidInput::Lease`] if it is out of range.
pub fn check_lease(lease_ms: u64) -> Result<u64, InvalidInput> {
    if (MIN_LEASE_MS..=MAX_LEASE_MS).contains(&lease_ms) {
        Ok(lease_ms)
    } else {
        Err(InvalidInput::Lease { lease_ms })
    }
}

/// Checks the share of a lane: 1 to [`MAX_SHARE`].
///
/// # Errors
/// [`InvalidInput::Share`] if it is out of range.
pub fn check_share(share: u32) -> Result<u32, InvalidInput> {
    if (1..=MAX_SHARE).contains(&share) { Ok(share) } else { Err(InvalidInput::Share { share }) }
}

/// The longest time for which a grant counts, in milliseconds: almost 25 days. A request asks for at most
/// [`MAX_LEASE_MS`], and a set that waits for its other semaphores adds the time of its wait.
pub const MAX_COUNTS_MS: u64 = (1 << 31) - 1;

/// Checks the time for which a grant is to count: at most [`MAX_LEASE_MS`].
///
/// # Errors
/// [`InvalidInput::AtLeast`] if it is longer.
pub fn check_at_least(at_least_ms: u64) -> Result<u64, InvalidInput> {
    if at_least_ms <= MAX_LEASE_MS { Ok(at_least_ms) } else { Err(InvalidInput::AtLeast { at_least_ms }) }
}

/// Checks the time of a pause, and returns it in milliseconds: more than 0, at most 366 days.
///
/// # Errors
/// [`InvalidInput::Pause`] if it is out of range.
pub fn check_pause(time: Duration) -> Result<u64, InvalidInput> {
    in_range(time).ok_or(InvalidInput::Pause { time })
}

/// The milliseconds of a time, rounded up, if it is more than 0 and at most [`TIME_MAX`].
pub(super) fn in_range(time: Duration) -> Option<u64> {
    let rounded = u64::try_from(time.as_nanos().div_ceil(1_000_000)).ok();
    rounded.filter(|_| !time.is_zero() && time <= TIME_MAX)
}

/// Checks the longest time for which a permit is held: at least [`MIN_LEASE_MS`].
///
/// # Errors
/// [`InvalidInput::MaxHold`] if it is shorter.
pub fn check_max_hold(time: Duration) -> Result<(), InvalidInput> {
    if time >= Duration::from_millis(MIN_LEASE_MS) { Ok(()) } else { Err(InvalidInput::MaxHold { time }) }
}

/// Checks the first part of every key: 1 to 64 printable ASCII characters without braces and spaces, so that
/// it can stand before a hash tag.
///
/// # Errors
/// [`InvalidInput::Prefix`] if it is anything else.
pub fn check_prefix(prefix: &str) -> Result<(), InvalidInput> {
    let plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'{' | b'}');
    if (1..=64).contains(&prefix.len()) && prefix.bytes().all(plain) {
        Ok(())
    } else {
        Err(InvalidInput::Prefix { prefix: prefix.to_owned() })
    }
}

/// The longest beginning of a text that is a label, with control characters replaced.
pub fn label_from(text: &str) -> Label {
    let mut label = String::new();
    for character in text.chars() {
        let character = if character.is_control() { char::REPLACEMENT_CHARACTER } else { character };
        if label.len() + character.len_utf8() > Label::MAX_BYTES {
            break;
        }
        label.push(character);
    }
    Label(label.into())
}

fn check_text(what: &'static str, text: &str, max: usize) -> Result<Arc<str>, InvalidInput> {
    if text.is_empty() {
        return Err(InvalidInput::Empty { what, max });
    }
    if text.len() > max {
        return Err(InvalidInput::TooLong { what, bytes: text.len(), max });
    }
    match text.char_indices().find(|(_, character)| character.is_control()) {
        Some((at, character)) => Err(InvalidInput::Control { what, character, at }),
        None => Ok(text.into()),
    }
}

/// The name of a semaphore: 1 to 200 bytes of printable UTF-8.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Name(Arc<str>);

impl Name {
    /// The longest name, in bytes.
    pub const MAX_BYTES: usize = 200;

    /// Checks `text` and makes it a name.
    ///
    /// # Errors
    /// [`InvalidInput`] if it is empty, too long or has control characters.
    pub fn new(text: &str) -> Result<Self, InvalidInput> {
        check_text("the semaphore's name", text, Self::MAX_BYTES).map(Self)
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name of one acquisition: 1 to 200 bytes of printable UTF-8. A holder has at most one permit of a
/// semaphore.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Holder(Arc<str>);

impl Holder {
    /// The longest holder, in bytes.
    pub const MAX_BYTES: usize = 200;

    /// Checks `text` and makes it a holder.
    ///
    /// # Errors
    /// [`InvalidInput`] if it is empty, too long or has control characters.
    pub fn new(text: &str) -> Result<Self, InvalidInput> {
        check_text("the holder", text, Self::MAX_BYTES).map(Self)
    }

    /// The key of a grant of this holder that cools. A control character keeps it apart from the holders of
    /// requests, and the token from other grants.
    #[doc(hidden)]
    pub fn cooling(&self, token: u64) -> Self {
        Self(format!("{self}\t{token}").into())
    }

    /// Returns true if this is the key of a grant that cools.
    #[doc(hidden)]
    pub fn is_cooling(&self) -> bool {
        self.0.contains('\t')
    }

    /// The holder, if this is the key of a grant of it that cools.
    #[doc(hidden)]
    pub fn original(&self) -> Self {
        self.0.split_once('\t').map_or_else(|| self.clone(), |(holder, _)| Self(holder.into()))
    }

    /// Sorts before every holder.
    pub fn min() -> Self {
        Self("".into())
    }

    /// The holder as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Defines a type of texts of at most 120 bytes of printable UTF-8, or empty.
macro_rules! optional_text {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        pub struct $name(Arc<str>);

        impl $name {
            /// The longest text, in bytes.
            pub const MAX_BYTES: usize = 120;

            /// Checks `text`.
            ///
            /// # Errors
            /// [`InvalidInput`] if it is too long or has control characters.
            pub fn new(text: &str) -> Result<Self, InvalidInput> {
                if text.is_empty() {
                    return Ok(Self::default());
                }
                check_text($what, text, Self::MAX_BYTES).map(Self)
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self("".into())
            }
        }
    };
}

optional_text! {
    /// A note on a holder, shown in listings: at most 120 bytes of printable UTF-8, or empty. Many holders
    /// may have the same.
    Label, "the label"
}

optional_text! {
    /// The name of a lane: at most 120 bytes of printable UTF-8, or empty for the lane of all requests that
    /// name no lane.
    LaneName, "the lane"
}

optional_text! {
    /// The key by which a request supersedes: at most 120 bytes of printable UTF-8, or empty for none. At
    /// most one request waits for each key: the newest.
    SupersedeKey, "the supersede key"
}

/// Returns true if `text` is an identifier made by this library: 1 to 64 of `[A-Za-z0-9._-]`.
fn is_identifier(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=64).contains(&text.len()) && text.bytes().all(plain)
}

/// The identifier of a session, unique among all sessions: 1 to 64 of `[A-Za-z0-9._-]`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SessionId(Arc<str>);

impl SessionId {
    /// Checks `text` and makes it an identifier.
    ///
    /// # Errors
    /// [`InvalidInput::Handle`] if it is empty, too long or has other characters.
    pub fn new(text: &str) -> Result<Self, InvalidInput> {
        let malformed = InvalidInput::Handle { reason: "its session id is malformed" };
        if is_identifier(text) { Ok(Self(text.into())) } else { Err(malformed) }
    }

    /// An identifier from 72 bits of entropy: twelve characters of 6 bits each.
    pub fn from_entropy(bytes: [u8; 9]) -> Self {
        const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let bits = bytes.iter().fold(0_u128, |bits, byte| bits << 8 | u128::from(*byte));
        let digit = |place: u32| char::from(DIGITS[(bits >> (6 * place)) as usize % DIGITS.len()]);
        Self((0..12).map(digit).collect::<String>().into())
    }

    /// The identifier of the session's request with this number.
    pub fn request(&self, number: u64) -> RequestId {
        RequestId(format!("{self}.{number}").into())
    }

    /// Returns true if this session made the request.
    pub fn has_made(&self, request: &RequestId) -> bool {
        request.as_str().strip_prefix(self.as_str()).is_some_and(|number| number.starts_with('.'))
    }

    /// The identifier as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The identifier of one request (an acquisition, a revocation, a change of the limit), unique among all
/// sessions: 1 to 64 of `[A-Za-z0-9._-]`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RequestId(Arc<str>);

impl RequestId {
    /// Checks `text` and makes it an identifier.
    ///
    /// # Errors
    /// [`InvalidInput::Handle`] if it is malformed: a handle is the only input that contains one.
    pub fn new(text: &str) -> Result<Self, InvalidInput> {
        let malformed = InvalidInput::Handle { reason: "its request id is malformed" };
        if is_identifier(text) { Ok(Self(text.into())) } else { Err(malformed) }
    }

    /// The identifier as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[test]
fn a_label_is_made_of_any_text() {
    assert_eq!(label_from("a\tb\u{0}c").as_str(), "a\u{fffd}b\u{fffd}c");
    assert_eq!(label_from(&"\u{e4}".repeat(61)).as_str(), "\u{e4}".repeat(60));
    assert_eq!(label_from(&format!("x{}", "\u{e4}".repeat(60))).as_str().len(), 119);
    assert_eq!(label_from(""), Label::default());
}
