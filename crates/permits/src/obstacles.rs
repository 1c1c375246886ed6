//! Says from an [`Inspection`] what keeps a request out: as a sentence, and for how long.
//!
//! An error, the command's line about a wait, and the packages, which pass it on, all have the same sentence.

use std::fmt;
use std::time::Duration;

use crate::inspection::{HolderInfo, Inspection, LaneInfo};

/// How many holders a sentence names, at most.
const NAMED: usize = 3;

impl Inspection {
    /// Returns true if a pause, a closed line or a recovery keeps every request out, even if units are free.
    pub fn stands_still(&self) -> bool {
        self.paused || self.closed.is_some() || !self.recovering.is_zero()
    }

    /// Says why a request waits, for example `paused for another 5 m (deploy), 2 of 2 held by "nightly"
    /// (web-1:4711/Zk3.0) for 3 s`: what keeps every request out, and the first three holders with the age of
    /// their permits. `who` writes a holder.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = permits::Client::connect("memory:").await?;
    /// let exports = client.semaphore("exports", 4)?;
    /// let permit = exports.acquire_with(permits::AcquireOptions::new().holder("nightly")).await?;
    /// let why = exports.inspect_up_to(4).await?.why(|info| info.holder.clone());
    /// assert_eq!(why, "1 of 4 held by nightly for 0 s");
    /// exports.close_line("deploy").await?;
    /// let why = exports.inspect_up_to(4).await?.why(|info| info.holder.clone());
    /// assert_eq!(why, "closed (deploy), 1 of 4 held by nightly for 0 s");
    /// # permit.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn why(&self, who: impl Fn(&HolderInfo) -> String) -> String {
        let mut why = String::new();
        if self.paused {
            let end =
                self.pause_remaining.map_or(String::new(), |left| format!(" for another {}", age(left)));
            why += &format!("paused{end}{}, ", in_brackets(self.pause_reason.as_deref()));
        }
        if self.closed.is_some() {
            why += &format!("closed{}, ", in_brackets(self.closed.as_deref()));
        }
        if !self.recovering.is_zero() {
            why += &format!("{}; ", recovers(self.recovering));
        }
        let limit = self.limit.map_or(String::new(), |limit| format!(" of {limit}"));
        why += &format!("{}{limit} held", self.held);
        for (index, info) in self.holders.iter().enumerate().take(NAMED) {
            let and = if index == 0 { " by" } else { "," };
            why += &match info.cooling {
                true => {
                    format!("{and} {}, free in {}", who(info), age(at_least_a_second(info.lease_remaining)))
                }
                false => format!("{and} {} for {}", who(info), age(info.age)),
            };
        }
        why + if self.holders.len() > NAMED { ", …" } else { "" }
    }

    /// The time after which a request for this many units succeeds if no other comes first. It is the time
    /// until a pause and a recovery have ended and enough units have cooled. `None` if a holder has to leave
    /// first, or if the time is not known, for example because the lane of the request is at its limit.
    pub(crate) fn granted_in(&self, weight: u32, lane: &str) -> Option<Duration> {
        let of_lane = self.lanes.iter().find(|info| info.lane.as_deref() == Some(lane));
        let is_full = |info: &LaneInfo| {
            info.limit.is_some_and(|limit| info.held + u64::from(weight) > u64::from(limit))
        };
        if of_lane.is_some_and(is_full) {
            return None;
        }
        let all_are_listed = self.waiting <= self.waiters.len() as u64;
        let has_end = !self.paused || self.pause_remaining.is_some();
        let limit = self.limit.filter(|_| all_are_listed && has_end && self.closed.is_none())?;
        let ahead: u64 = self.waiters.iter().map(|waiter| u64::from(waiter.weight)).sum();
        let mut missing = (self.held + ahead + u64::from(weight)).saturating_sub(limit.into());
        let mut cooled = Duration::ZERO;
        // The holders are listed by the end of their leases, so these units cool in order.
        for info in self.holders.iter().filter(|info| info.cooling) {
            if missing > 0 {
                missing = missing.saturating_sub(info.weight.into());
                cooled = info.lease_remaining;
            }
        }
        (missing == 0).then(|| cooled.max(self.recovering).max(self.pause_remaining.unwrap_or_default()))
    }

    /// Returns the inspection without this holder or waiter, if it lists it. The caller is a request that has
    /// timed out, whose withdrawal may still be on its way.
    pub(crate) fn without(&self, holder: &str) -> Option<Self> {
        let held = self.holders.iter().position(|info| info.holder == holder && !info.cooling);
        let waits = self.waiters.iter().position(|info| info.holder == holder);
        let mut rest = held.or(waits).map(|_| self.clone())?;
        if let Some(index) = held {
            rest.held = rest.held.saturating_sub(rest.holders.remove(index).weight.into());
        }
        if let Some(index) = waits {
            rest.waiters.remove(index);
            rest.waiters[index..].iter_mut().for_each(|info| info.position -= 1);
            rest.waiting = rest.waiting.saturating_sub(1);
        }
        Some(rest)
    }

    /// Returns the part that an error carries: a few holders and waiters, and the last change of each kind.
    pub(crate) fn brief(&self) -> Self {
        let mut brief = self.clone();
        // List one holder more than is named: it shows that there are more.
        brief.holders.truncate(NAMED + 1);
        brief.waiters.truncate(NAMED + 1);
        brief.changes = self.last_changes().cloned().collect();
        brief
    }
}

/// Writes `"nightly" (web-1:4711/Zk3.0)`, or the name alone if there is no label. The label comes first,
/// because the name is random unless the program sets it.
impl fmt::Display for HolderInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.label {
            Some(label) => write!(f, "{label:?} ({})", self.holder),
            None => f.write_str(&self.holder),
        }
    }
}

/// Says what kept a request out, as the end of a sentence; empty if that is not known.
pub(crate) fn kept_out(inspection: Option<&Inspection>) -> String {
    inspection.map_or(String::new(), |inspection| {
        format!(": {}, {} waiting", inspection.why(ToString::to_string), inspection.waiting)
    })
}

/// The reason that an operator has given, in brackets behind what it explains; empty without a reason.
fn in_brackets(reason: Option<&str>) -> String {
    reason.filter(|reason| !reason.is_empty()).map_or(String::new(), |reason| format!(" ({reason})"))
}

/// Says that a recovery lasts for another `remaining`.
pub(crate) fn recovers(remaining: Duration) -> String {
    let seconds = remaining.as_millis().div_ceil(1000);
    format!(
        "nothing is granted yet: the store started or lost its state a moment ago, and holders that it may have \
         forgotten have {seconds} s more to reconnect"
    )
}

fn at_least_a_second(time: Duration) -> Duration {
    time.max(Duration::from_secs(1))
}

/// Writes an age in the largest unit, rounded down.
fn age(age: Duration) -> String {
    let seconds = age.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} m", seconds / 60),
        3600..86400 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86400),
    }
}
