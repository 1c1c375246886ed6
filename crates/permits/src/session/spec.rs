//! The request of a caller: a permit, and the limit that the program declares.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::Map;
use super::Requested;
use super::shelf::Keep;
use crate::clock::{Clock, Moment};
use crate::error::AcquireError;
use crate::observe::meters::{Counted, SemaphoreMeters};
use crate::protocol::{AcquireRequest, Declaration, Holder, Name, PermitTerms, RequestId, RequestKey};

/// A session that knows the declarations of this many semaphores forgets them all: new handles declare again.
const DECLARATIONS_MAX: usize = 10_000;

/// How far back the positions go from which the speed of a line is estimated.
const EXPECTED_FROM: Duration = Duration::from_secs(60);

/// A request for a permit, checked.
pub(crate) struct AcquireSpec {
    pub(crate) semaphore: Name,
    pub(crate) holder: Holder,
    pub(crate) request: RequestId,
    pub(crate) terms: PermitTerms,
    pub(crate) client: ClientTerms,
    pub(crate) limit: Arc<LimitDeclaration>,
    /// Set if the session may keep the permit, or serve the request with a kept one.
    pub(crate) keep: Option<Keep>,
    pub(crate) position: Arc<Position>,
    /// The span of the acquisition, if it has begun and a subscriber has enabled the span.
    pub(crate) span: Option<tracing::Id>,
    pub(crate) meters: SemaphoreMeters,
}

impl AcquireSpec {
    /// Makes a request that waits without limit, and whose permit is renewed.
    pub(crate) fn new(
        semaphore: Name,
        (holder, request): (Holder, RequestId),
        terms: PermitTerms,
        limit: Arc<LimitDeclaration>,
    ) -> Self {
        Self {
            semaphore,
            holder,
            request,
            terms,
            client: ClientTerms::default(),
            limit,
            keep: None,
            position: Arc::default(),
            span: None,
            meters: Default::default(),
        }
    }

    /// The request as the store gets it. `is_first` if the store has never answered it.
    pub(super) fn to_request(&self, is_first: bool) -> AcquireRequest {
        AcquireRequest {
            holder: self.holder.clone(),
            request: self.request.clone(),
            terms: self.terms.clone(),
            wait: self.client.wait != Wait::No,
            lane_waiters: self.client.lane_waiters.unwrap_or(0),
            // A request that has lost its place may have lost it to a later request with its key.
            supersedes: self.terms.is_keyed() && is_first,
        }
    }

    /// The part of the request that the permit keeps.
    pub(super) fn requested(&self, clock: Clock) -> Requested {
        Requested {
            semaphore: self.semaphore.clone(),
            holder: self.holder.clone(),
            request: self.request.clone(),
            terms: self.terms.clone(),
            max_hold: self.client.max_hold,
            clock,
            meters: self.meters.clone(),
        }
    }

    /// The error for a request that a later one with the same key has replaced.
    pub(super) fn superseded(&self) -> AcquireError {
        AcquireError::Superseded { key: self.terms.supersede.as_str().to_owned() }
    }

    /// The holder and the request id by which the store knows the request.
    pub(super) fn key(&self) -> RequestKey {
        RequestKey { holder: self.holder.clone(), request: self.request.clone() }
    }
}

/// The terms of a request that the store does not keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClientTerms {
    pub(crate) wait: Wait,
    /// Renew the permit in the background once it is held. A waiting request is always renewed.
    pub(crate) auto_renew: bool,
    /// The longest time for which the permit is held.
    pub(crate) max_hold: Option<Duration>,
    /// The most requests of the lane that wait, this one included.
    pub(crate) lane_waiters: Option<u32>,
}

impl Default for ClientTerms {
    fn default() -> Self {
        Self { wait: Wait::Forever, auto_renew: true, max_hold: None, lane_waiters: None }
    }
}

/// How long a request may wait in the queue. Ordered by length, so that `No` is the least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wait {
    No,
    AtMost(Duration),
    Forever,
}

impl std::fmt::Display for Wait {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::No => f.write_str("no"),
            Self::AtMost(limit) => write!(f, "{limit:?}"),
            Self::Forever => f.write_str("unlimited"),
        }
    }
}

/// The positions in the queue that a request has had.
#[derive(Debug)]
pub(crate) struct Position {
    /// The position in the first reply; `u64::MAX` until then.
    first: AtomicU64,
    /// The position in the last reply.
    last: AtomicU64,
    /// The positions of the last minute with their times, the earliest first.
    seen: Mutex<VecDeque<(Moment, u64)>>,
    /// Counts the request in the metric of waiters, while it waits.
    pub(super) waiting: Arc<Counted>,
}

impl Default for Position {
    fn default() -> Self {
        Self {
            first: AtomicU64::new(u64::MAX),
            last: AtomicU64::new(u64::MAX),
            seen: Mutex::default(),
            waiting: Arc::default(),
        }
    }
}

impl Position {
    /// Notes a position. Returns true if it is the first one.
    pub(super) fn set(&self, position: u64, now: Moment) -> bool {
        self.last.store(position, Ordering::Relaxed);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        while seen.get(1).is_some_and(|(at, _)| *at + EXPECTED_FROM < now) {
            seen.pop_front();
        }
        seen.push_back((now, position));
        drop(seen);
        let first = self.first();
        if first.is_none() {
            self.first.store(position, Ordering::Relaxed);
        }
        first.is_none()
    }

    /// The time until the grant, if the requests ahead leave as fast as in the last minute; `None` if nobody
    /// has left in that minute.
    pub(crate) fn expected_wait(&self, now: Moment) -> Option<Duration> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let ((first_at, first), (last_at, last)) = (*seen.front()?, *seen.back()?);
        let gone = first.checked_sub(last).filter(|gone| *gone > 0)?;
        let each = last_at.since(first_at).as_secs_f64() / gone as f64;
        let left = Duration::try_from_secs_f64(each * (last + 1) as f64).ok()?;
        Some(left.saturating_sub(now.since(last_at)))
    }

    /// The position at which the request was queued; `None` until then.
    pub(super) fn first(&self) -> Option<u64> {
        Some(self.first.load(Ordering::Relaxed)).filter(|position| *position < u64::MAX)
    }

    /// The last position; `None` until the store has queued the request.
    pub(crate) fn get(&self) -> Option<u64> {
        Some(self.last.load(Ordering::Relaxed)).filter(|position| *position < u64::MAX)
    }
}

/// The limit that a program declares for a semaphore.
#[derive(Debug)]
pub(crate) struct LimitDeclaration {
    /// The declaration of the first request.
    first: Declaration,
    /// The declaration has counted. From then on a declared limit counts only if the store has no limit, so
    /// that two programs that disagree don't set the limit back and forth.
    counted: AtomicBool,
}

impl LimitDeclaration {
    pub(crate) fn new(first: Declaration) -> Self {
        Self { first, counted: AtomicBool::new(false) }
    }

    /// The declaration of the first request.
    pub(crate) fn first(&self) -> Declaration {
        self.first
    }

    /// The declaration of the next request.
    pub(super) fn next(&self) -> Declaration {
        match self.first {
            Declaration::Declare(limit) if self.counted.load(Ordering::Relaxed) => {
                Declaration::Fallback(limit)
            }
            first => first,
        }
    }

    /// Notes the reply to a request that was not refused. While the limit is pinned, no declaration counts.
    /// So the program declares its limit again with each request, until one counts because the operator has
    /// lifted the pin.
    pub(crate) fn note_reply(&self, pinned: bool) {
        self.counted.store(!pinned, Ordering::Relaxed);
    }

    /// The declared or required limit.
    pub(crate) fn limit(&self) -> Option<u32> {
        match self.first {
            Declaration::Stored => None,
            Declaration::Declare(limit) | Declaration::Fallback(limit) | Declaration::Require(limit) => {
                Some(limit)
            }
        }
    }
}

/// The last declaration of each semaphore. A program declares its limit once, however many handles it makes.
///
/// A program may make a handle for each request. If each handle declared its limit anew, two versions of the
/// program that run side by side would set the limit back and forth.
#[derive(Debug, Default)]
pub(super) struct Declarations(Mutex<Map<Name, Arc<LimitDeclaration>>>);

impl Declarations {
    /// Returns the declaration for a new handle: the last one of the semaphore, if it is the same. A handle
    /// that declares nothing, such as that of an inspection, changes no declaration.
    pub(super) fn shared(&self, semaphore: &Name, first: Declaration) -> Arc<LimitDeclaration> {
        if first == Declaration::Stored {
            return Arc::new(LimitDeclaration::new(first));
        }
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(declared) = last.get(semaphore).filter(|declared| declared.first() == first) {
            return declared.clone();
        }
        if last.len() == DECLARATIONS_MAX {
            last.clear();
        }
        let declared = Arc::new(LimitDeclaration::new(first));
        last.insert(semaphore.clone(), declared.clone());
        declared
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(number: usize) -> Name {
        Name::new(&number.to_string()).expect("it is valid")
    }

    #[test]
    fn what_is_left_of_a_wait_is_told_by_the_positions_of_the_last_minute() {
        let position = Position::default();
        let at = |seconds: u64| Moment::from_micros(seconds * 1_000_000);
        assert_eq!(position.expected_wait(at(0)), None);
        for (seconds, place) in [(0, 20), (10, 20)] {
            position.set(place, at(seconds));
            assert_eq!(position.expected_wait(at(seconds)), None, "none has gone");
        }
        // The position fell by ten in 20 s, and eleven grants are left.
        position.set(10, at(20));
        assert_eq!(position.expected_wait(at(20)), Some(Duration::from_secs(22)));
        assert_eq!(position.expected_wait(at(30)), Some(Duration::from_secs(12)));
        assert_eq!(position.expected_wait(at(90)), Some(Duration::ZERO));
        // The fast grants were more than a minute ago.
        for seconds in [60, 100] {
            position.set(if seconds == 60 { 9 } else { 8 }, at(seconds));
        }
        assert_eq!(position.expected_wait(at(100)), Some(Duration::from_secs(9 * 40)));
        // Requests of other lanes have come, so the position grows.
        position.set(30, at(130));
        assert_eq!(position.expected_wait(at(130)), None);
    }

    #[test]
    fn handles_share_the_last_declaration_of_their_semaphore() {
        let declarations = Declarations::default();
        let declare = |limit| declarations.shared(&named(0), Declaration::Declare(limit));
        let first = declare(2);
        assert!(Arc::ptr_eq(&first, &declare(2)));
        let other = declare(3);
        assert!(!Arc::ptr_eq(&first, &other) && Arc::ptr_eq(&other, &declare(3)));
        assert!(!Arc::ptr_eq(&first, &declare(2)), "a program that goes back declares again");
        let last = declare(2);
        let stored = declarations.shared(&named(0), Declaration::Stored);
        assert_eq!(stored.next(), Declaration::Stored);
        assert!(Arc::ptr_eq(&last, &declare(2)), "a handle that inspects declares nothing");
        assert!(!Arc::ptr_eq(&other, &declarations.shared(&named(1), Declaration::Declare(3))));
    }

    #[test]
    fn so_many_declarations_are_kept_and_no_more() {
        let declarations = Declarations::default();
        let declare = |number| declarations.shared(&named(number), Declaration::Declare(2));
        let first = declare(0);
        for number in 1..DECLARATIONS_MAX {
            declare(number);
        }
        assert!(Arc::ptr_eq(&first, &declare(0)));
        declare(DECLARATIONS_MAX);
        assert_eq!(declarations.0.lock().expect("no panic").len(), 1);
        assert!(!Arc::ptr_eq(&first, &declare(0)));
    }
}
