//! What all workers of a test have told, and the judgement on it: safety from outside, by one clock.
//!
//! For each permit M is the interval from the return of the acquisition to the first of: the release being
//! called, the loss being signalled, the last deadline that the permit is known to have stated. So a holder
//! that was killed or paused counts until its last word, and no longer.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::event::{Event, What};

/// One acquisition that was granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Granted {
    /// The worker's number.
    pub(crate) worker: usize,
    pub(crate) tag: String,
    pub(crate) token: u64,
    pub(crate) slot: u32,
    pub(crate) asked: u64,
    pub(crate) acquired: u64,
    /// The last deadline stated.
    pub(crate) until: u64,
    pub(crate) releasing: Option<u64>,
    pub(crate) lost: Option<u64>,
}

impl Granted {
    /// The end of M.
    pub(crate) fn end(&self) -> u64 {
        [Some(self.until), self.releasing, self.lost].into_iter().flatten().min().unwrap_or(self.until)
    }

    fn is_empty(&self) -> bool {
        self.end() <= self.acquired
    }
}

/// Everything told, with the number of the worker that told it, in the order of arrival.
#[derive(Debug, Default)]
pub(crate) struct History {
    pub(crate) events: Vec<(usize, Event)>,
}

impl History {
    /// What this worker told of this acquisition.
    pub(crate) fn of<'a>(&'a self, worker: usize, tag: &'a str) -> impl Iterator<Item = &'a Event> {
        let ours = move |(number, event): &&(usize, Event)| *number == worker && event.tag == tag;
        self.events.iter().filter(ours).map(|(_, event)| event)
    }

    /// All grants, in the order in which they were asked for.
    pub(crate) fn grants(&self) -> Vec<Granted> {
        let mut asked: BTreeMap<(usize, &str), u64> = BTreeMap::new();
        let mut grants: BTreeMap<(usize, &str), Granted> = BTreeMap::new();
        for (worker, event) in &self.events {
            let (worker, at, key) = (*worker, event.at, (*worker, event.tag.as_str()));
            if event.what == What::Asked {
                asked.insert(key, at);
            }
            if let What::Acquired { token, slot, until } = event.what {
                let (tag, asked) = (event.tag.clone(), asked.get(&key).copied().unwrap_or(at));
                let granted = Granted {
                    worker,
                    tag,
                    token,
                    slot,
                    asked,
                    acquired: at,
                    until,
                    releasing: None,
                    lost: None,
                };
                grants.insert(key, granted);
            }
            let Some(granted) = grants.get_mut(&key) else { continue };
            match event.what {
                What::Held { until } => granted.until = granted.until.max(until),
                What::Releasing => granted.releasing = Some(at),
                What::Lost(_) | What::NotHeld => granted.lost = Some(granted.lost.unwrap_or(at).min(at)),
                _ => {}
            }
        }
        let mut grants: Vec<Granted> = grants.into_values().collect();
        grants.sort_by_key(|granted| granted.asked);
        grants
    }

    /// The last events but the steps, to explain a failure.
    pub(crate) fn tail(&self) -> String {
        let steps = |(_, event): &&(usize, Event)| !matches!(event.what, What::Held { .. });
        let events: Vec<_> = self.events.iter().filter(steps).collect();
        let mut text = String::new();
        for (worker, event) in &events[events.len().saturating_sub(60)..] {
            let _ = writeln!(text, "worker {worker}: {event}");
        }
        text
    }
}

/// P2: never more than `limit` permits at once.
pub(crate) fn check_bound(grants: &[Granted], limit: usize) -> Result<(), String> {
    let overlap = most_at_once(grants);
    if overlap.len() <= limit {
        return Ok(());
    }
    Err(format!("{} permits at once, with a limit of {limit}: {overlap:#?}", overlap.len()))
}

/// The largest set of permits that were held at the same time.
pub(crate) fn most_at_once(grants: &[Granted]) -> Vec<Granted> {
    let mut edges: Vec<(u64, bool, usize)> = Vec::new();
    for (index, granted) in grants.iter().enumerate().filter(|(_, granted)| !granted.is_empty()) {
        // At the same microsecond ends come first: M does not contain its end.
        edges.push((granted.acquired, true, index));
        edges.push((granted.end(), false, index));
    }
    edges.sort_unstable();
    let (mut open, mut most) = (Vec::new(), Vec::new());
    for (_, begins, index) in edges {
        if begins {
            open.push(index);
        } else {
            open.retain(|other| *other != index);
        }
        if open.len() > most.len() {
            most.clone_from(&open);
        }
    }
    most.into_iter().map(|index| grants[index].clone()).collect()
}

/// P4: tokens are distinct, and whoever asked after another had its permit got a higher one.
pub(crate) fn check_tokens(grants: &[Granted]) -> Result<(), String> {
    let mut by_token: Vec<&Granted> = grants.iter().collect();
    by_token.sort_by_key(|granted| granted.token);
    if let Some(pair) = by_token.windows(2).find(|pair| pair[0].token == pair[1].token) {
        return Err(format!("one token twice: {pair:#?}"));
    }
    let mut by_acquired: Vec<&Granted> = grants.iter().collect();
    by_acquired.sort_by_key(|granted| granted.acquired);
    let mut by_asked: Vec<&Granted> = grants.iter().collect();
    by_asked.sort_by_key(|granted| granted.asked);
    let mut earlier = by_acquired.into_iter().peekable();
    let mut highest: Option<&Granted> = None;
    for granted in by_asked {
        while let Some(before) = earlier.next_if(|before| before.acquired < granted.asked) {
            highest = highest.filter(|highest| highest.token > before.token).or(Some(before));
        }
        if let Some(before) = highest.filter(|before| before.token > granted.token) {
            return Err(format!("a token that fell: {before:#?} and later {granted:#?}"));
        }
    }
    Ok(())
}

/// Slots are below the limit; no two permits have one at the same time; and in each the tokens rise, so that
/// a resource which remembers the highest token it saw in a slot rejects nobody who holds.
pub(crate) fn check_slots(grants: &[Granted], limit: usize) -> Result<(), String> {
    let mut slots: BTreeMap<u32, Vec<&Granted>> = BTreeMap::new();
    for granted in grants.iter().filter(|granted| !granted.is_empty()) {
        slots.entry(granted.slot).or_default().push(granted);
    }
    for (slot, mut users) in slots {
        if slot as usize >= limit {
            return Err(format!("a slot beyond the limit of {limit}: {users:#?}"));
        }
        users.sort_by_key(|granted| granted.acquired);
        for pair in users.windows(2) {
            if pair[1].acquired < pair[0].end() {
                return Err(format!("two in one slot: {pair:#?}"));
            }
            if pair[1].token <= pair[0].token {
                return Err(format!("a token that fell within a slot: {pair:#?}"));
            }
        }
    }
    Ok(())
}

/// P6, for waiters that were enqueued one after the other: they are granted in that order.
pub(crate) fn check_order(grants: &[Granted]) -> Result<(), String> {
    match grants.windows(2).find(|pair| pair[1].token < pair[0].token) {
        Some(pair) => Err(format!("the second was asked for later and granted earlier: {pair:#?}")),
        None => Ok(()),
    }
}

/// The judges find what is planted, and only that.
mod planted {
    use super::*;

    fn granted(token: u64, slot: u32, acquired: u64, until: u64) -> Granted {
        let (worker, tag) = (0, token.to_string());
        let (asked, releasing, lost) = (acquired - 1, None, None);
        Granted { worker, tag, token, slot, asked, acquired, until, releasing, lost }
    }

    fn event(worker: usize, at: u64, what: What) -> (usize, Event) {
        (worker, Event { at, tag: "a".to_owned(), what })
    }

    #[test]
    fn a_permit_ends_with_the_first_of_release_loss_and_deadline() {
        let acquired = What::Acquired { token: 7, slot: 1, until: 100 };
        let told = vec![event(0, 1, What::Asked), event(0, 2, acquired), event(1, 3, What::Asked)];
        let mut history = History { events: told };
        let only = |history: &History| history.grants()[0].clone();
        assert_eq!((history.grants().len(), only(&history).asked, only(&history).end()), (1, 1, 100));
        history.events.push(event(0, 50, What::Held { until: 150 }));
        assert_eq!(only(&history).end(), 150);
        history.events.push(event(0, 160, What::Lost("why".to_owned())));
        assert_eq!(only(&history).end(), 150, "signalled late, it was not held in between");
        history.events.push(event(0, 120, What::NotHeld));
        assert_eq!(only(&history).end(), 120);
        history.events.push(event(0, 110, What::Releasing));
        assert_eq!(only(&history).end(), 110);
    }

    #[test]
    fn too_many_at_once_are_found() {
        let fine = [granted(1, 0, 10, 20), granted(2, 1, 15, 30), granted(3, 0, 20, 40)];
        assert_eq!(check_bound(&fine, 2), Ok(()));
        let mut planted = fine.to_vec();
        planted.push(granted(4, 1, 29, 50));
        assert!(check_bound(&planted, 2).is_err(), "one microsecond is enough");
        planted[1].releasing = Some(29);
        assert_eq!(check_bound(&planted, 2), Ok(()));
        planted.push(granted(5, 1, 35, 35));
        assert_eq!(check_bound(&planted, 2), Ok(()), "never held by its own word");
    }

    #[test]
    fn tokens_that_fall_or_repeat_are_found() {
        let fine = [granted(1, 0, 10, 20), granted(2, 1, 15, 30), granted(3, 0, 20, 40)];
        assert_eq!(check_tokens(&fine), Ok(()));
        assert!(check_tokens(&[granted(2, 0, 10, 20), granted(1, 1, 15, 30)]).is_err());
        assert!(check_tokens(&[granted(1, 0, 10, 20), granted(1, 1, 15, 30)]).is_err());
        let mut side_by_side = [granted(2, 0, 10, 20), granted(1, 1, 15, 30)];
        side_by_side[1].asked = 9;
        assert_eq!(check_tokens(&side_by_side), Ok(()), "their order is not known");
        let late = [granted(9, 0, 10, 20), granted(3, 1, 11, 20), granted(5, 0, 40, 50)];
        assert!(check_tokens(&late).is_err(), "the highest counts, not the last");
    }

    #[test]
    fn slots_shared_or_without_rising_tokens_are_found() {
        let fine = [granted(1, 0, 10, 20), granted(2, 1, 15, 30), granted(3, 0, 20, 40)];
        assert_eq!(check_slots(&fine, 2), Ok(()));
        assert!(check_slots(&fine, 1).is_err());
        assert!(check_slots(&[granted(1, 0, 10, 20), granted(2, 0, 19, 30)], 2).is_err());
        assert!(check_slots(&[granted(2, 0, 10, 20), granted(1, 0, 25, 30)], 2).is_err());
    }

    #[test]
    fn overtaking_is_found() {
        assert_eq!(check_order(&[granted(1, 0, 10, 20), granted(2, 0, 30, 40)]), Ok(()));
        assert!(check_order(&[granted(2, 0, 10, 20), granted(1, 0, 30, 40)]).is_err());
    }
}
