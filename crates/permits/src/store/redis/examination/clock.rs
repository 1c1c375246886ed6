//! Whether the server's clock goes as it should: compared with ours over the time that an examination takes.
//!
//! Nobody's clock has to agree with the server's. But leases are measured by it, so it must not jump.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::RedisResult;
use redis::aio::ConnectionLike;

use super::answered;
use crate::clock::Moment;
use crate::examine::Finding;

/// By how much the server's clock may be seen to leave ours, beyond what the network explains, in seconds.
const JUMP: f64 = 1.0;

/// By how much the two clocks may differ before it is worth knowing, in seconds.
const APART: f64 = 1.0;

/// The server's clock, read between two readings of ours.
pub(super) struct Reading {
    server: Duration,
    wall: Duration,
    before: Moment,
    after: Moment,
}

impl Reading {
    pub(super) async fn take(connection: &mut impl ConnectionLike) -> RedisResult<Option<Self>> {
        let before = Moment::now();
        let time = answered::<(u64, u32)>(connection, &redis::cmd("TIME")).await?;
        let after = Moment::now();
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let reading = |(seconds, micros): (u64, u32)| Self {
            server: Duration::from_secs(seconds) + Duration::from_micros(micros.into()),
            wall,
            before,
            after,
        };
        Ok(time.ok().map(reading))
    }
}

/// What two readings tell.
pub(super) fn compare(first: &Reading, last: &Reading) -> Finding {
    let passed = last.server.as_secs_f64() - first.server.as_secs_f64();
    let least = last.before.since(first.after).as_secs_f64();
    let most = last.after.since(first.before).as_secs_f64();
    let off = (least - passed).max(passed - most);
    if off > JUMP {
        let observed = format!("the server's clock went on by {passed:.3} s while {least:.3} s passed here");
        let meaning = "Leases are measured by the server's clock. A clock that jumps forward ends them early, \
                       and their permits are lost; one that jumps backward makes them longer. Let it be slewed \
                       and not stepped (chrony does unless told otherwise), and look at the machine it runs on.";
        return Finding::problem("clock", observed, meaning);
    }
    let ahead = last.server.as_secs_f64() - last.wall.as_secs_f64();
    // The server's clock was read at some moment of the round trip.
    if ahead.abs() <= APART + last.after.since(last.before).as_secs_f64() {
        return Finding::fine("clock", "the server's agrees with ours");
    }
    let which = if ahead > 0.0 { "ahead of" } else { "behind" };
    let observed = format!("the server's is {:.1} s {which} ours", ahead.abs());
    let meaning = "Harmless in itself: no client's clock matters. But if it is the server's that is wrong, do not \
                   set it by a step: forward, that ends leases early.";
    Finding::note("clock", observed, meaning)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::examine::Severity;

    /// A reading at so many milliseconds of ours, where the server's clock shows so many.
    fn reading(ours: u64, server: u64) -> Reading {
        let at = Moment::from_micros(ours * 1000);
        let wall = Duration::from_millis(ours);
        Reading {
            server: Duration::from_millis(server),
            wall,
            before: at,
            after: at + Duration::from_millis(1),
        }
    }

    #[test]
    fn a_clock_that_jumps_is_a_problem_and_one_that_is_elsewhere_a_note() {
        let first = reading(10_000, 10_000);
        for (server, severity) in
            [(10_100, Severity::Fine), (12_000, Severity::Problem), (8_000, Severity::Problem)]
        {
            assert_eq!(compare(&first, &reading(10_100, server)).severity, severity, "{server}");
        }
        for (server, which) in [(90_000, "ahead of"), (1_000, "behind")] {
            let finding = compare(&reading(10_000, server), &reading(10_100, server + 100));
            assert!(finding.severity == Severity::Note && finding.observed.contains(which), "{finding:?}");
        }
    }
}
