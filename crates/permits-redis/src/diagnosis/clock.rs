//! The server's clock, compared with this machine's clocks over the duration of the diagnosis.
//!
//! Clients' clocks need not agree with the server's. But the server's clock measures leases, so it must not
//! jump.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::connection::reply;
use crate::clock::Moment;
use crate::resp::{RespResult, cmd};
use crate::server::connection::Connection;
use permits_store::Finding;

/// The largest change of the server's clock, in seconds, that is no jump: beyond this machine's monotonic
/// clock and the round trips.
const JUMP: f64 = 1.0;

/// The largest difference of the two wall clocks, in seconds, that is fine.
const APART: f64 = 1.0;

/// A reading of the server's clock, between two readings of this machine's.
pub(super) struct Reading {
    server: Duration,
    wall: Duration,
    before: Moment,
    after: Moment,
}

impl Reading {
    pub(super) async fn take(connection: &Connection) -> RespResult<Option<Self>> {
        let before = Moment::now();
        let time = reply::<(u64, u32)>(connection, &cmd("TIME")).await?;
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

/// The finding that follows from two readings, and from the uptime that the server gives.
pub(super) fn compare(first: &Reading, last: &Reading, uptime: Option<i64>) -> Finding {
    let passed = last.server.as_secs_f64() - first.server.as_secs_f64();
    let least = last.before.since(first.after).as_secs_f64();
    let most = last.after.since(first.before).as_secs_f64();
    let off = (least - passed).max(passed - most);
    if off > JUMP {
        let observed = format!("the server's clock advanced by {passed:.3} s while {least:.3} s passed here");
        let advice = "The server's clock measures leases. A clock that jumps forward ends them early, and their permits \
                      are lost; a clock that jumps backward makes them longer. Slew the clock instead of stepping it \
                      (chrony's default), and look at the server's machine.";
        return Finding::problem("clock", observed, advice);
    }
    if let Some(behind) = uptime.filter(|seconds| *seconds < 0) {
        let observed = format!("the server's clock is {} s before the server's start", behind.unsigned_abs());
        let advice = "It was set back since the server started. Pauses, units that cool, and the permits of programs that \
                      died before end later by as much, and what is used for the first time grants nothing for a recovery \
                      window, until the clock has passed the start of the server or the server is started again. Let the \
                      clock be set before the server starts (time-sync.target of systemd).";
        return Finding::problem("clock", observed, advice);
    }
    let ahead = last.server.as_secs_f64() - last.wall.as_secs_f64();
    // The server's clock was read at some moment of the round trip.
    if ahead.abs() <= APART + last.after.since(last.before).as_secs_f64() {
        return Finding::fine("clock", "the server's agrees with this machine's");
    }
    let which = if ahead > 0.0 { "ahead of" } else { "behind" };
    let observed = format!("the server's is {:.1} s {which} this machine's", ahead.abs());
    let advice = "This is harmless, because clients' clocks do not matter. But if the server's clock is the wrong one, \
                  do not correct it by a step: a step forward ends leases early.";
    Finding::note("clock", observed, advice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use permits_store::Severity;

    /// A reading when this machine's clocks show `here` milliseconds, and the server's `server`.
    fn reading(here: u64, server: u64) -> Reading {
        let at = Moment::from_micros(here * 1000);
        let wall = Duration::from_millis(here);
        Reading {
            server: Duration::from_millis(server),
            wall,
            before: at,
            after: at + Duration::from_millis(1),
        }
    }

    #[test]
    fn a_jump_is_a_problem_and_a_constant_difference_a_note() {
        let first = reading(10_000, 10_000);
        for (server, severity) in
            [(10_100, Severity::Fine), (12_000, Severity::Problem), (8_000, Severity::Problem)]
        {
            assert_eq!(compare(&first, &reading(10_100, server), Some(1)).severity, severity, "{server}");
        }
        for (server, which) in [(90_000, "ahead of"), (1_000, "behind")] {
            let finding = compare(&reading(10_000, server), &reading(10_100, server + 100), None);
            assert!(finding.severity == Severity::Note && finding.observed.contains(which), "{finding:?}");
        }
    }
}
