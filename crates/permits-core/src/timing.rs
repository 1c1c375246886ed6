//! The lease rule: every interval that follows from a lease, in one table.
//!
//! | interval | rule | 100 ms | 15 s | 1 day |
//! |---|---|--:|--:|--:|
//! | [`renew_every`] | a third | 33 ms | 5 s | 8 h |
//! | [`margin`] | a hundredth, at least 5 ms | 5 ms | 150 ms | 14 min 24 s |
//! | [`call_timeout`] | a fifth, 250 ms to 3 s | 250 ms | 3 s | 3 s |
//! | [`retry_reclaim_after`] | a thirtieth, 10 ms to 500 ms | 10 ms | 500 ms | 500 ms |
//! | [`reconnect_pause_max`] | a thirtieth, 20 ms to 500 ms | 20 ms | 500 ms | 500 ms |
//! | [`ping_every`] | a third, 250 ms to 5 s | 250 ms | 5 s | 5 s |
//! | [`ping_timeout`] | a sixth, 250 ms to 2 s | 250 ms | 2 s | 2 s |
//!
//! A permit is held until the moment before the request was sent that last extended it, plus the lease, minus
//! the margin ([`held_until`]). Three renewals fit into a lease, and a call that gets no answer is given up
//! in time for another.
//!
//! The store has one share of the lease of its own, the recovery window:
//! [`Recovery::window`](crate::protocol::Recovery::window), which the scripts of the Redis store get as
//! numbers. To change the rule is to change these two places.

use std::time::Duration;

use crate::clock::Moment;

/// The interval between two renewals of everything that a session holds, at most, while some of it is
/// renewed. A store that restarts without its data waits for its holders only as long as a connected one
/// needs to reconnect.
pub const COMPANIONS_EVERY: Duration = Duration::from_secs(10);

/// The part of its interval by which a renewal may be early, so that sessions started together drift apart.
const RENEWAL_SPREAD: f64 = 0.05;

/// The interval between two renewals.
pub fn renew_every(lease: Duration) -> Duration {
    lease / 3
}

/// The interval to the next renewal: shorter by a random part of up to 5 %.
pub fn spread(interval: Duration) -> Duration {
    interval.mul_f64(1.0 - RENEWAL_SPREAD * fastrand::f64())
}

/// The time before the end of its lease at which a permit counts as lost, because clocks differ in rate by up
/// to 1 % and timers are late.
pub fn margin(lease: Duration) -> Duration {
    (lease / 100).max(Duration::from_millis(5))
}

/// The deadline of a permit that was last extended by a request sent at `sent_at`.
pub fn held_until(sent_at: Moment, lease: Duration) -> Moment {
    sent_at + lease.saturating_sub(margin(lease))
}

/// The lease with which a permit that is extended now is held for `time`: the reverse of [`held_until`].
pub fn lease_until(time: Duration) -> Duration {
    (time + time / 99).max(time + Duration::from_millis(5))
}

/// The longest [`call_timeout`].
pub const CALL_TIMEOUT_MAX: Duration = Duration::from_secs(3);

/// The time after which a call without an answer is given up, and its connection replaced.
pub fn call_timeout(lease: Duration) -> Duration {
    (lease / 5).clamp(SILENT_AFTER, CALL_TIMEOUT_MAX)
}

/// The time without an answer after which a store counts as silent, for a caller whose time is up: the
/// shortest [`call_timeout`].
pub const SILENT_AFTER: Duration = Duration::from_millis(250);

/// The timeout of a ping by which a session that stood still asks whether its connection lives. A machine
/// that has just woken needs a moment.
pub const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// The pause before a holder that the store forgot retries its renewal: shorter than the recovery window,
/// which each attempt keeps open.
pub fn retry_reclaim_after(lease: Duration) -> Duration {
    (lease / 30).clamp(BACKOFF.first, BACKOFF.longest)
}

/// Growing pauses between attempts.
#[derive(Debug, Clone, Copy)]
pub struct Backoff {
    /// The shortest pause.
    pub first: Duration,
    /// The longest pause.
    pub longest: Duration,
}

/// The pauses of calls and connections that failed.
pub const BACKOFF: Backoff =
    Backoff { first: Duration::from_millis(10), longest: Duration::from_millis(500) };

impl Backoff {
    /// The pause after this many failures in a row, at least one: doubled with each, and random between its
    /// half and its whole.
    pub fn pause(self, failures: u32) -> Duration {
        let doubled = self.first.saturating_mul(1 << failures.min(16));
        doubled.min(self.longest).mul_f64(0.5 + fastrand::f64() / 2.0)
    }
}

/// The longest pause between two attempts to reconnect. A recovery window may last only 1 s, and a holder
/// must be back well within it.
pub fn reconnect_pause_max(lease: Duration) -> Duration {
    (lease / 30).clamp(2 * BACKOFF.first, BACKOFF.longest)
}

/// The interval between two pings on an idle connection.
pub fn ping_every(lease: Duration) -> Duration {
    (lease / 3).clamp(Duration::from_millis(250), Duration::from_secs(5))
}

/// The time after which an unanswered ping ends a connection.
pub fn ping_timeout(lease: Duration) -> Duration {
    (lease / 6).clamp(Duration::from_millis(250), Duration::from_secs(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permit_with_the_lease_until_a_time_is_held_until_then() {
        let now = Moment::from_micros(1_000_000);
        for time in [1, 95, 500, 9_850, 14_850, 86_400_000].map(Duration::from_millis) {
            let until = held_until(now, lease_until(time)).since(now);
            let error = until.abs_diff(time);
            assert!(error < Duration::from_micros(2), "{until:?} for {time:?}");
        }
    }

    #[test]
    fn the_table_is_true() {
        const fn ms(milliseconds: u64) -> Duration {
            Duration::from_millis(milliseconds)
        }
        let leases = [ms(100), ms(15_000), ms(86_400_000)];
        let of_leases = |rule: fn(Duration) -> Duration| leases.map(|lease| rule(lease).as_millis());
        assert_eq!(of_leases(renew_every), [33, 5_000, 28_800_000]);
        assert_eq!(of_leases(margin), [5, 150, 864_000]);
        assert_eq!(of_leases(call_timeout), [250, 3_000, 3_000]);
        assert_eq!(of_leases(retry_reclaim_after), [10, 500, 500]);
        {
            assert_eq!(of_leases(reconnect_pause_max), [20, 500, 500]);
            assert_eq!(of_leases(ping_every), [250, 5_000, 5_000]);
            assert_eq!(of_leases(ping_timeout), [250, 2_000, 2_000]);
        }
    }

    #[test]
    fn pauses_grow_and_are_bounded() {
        for failures in 1..40 {
            let pause = BACKOFF.pause(failures);
            assert!((BACKOFF.first..=BACKOFF.longest).contains(&pause), "{pause:?} after {failures}");
        }
    }
}
