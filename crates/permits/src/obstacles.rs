//! What keeps a request out, of an [`Inspection`]: as a sentence, and the time for which it does.
//!
//! The sentence is the same in an error, in the command's line of a wait, and in the packages, which pass it
//! on.

use std::fmt;
use std::time::Duration;

use crate::inspection::{HolderInfo, Inspection};

/// The most holders that are named.
const NAMED: usize = 3;

impl Inspection {
    /// Returns true if a pause, a closed line or a recovery keeps every request out, also where the units are
    /// free.
    pub fn stands_still(&self) -> bool {
        self.paused || self.closed.is_some() || !self.recovering.is_zero()
    }

    /// The reason why a request waits, such as `paused for another 5 m (deploy), 2 of 2 held by "nightly"
    /// (web-1:4711/Zk3.0) for 3 s`: what keeps every request out, and the first three holders, each as `who`
    /// writes it, with its age.
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
    /// # permit.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn why(&self, who: impl Fn(&HolderInfo) -> String) -> String {
        let mut why = String::new();
        if self.paused {
            let end =
                self.pause_remaining.map_or(String::new(), |left| format!(" for another {}", age(left)));
            let reason = self.pause_reason.as_deref().filter(|reason| !reason.is_empty());
            let reason = reason.map_or(String::new(), |reason| format!(" ({reason})"));
            why += &format!("paused{end}{reason}, ");
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

    /// The time after which a request for as many units succeeds if no other comes first, where no holder has
    /// to leave for it: not before the end of a pause and of a recovery, when enough units have cooled.
    pub(crate) fn granted_in(&self, weight: u32) -> Option<Duration> {
        let all_are_listed = self.waiting <= self.waiters.len() as u64;
        let has_end = !self.paused || self.pause_remaining.is_some();
        let limit = self.limit.filter(|_| all_are_listed && has_end && self.closed.is_none())?;
        let ahead: u64 = self.waiters.iter().map(|waiter| u64::from(waiter.weight)).sum();
        let mut missing = (self.held + ahead + u64::from(weight)).saturating_sub(limit.into());
        let mut cooled = Duration::ZERO;
        // By the end of their leases.
        for info in self.holders.iter().filter(|info| info.cooling) {
            if missing > 0 {
                missing = missing.saturating_sub(info.weight.into());
                cooled = info.lease_remaining;
            }
        }
        (missing == 0).then(|| cooled.max(self.recovering).max(self.pause_remaining.unwrap_or_default()))
    }

    /// It without this holder or waiter, if it lists it: one that has given up, and whose release may be on
    /// its way.
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

    /// What an error carries: a few holders and waiters, and the last change of each kind.
    pub(crate) fn brief(&self) -> Self {
        let mut brief = self.clone();
        // One more than is named shows whether there are more.
        brief.holders.truncate(NAMED + 1);
        brief.waiters.truncate(NAMED + 1);
        brief.changes = self.last_changes().cloned().collect();
        brief
    }
}

/// `"nightly" (web-1:4711/Zk3.0)`, or the name alone without a label: its label first, because its name is
/// random unless the program sets one.
impl fmt::Display for HolderInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.label {
            Some(label) => write!(f, "{label:?} ({})", self.holder),
            None => f.write_str(&self.holder),
        }
    }
}

/// What kept a request out, as the end of a sentence; empty if it is not known.
pub(crate) fn kept_out(inspection: Option<&Inspection>) -> String {
    inspection.map_or(String::new(), |inspection| {
        format!(": {}, {} waiting", inspection.why(ToString::to_string), inspection.waiting)
    })
}

/// The sentence of a recovery that lasts for `remaining`.
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

/// The largest unit, rounded down.
fn age(age: Duration) -> String {
    let seconds = age.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} m", seconds / 60),
        3600..86400 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86400),
    }
}
