//! The client's half of kept permits: the time when a session may keep what its callers release, and the
//! tokens of the grants that it makes of it. As [`acquisition`](crate::acquisition), pure values that the
//! session drives and the exhaustive check explores.
//!
//! **Tokens of kept permits.** Tokens of a slot must rise with each grant, so that a resource can refuse a
//! holder that is late. The store makes them of its clock, in microseconds, so its next one is at least the
//! time of the next grant. A session that grants a kept permit again asks no store; it counts on from the
//! token that the store gave, and no faster than the time passes.
//!
//! For example, the store grants slot 0 at 5,000 µs, with token 5,000. The session may use 5,001 once some
//! microseconds have passed, and at 5,300 µs it may have used 5,296 at most: a part is left for clocks of
//! different speeds. If the store then grants the slot to another session, the token is 5,300 or more. This
//! token is above all tokens that were used, although the store has not heard of them; the release reports
//! the last one. After [`KEPT_TOKENS`] grants the permit is released.

use std::time::Duration;

use crate::model::KEPT_TOKENS;

/// The slots of a semaphore whose permits a session may keep. A session may keep a permit only after a reply
/// has allowed it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Keeping {
    /// Permits with a slot below it may be kept.
    limit: u32,
}

/// A fact about a semaphore that a session learns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// A reply of the store.
    Reply {
        /// True if no request needs units, and no lane is pinned.
        keepable: bool,
        /// The limit.
        limit: u32,
        /// True if the reply came by the connection of the recalls. Otherwise a recall may have overtaken it.
        in_order: bool,
    },
    /// Others need units, or the limit was changed.
    Recall,
    /// A call has failed, or a connection has ended or begun: a recall may have been lost.
    Unsure,
}

impl Keeping {
    /// Returns true if everything that is kept is to be released.
    pub fn note(&mut self, notice: Notice) -> bool {
        let limit = match notice {
            Notice::Reply { keepable: true, limit, in_order: true } => limit,
            Notice::Reply { keepable: true, limit, in_order: false } => limit.min(self.limit),
            Notice::Reply { .. } | Notice::Recall | Notice::Unsure => 0,
        };
        limit < std::mem::replace(&mut self.limit, limit)
    }

    /// Returns true if a kept permit may serve a request that requires this limit.
    pub fn is_limit(self, required: u32) -> bool {
        self.limit == required
    }

    /// Returns true if a permit with this slot may be kept.
    pub fn allows(self, slot: u32) -> bool {
        slot < self.limit
    }
}

/// Returns true if there is a token for one more grant of a kept permit, which was granted again so many
/// times. Each grant has the token after the previous grant's.
pub fn is_token_left(granted_again: u32) -> bool {
    u64::from(granted_again) + 1 < KEPT_TOKENS
}

/// Returns true if that token is not ahead of the store's clock, so that the store's next one is above it:
/// within the time that has `passed` since the store granted the permit there is one token a microsecond,
/// less a part for clocks of different speeds.
pub fn is_token_due(granted_again: u32, passed: Duration) -> bool {
    let passed = u64::try_from(passed.as_micros()).unwrap_or(u64::MAX);
    u64::from(granted_again) < passed - passed / 64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_allows_to_keep_and_all_else_forbids() {
        let reply = |limit, in_order| Notice::Reply { keepable: true, limit, in_order };
        let mut keeping = Keeping::default();
        assert!(!keeping.allows(0));
        assert!(!keeping.note(reply(3, false)) && !keeping.allows(0), "a recall may be before it");
        assert!(!keeping.note(reply(3, true)) && keeping.allows(2) && !keeping.allows(3));
        assert!(!keeping.note(reply(4, false)) && !keeping.allows(3));
        assert!(keeping.note(reply(2, false)) && keeping.allows(1) && !keeping.allows(2));
        for notice in
            [Notice::Recall, Notice::Unsure, Notice::Reply { keepable: false, limit: 9, in_order: true }]
        {
            assert!(!keeping.note(reply(9, true)) && keeping.note(notice) && !keeping.allows(0));
        }
    }

    #[test]
    fn tokens_last_for_a_microsecond_each_and_end() {
        assert!(!is_token_due(0, Duration::ZERO));
        assert!(is_token_due(0, Duration::from_micros(1)));
        assert!(!is_token_due(63, Duration::from_micros(64)), "a clock may be fast");
        assert!(is_token_due(63, Duration::from_micros(65)));
        let last = u32::try_from(KEPT_TOKENS).expect("it is small") - 2;
        assert!(is_token_left(last) && !is_token_left(last + 1));
    }
}
