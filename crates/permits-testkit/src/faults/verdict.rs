//! The verdict on a cell: of the workers' history, by one clock, and of the writes that the fenced resource
//! accepted.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::fixture::LEASE;
use super::{Fault, Promise};
use crate::FencedResource;
use crate::history::{ClientEvent, Granted, History, client_checks};
use crate::worker::parse_holder;

/// The results of a cell.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Requests and releases.
    pub operations: usize,
    /// Grants.
    pub grants: usize,
    /// Grants that clients made themselves from permits that they kept, included in `grants`.
    pub granted_again: usize,
    /// Permits that were lost.
    pub lost: usize,
    /// Operations that failed.
    pub failed: usize,
    /// Faults that were injected.
    pub faults: usize,
    /// The violations of the row's promises.
    pub violations: Vec<String>,
    /// The units held above the limit.
    pub excess: Excess,
    /// Stale writes that the fenced resource refused.
    pub refused: usize,
    /// The longest time from a fault to the next grant.
    pub recovery: Option<Duration>,
    /// The longest wait of a request that was granted.
    pub waited: Option<Duration>,
    /// The time from the end of the last fault until every worker had a permit.
    pub served: Option<Duration>,
}

/// How far, and for how long, the held units exceeded the limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Excess {
    /// The most units above the limit.
    pub units: u64,
    /// The longest time without a break.
    pub longest: Duration,
    /// The sum of all times.
    pub total: Duration,
    /// The number of times.
    pub times: usize,
}

impl Verdict {
    /// Verifies a history in the order of time.
    pub(super) fn of(history: &History, promise: Promise, limit: u32, faults: &[Fault]) -> Self {
        let grants = history.grants();
        let of_workers: Vec<Granted> =
            grants.iter().filter(|granted| granted.semaphore.is_empty()).cloned().collect();
        let count = |like: fn(&ClientEvent) -> bool| {
            history.events.iter().filter(|(_, record)| like(&record.event)).count()
        };
        let mut verdict = Self {
            operations: count(|event| matches!(event, ClientEvent::Asked { .. } | ClientEvent::Releasing)),
            grants: grants.len(),
            granted_again: grants.iter().filter(|granted| granted.again).count(),
            lost: count(|event| matches!(event, ClientEvent::Lost(_))),
            failed: count(|event| matches!(event, ClientEvent::Failed(_))),
            faults: faults.len(),
            excess: excess(&of_workers, limit),
            waited: grants.iter().map(waited).max(),
            recovery: faults.iter().filter_map(|fault| recovery(&grants, fault)).max(),
            ..Self::default()
        };
        let mut checks = vec![
            client_checks::check_well_formed(history),
            client_checks::check_stops(history),
            client_checks::check_served(history),
        ];
        let mut lines: BTreeMap<&str, Vec<Granted>> = BTreeMap::new();
        for granted in &grants {
            lines.entry(&granted.semaphore).or_default().push(granted.clone());
        }
        checks.extend(lines.values().map(|grants| client_checks::check_tokens(grants)));
        if promise.bound {
            checks.push(client_checks::check_writes(history));
            checks.extend(lines.values().flat_map(|grants| {
                [
                    client_checks::check_bound(grants, limit),
                    client_checks::check_slots(grants, limit),
                    client_checks::check_lanes(grants),
                ]
            }));
        }
        if promise.order {
            checks.extend(lines.values().map(|grants| client_checks::check_queue_order(grants)));
        }
        for check in checks {
            verdict.note(check.map_err(|violation| violation.to_string()));
        }
        if promise.order && count(|event| matches!(event, ClientEvent::Enqueued)) == 0 {
            verdict.violations.push("coverage: nobody was seen in the queue".to_owned());
        }
        let (above, most) = (verdict.excess.units, u64::from(limit) * losses(faults));
        if !promise.bound && above > most {
            let reason = format!("P2: {above} units above the limit, and the exceptions allow {most}");
            verdict.violations.push(reason);
        }
        let mut failures = history.events.iter().filter(|(_, it)| matches!(it.event, ClientEvent::Failed(_)));
        if let (true, Some((number, record))) = (promise.success, failures.next()) {
            verdict.violations.push(format!("failed: worker {number}: {record}"));
        }
        let is_loss = |event: &ClientEvent| {
            matches!(event, ClientEvent::Lost(_) | ClientEvent::NotHeld | ClientEvent::Released(Err(_)))
        };
        let mut losses = history.events.iter().filter(|(_, it)| is_loss(&it.event));
        if let (true, Some((number, record))) = (promise.order, losses.next()) {
            verdict.violations.push(format!("lost: worker {number}: {record}"));
        }
        if let Some(longest) = promise.keep {
            let late = grants.iter().find(|granted| waited(granted) > longest);
            verdict.note(late.map_or(Ok(()), |late| Err(format!("wait: longer than {longest:?}: {late:?}"))));
        }
        if faults.iter().all(|fault| fault.effects == 0) {
            verdict.violations.push("coverage: no fault had any effect".to_owned());
        }
        verdict
    }

    /// Notes a violation.
    pub(super) fn note(&mut self, result: Result<(), String>) {
        self.violations.extend(result.err());
    }

    /// Verifies the writes that the fenced resource accepted. None may be stale: no holder writes after a
    /// later holder of the same slot has written.
    pub(super) fn check_writes(&mut self, resource: &FencedResource, history: &History) {
        self.refused = resource.refused().len();
        let grants = history.grants();
        let acquired: HashMap<(usize, &str), u64> =
            grants.iter().map(|granted| ((granted.worker, granted.tag.as_str()), granted.acquired)).collect();
        let mut newest: HashMap<u32, (u64, String)> = HashMap::new();
        for write in resource.writes() {
            let holder = write.data.split(' ').next().unwrap_or_default();
            let Some(key) = parse_holder(holder) else { continue };
            // A worker may be killed between its write and its report.
            let Some(&at) = acquired.get(&key) else { continue };
            let newest = newest.entry(write.slot).or_insert_with(|| (at, holder.to_owned()));
            if at < newest.0 {
                self.violations.push(format!("fence: accepted {write:?} after a write by {}", newest.1));
                return;
            }
            *newest = (at, holder.to_owned());
        }
    }
}

/// The time from the request to the permit.
fn waited(granted: &Granted) -> Duration {
    Duration::from_micros(granted.acquired - granted.asked)
}

/// The time from a fault to the next grant.
fn recovery(grants: &[Granted], fault: &Fault) -> Option<Duration> {
    let later = grants.iter().map(|granted| granted.acquired).filter(|acquired| *acquired > fault.over);
    later.min().map(|acquired| Duration::from_micros(acquired - fault.over))
}

/// The losses of state that may count at one time: the most within a lease. Each allows the limit once more.
fn losses(faults: &[Fault]) -> u64 {
    let lease = u64::try_from(LEASE.as_micros()).expect("it is short");
    let within = |first: &Fault| {
        let together = faults.iter().filter(|fault| (first.over..=first.over + lease).contains(&fault.over));
        together.count() as u64
    };
    faults.iter().map(within).max().unwrap_or_default()
}

/// The excess of these grants.
fn excess(grants: &[Granted], limit: u32) -> Excess {
    let mut edges: Vec<(u64, i64)> = Vec::new();
    for granted in grants.iter().filter(|granted| granted.acquired < granted.end()) {
        let weight = i64::from(granted.weight);
        edges.extend([(granted.acquired, weight), (granted.end(), -weight)]);
    }
    // If two edges have the same microsecond, the end comes first, because an interval does not contain its
    // end.
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
            semaphore: String::new(),
            lane: None,
            token,
            slot: 0,
            again: false,
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
    fn each_loss_within_a_lease_allows_the_limit_once_more() {
        let fault = |seconds: u64| Fault { over: seconds * 1_000_000, effects: 1 };
        assert_eq!(losses(&[fault(1), fault(4), fault(7)]), 1);
        assert_eq!(losses(&[fault(1), fault(4), fault(6), fault(9)]), 2);
    }

    #[test]
    fn recovery_is_to_the_next_grant() {
        let grants = [granted(1, 1, 10, 20), granted(2, 1, 50, 60)];
        let fault = |over| Fault { over, effects: 1 };
        assert_eq!(recovery(&grants, &fault(10)), Some(Duration::from_micros(40)));
        assert_eq!(recovery(&grants, &fault(50)), None);
    }

    #[test]
    fn a_stale_write_that_was_accepted_is_found() {
        let mut history = History::default();
        for (tag, at, token) in [("loop0.1", 10, 5), ("loop0.2", 20, 4)] {
            history.note_at(at, 1, tag, ClientEvent::Asked { weight: 1 });
            history.note_at(
                at + 1,
                1,
                tag,
                ClientEvent::Acquired { token, slot: 0, until: 100, again: false },
            );
        }
        let violations = |tags: &[(&str, u64)]| {
            let resource = FencedResource::new();
            for (tag, token) in tags {
                resource.write(0, *token, &format!("worker.1.{tag} held")).expect("it rises");
            }
            let mut verdict = Verdict::default();
            verdict.check_writes(&resource, &history);
            verdict.violations.len()
        };
        assert_eq!(violations(&[("loop0.1", 5)]), 0);
        // The later grant has the lower token, which the resource cannot know.
        assert_eq!(violations(&[("loop0.2", 4), ("loop0.1", 5)]), 1);
    }
}
