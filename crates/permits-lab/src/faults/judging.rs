//! The judgement on a cell, when all is over: from what the workers told, by one clock, and from what the fenced
//! resource took.

use std::collections::HashMap;
use std::time::Duration;

use permits_testkit::FencedResource;
use permits_testkit::history::{ClientEvent, Granted, History, client_checks};

use super::rows::Promise;
use super::stage::Fault;
use super::worker;

/// What a cell has shown.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) operations: usize,
    pub(crate) grants: usize,
    pub(crate) lost: usize,
    pub(crate) failed: usize,
    pub(crate) faults: usize,
    pub(crate) violations: Vec<String>,
    pub(crate) excess: Excess,
    /// Writes that came too late and were refused.
    pub(crate) refused: usize,
    /// The longest time from a fault to the next grant.
    pub(crate) recovery: Option<Duration>,
    /// From the end of the last fault until everybody had a permit.
    pub(crate) served: Option<Duration>,
}

/// How far, and for how long, more was held than the limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Excess {
    /// The most units above the limit.
    pub(crate) units: u64,
    /// The longest time without a break.
    pub(crate) longest: Duration,
    /// All times together.
    pub(crate) total: Duration,
    /// How many times.
    pub(crate) times: usize,
}

impl Verdict {
    /// Judges what was told, in the order of time.
    pub(crate) fn judge(history: &History, promise: Promise, limit: u32, faults: &[Fault]) -> Self {
        let grants = history.grants();
        let count = |like: fn(&ClientEvent) -> bool| {
            history.events.iter().filter(|(_, event)| like(&event.event)).count()
        };
        let mut verdict = Self {
            operations: count(|what| matches!(what, ClientEvent::Asked { .. } | ClientEvent::Releasing)),
            grants: grants.len(),
            lost: count(|what| matches!(what, ClientEvent::Lost(_))),
            failed: history.events.iter().filter(|(_, event)| has_failed(&event.event)).count(),
            faults: faults.len(),
            excess: excess(&grants, limit),
            recovery: faults.iter().filter_map(|fault| recovery(&grants, fault)).max(),
            ..Self::default()
        };
        let mut checks = vec![
            client_checks::check_well_formed(history),
            client_checks::check_stops(history),
            client_checks::check_tokens(&grants),
            client_checks::check_served(history),
        ];
        if promise.bound {
            checks.extend([
                client_checks::check_bound(&grants, limit),
                client_checks::check_slots(&grants, limit),
            ]);
        }
        if promise.order {
            checks.push(client_checks::check_queue_order(&grants));
        }
        for check in checks {
            verdict.hold(check.map_err(|violation| violation.to_string()));
        }
        if promise.success
            && let Some((number, event)) = history.events.iter().find(|(_, event)| has_failed(&event.event))
        {
            verdict.violations.push(format!("failed: worker {number}: {event}"));
        }
        if faults.iter().all(|fault| fault.effects == 0) {
            verdict.violations.push("coverage: no fault had any effect".to_owned());
        }
        verdict
    }

    /// Notes what is wrong, if anything.
    pub(crate) fn hold(&mut self, judgement: Result<(), String>) {
        self.violations.extend(judgement.err());
    }

    /// Judges what the fenced resource took and refused. Nothing that was stale may have been taken: nothing by a
    /// holder after another one, that acquired the same slot later, had written.
    pub(crate) fn judge_writes(&mut self, resource: &FencedResource, history: &History, rejected: &[String]) {
        self.refused = resource.refused().len();
        let grants = history.grants();
        let acquired: HashMap<(usize, &str), u64> =
            grants.iter().map(|granted| ((granted.worker, granted.tag.as_str()), granted.acquired)).collect();
        let mut newest: HashMap<u32, (u64, String)> = HashMap::new();
        for write in resource.writes() {
            let holder = write.data.split(' ').next().unwrap_or_default();
            let Some((number, tag)) = worker::of_holder(holder) else { continue };
            // A worker may be killed between its write and its word.
            let Some(&at) = acquired.get(&(number, tag.as_str())) else { continue };
            let newest = newest.entry(write.slot).or_insert_with(|| (at, holder.to_owned()));
            if at < newest.0 {
                self.violations.push(format!("fence: took {write:?} after a write by {}", newest.1));
                return;
            }
            *newest = (at, holder.to_owned());
        }
        if let Some(rejected) = rejected.first() {
            self.violations.push(format!("fence: refused {rejected}, who held"));
        }
    }
}

/// Whether an acquisition failed that nobody gave up.
fn has_failed(what: &ClientEvent) -> bool {
    matches!(what, ClientEvent::Failed(why) if !why.starts_with("not now"))
}

/// From a fault to the next grant.
fn recovery(grants: &[Granted], fault: &Fault) -> Option<Duration> {
    let later = grants.iter().map(|granted| granted.acquired).filter(|acquired| *acquired > fault.over);
    later.min().map(|acquired| Duration::from_micros(acquired - fault.over))
}

/// How far, and for how long, these were more than the limit.
fn excess(grants: &[Granted], limit: u32) -> Excess {
    let mut edges: Vec<(u64, i64)> = Vec::new();
    for granted in grants.iter().filter(|granted| granted.acquired < granted.end()) {
        let weight = i64::from(granted.weight);
        edges.extend([(granted.acquired, weight), (granted.end(), -weight)]);
    }
    // At the same microsecond ends come first: nobody holds at the end any more.
    edges.sort_unstable();
    let (mut held, mut since, mut excess) = (0, None, Excess::default());
    for (at, change) in edges {
        held += change;
        let above = u64::try_from(held - i64::from(limit)).unwrap_or(0);
        excess.units = excess.units.max(above);
        match (since, above > 0) {
            (None, true) => since = Some(at),
            (Some(from), false) => {
                let lasted = Duration::from_micros(at - from);
                excess.longest = excess.longest.max(lasted);
                excess.total += lasted;
                excess.times += 1;
                since = None;
            }
            _ => {}
        }
    }
    excess
}

#[cfg(test)]
mod tests {
    use super::*;

    fn granted(token: u64, weight: u32, acquired: u64, until: u64) -> Granted {
        Granted {
            worker: 1,
            tag: token.to_string(),
            weight,
            token,
            slot: 0,
            asked: acquired - 1,
            enqueued: None,
            acquired,
            until,
            releasing: None,
            lost: None,
        }
    }

    #[test]
    fn excess_is_counted_in_units_and_time() {
        let fine = [granted(1, 2, 10, 20), granted(2, 1, 20, 30)];
        assert_eq!(excess(&fine, 2), Excess::default(), "one begins when the other ends");
        let over =
            [granted(1, 2, 10, 20), granted(2, 2, 15, 30), granted(3, 1, 29, 33), granted(4, 1, 31, 33)];
        let micros = Duration::from_micros;
        let expected = Excess { units: 2, longest: micros(5), total: micros(6), times: 2 };
        assert_eq!(excess(&over, 2), expected);
    }

    #[test]
    fn recovery_is_to_the_next_grant() {
        let grants = [granted(1, 1, 10, 20), granted(2, 1, 50, 60)];
        let fault = |over| Fault { over, effects: 1 };
        assert_eq!(recovery(&grants, &fault(10)), Some(Duration::from_micros(40)));
        assert_eq!(recovery(&grants, &fault(50)), None);
    }

    #[test]
    fn a_stale_write_that_was_taken_is_found() {
        let mut history = History::default();
        for (tag, at, token) in [("0.1", 10, 5), ("0.2", 20, 4)] {
            history.note_at(at, 1, tag, ClientEvent::Asked { weight: 1 });
            history.note_at(at + 1, 1, tag, ClientEvent::Acquired { token, slot: 0, until: 100 });
        }
        let judged = |tags: &[(&str, u64)]| {
            let resource = FencedResource::new();
            for (tag, token) in tags {
                resource.write(0, *token, &format!("w1.{tag} held")).expect("it rises");
            }
            let mut verdict = Verdict::default();
            verdict.judge_writes(&resource, &history, &[]);
            verdict.violations.len()
        };
        assert_eq!(judged(&[("0.1", 5)]), 0);
        // The later grant has the lower token: then the resource cannot know.
        assert_eq!(judged(&[("0.2", 4), ("0.1", 5)]), 1);
    }
}
