//! The difference of two inspections of a semaphore, as events.
//!
//! Inspections are taken at intervals, so that a permit that was granted and ended between two of them is in
//! neither. The counters of the store count it: [`WatchEvent::Counts`] has their increases. The cause of an
//! end is inferred from them and from the changes by operators, and is [`Cause::Unknown`] if several are
//! possible. A list that is not whole yields no events of its entries, because an entry that is missing there
//! may still exist.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use permits::{ChangeInfo, Counts, HolderInfo, Inspection, WaiterInfo};

use super::event::{Cause, WatchEvent};
use crate::clock::milliseconds;
use crate::inspected::{is_recovering, unlisted_units, unlisted_waiters};

/// The events of the first inspection.
pub(super) fn first(now: &Inspection) -> Vec<WatchEvent> {
    let (holders, waiters) = partial(now);
    let partial = (holders || waiters).then_some(WatchEvent::Partial { holders, waiters });
    [WatchEvent::State].into_iter().chain(partial).collect()
}

/// The events that lead from `before` to `now`. `elapsed` is the time from the request of the one to the
/// reply of the other.
pub(super) fn differences(before: &Inspection, now: &Inspection, elapsed: Duration) -> Vec<WatchEvent> {
    let changes: Vec<&ChangeInfo> = new_changes(before, now).collect();
    let changed =
        |info: &&ChangeInfo| WatchEvent::Changed { by: info.by.clone(), change: info.change.clone() };
    let mut events: Vec<WatchEvent> = changes.iter().rev().map(changed).collect();
    events.extend(of_settings(before, now));
    let (was_partial, is_partial) = (partial(before), partial(now));
    if was_partial != is_partial {
        let (holders, waiters) = is_partial;
        events.push(WatchEvent::Partial { holders, waiters });
    }
    let rise = now.counts.since(before.counts);
    if rise.is_none() {
        events.push(WatchEvent::Reset);
    }
    let is_whole_again = (was_partial.0 && !is_partial.0) || (was_partial.1 && !is_partial.1);
    let difference = Difference {
        before,
        now,
        elapsed,
        rise: rise.unwrap_or(now.counts),
        revoked: changes.iter().filter_map(|change| change.change.holder()).collect(),
        has_holders: !was_partial.0 && !is_partial.0,
        has_waiters: !was_partial.1 && !is_partial.1,
    };
    // A store that lost its state has no entry of before, and gets those back whose holders are connected.
    if rise.is_none() || is_whole_again {
        events.extend(difference.counts());
        events.push(WatchEvent::State);
        return events;
    }
    events.extend(difference.ends());
    events.extend(difference.begins());
    events.extend(difference.counts());
    events
}

/// True for holders, or for waiters, of which not all are listed.
fn partial(inspection: &Inspection) -> (bool, bool) {
    (unlisted_units(inspection) > 0, unlisted_waiters(inspection) > 0)
}

/// The changes by operators that `before` does not have, newest first. The store forgets old ones.
fn new_changes<'a>(before: &'a Inspection, now: &'a Inspection) -> impl Iterator<Item = &'a ChangeInfo> {
    let is_known = |change: &ChangeInfo| {
        before.changes.iter().any(|known| (known.at, &known.change) == (change.at, &change.change))
    };
    now.changes.iter().filter(move |change| !is_known(change))
}

fn of_settings(before: &Inspection, now: &Inspection) -> Vec<WatchEvent> {
    let mut events = Vec::new();
    let was_changed = now.limit_version > before.limit_version && now.pinned == before.pinned;
    if now.limit != before.limit || was_changed {
        let (limit, limit_version) = (now.limit, now.limit_version);
        events.push(WatchEvent::Limit { limit, before: before.limit, limit_version });
    }
    let mut switch = |was: bool, is: bool, on: WatchEvent, off: WatchEvent| {
        if was != is {
            events.push(if is { on } else { off });
        }
    };
    switch(before.pinned, now.pinned, WatchEvent::Pinned, WatchEvent::Unpinned);
    let paused = WatchEvent::Paused {
        reason: now.pause_reason.clone().unwrap_or_default(),
        pause_remaining_ms: now.pause_remaining.map(milliseconds),
    };
    switch(before.paused, now.paused, paused, WatchEvent::Resumed);
    let recovering_ms = milliseconds(now.recovering);
    let recovering = WatchEvent::Recovering { recovering_ms };
    switch(is_recovering(before), is_recovering(now), recovering, WatchEvent::Recovered);
    if before.closed != now.closed {
        let closed = now.closed.clone().map(|reason| WatchEvent::Closed { reason });
        events.push(closed.unwrap_or(WatchEvent::Opened));
    }
    events
}

struct Difference<'a> {
    before: &'a Inspection,
    now: &'a Inspection,
    elapsed: Duration,
    /// The increases of the counters, from 0 if they began again.
    rise: Counts,
    /// The names that operators have revoked.
    revoked: HashSet<&'a str>,
    /// All holders of both inspections are listed.
    has_holders: bool,
    has_waiters: bool,
}

impl Difference<'_> {
    /// The holders that `before` does not have.
    fn new_holders(&self) -> Vec<&HolderInfo> {
        let known: HashSet<u64> = self.before.holders.iter().map(|holder| holder.token).collect();
        let holders = self.now.holders.iter().filter(|_| self.has_holders);
        by_grant(holders.filter(|holder| !known.contains(&holder.token)))
    }

    /// True if the permit was granted between the inspections. If not, it was put back.
    fn is_grant(&self, holder: &HolderInfo) -> bool {
        holder.age <= self.elapsed
    }

    /// The grants whose permit is in no inspection.
    fn unseen(&self) -> Option<u64> {
        let seen = self.new_holders().into_iter().filter(|holder| self.is_grant(holder)).count() as u64;
        self.has_holders.then(|| self.rise.grants.saturating_sub(seen))
    }

    /// The holders that have gone.
    fn gone_holders(&self) -> Vec<&HolderInfo> {
        let present: HashSet<u64> = self.now.holders.iter().map(|holder| holder.token).collect();
        let holders = self.before.holders.iter().filter(|_| self.has_holders);
        by_grant(holders.filter(|holder| !present.contains(&holder.token)))
    }

    /// The waiters that have gone and hold nothing. A younger one of the same name is another request.
    fn gone_waiters(&self) -> Vec<&WaiterInfo> {
        let granted: HashSet<&str> =
            self.new_holders().into_iter().map(|holder| holder.holder.as_str()).collect();
        let ages = ages(&self.now.waiters);
        let is_listed =
            |waiter: &WaiterInfo| ages.get(waiter.holder.as_str()).is_some_and(|age| *age >= waiter.age);
        let waiters = self.before.waiters.iter().filter(|_| self.has_waiters);
        waiters.filter(|waiter| !is_listed(waiter) && !granted.contains(waiter.holder.as_str())).collect()
    }

    /// The ends of permits and places in line.
    fn ends(&self) -> Vec<WatchEvent> {
        let (holders, waiters) = (self.gone_holders(), self.gone_waiters());
        let could_end = holders.iter().filter(|holder| self.could_expire(holder)).count();
        // A waiter's lease is not in an inspection.
        let expirable = (could_end + waiters.len()) as u64;
        let revocable = (holders.len() + waiters.len()) as u64;
        let Counts { expired, revoked, refused, .. } = self.rise;
        let by_store = |name: &str, could_expire: bool| {
            let is_named = self.revoked.contains(name);
            // The store remembers the last revocations only.
            let may_be_revoked = revoked > self.revoked.len() as u64;
            [
                (!is_named && could_expire && expired > 0, expirable <= expired, Cause::Expired),
                (is_named || may_be_revoked, is_named || revocable <= revoked, Cause::Revoked),
            ]
        };
        // A grant that is in no inspection may have been that of any waiter.
        let has_unseen = self.unseen() != Some(0);
        let mut events = self.cooled();
        events.extend(holders.iter().map(|holder| WatchEvent::Left {
            holder: holder.holder.clone(),
            weight: holder.weight,
            token: holder.token,
            cause: cause(&by_store(&holder.holder, self.could_expire(holder)), Cause::Released),
            label: holder.label.clone(),
            held_ms: milliseconds(holder.age + self.elapsed),
        }));
        events.extend(waiters.iter().map(|waiter| {
            let Inspection { closed, limit, .. } = self.now;
            let is_refused =
                refused > 0 && (closed.is_some() || limit.is_some_and(|limit| limit < waiter.weight));
            let [expired, revoked] = by_store(&waiter.holder, true);
            let was_granted =
                (has_unseen && !self.revoked.contains(waiter.holder.as_str()), false, Cause::Unknown);
            let refused = (is_refused, waiters.len() as u64 <= refused, Cause::Refused);
            let cause = cause(&[expired, revoked, refused, was_granted], Cause::Cancelled);
            WatchEvent::LeftQueue {
                holder: waiter.holder.clone(),
                weight: waiter.weight,
                cause,
                label: waiter.label.clone(),
                waited_ms: milliseconds(waiter.age + self.elapsed),
            }
        }));
        events
    }

    /// True if the lease may have ended since `before`. The end of a cooling is no end of a lease.
    fn could_expire(&self, holder: &HolderInfo) -> bool {
        !holder.cooling && holder.lease_remaining <= self.elapsed
    }

    /// The permits that have begun to cool.
    fn cooled(&self) -> Vec<WatchEvent> {
        let before = self.before.holders.iter().filter(|holder| holder.cooling);
        let was_cooling: HashSet<u64> = before.map(|holder| holder.token).collect();
        let cooling = self.now.holders.iter().filter(|holder| self.has_holders && holder.cooling);
        let begun = cooling.filter(|holder| !was_cooling.contains(&holder.token));
        let event = |holder: &HolderInfo| WatchEvent::Cooling {
            holder: holder.holder.clone(),
            weight: holder.weight,
            token: holder.token,
            lease_remaining_ms: milliseconds(holder.lease_remaining),
            label: holder.label.clone(),
        };
        by_grant(begun).into_iter().map(event).collect()
    }

    /// The new permits and places in line.
    fn begins(&self) -> Vec<WatchEvent> {
        let holders = self.new_holders().into_iter().map(|info| {
            let (holder, label) = (info.holder.clone(), info.label.clone());
            let HolderInfo { weight, slot, token, .. } = *info;
            match self.is_grant(info) {
                true => WatchEvent::Granted { holder, weight, slot, token, label },
                false => WatchEvent::Restored { holder, weight, slot, token, label },
            }
        });
        let ages = ages(&self.before.waiters);
        let is_new =
            |waiter: &&WaiterInfo| ages.get(waiter.holder.as_str()).is_none_or(|age| waiter.age < *age);
        let waiters = self.now.waiters.iter().filter(|_| self.has_waiters).filter(is_new);
        let waiters = waiters.map(|info| WatchEvent::Queued {
            holder: info.holder.clone(),
            weight: info.weight,
            position: info.position,
            label: info.label.clone(),
        });
        holders.chain(waiters).collect()
    }

    /// The increases of the counters. While a list is not whole, each change of the counts yields one.
    fn counts(&self) -> Option<WatchEvent> {
        let moved = |inspection: &Inspection| (inspection.held, inspection.waiting);
        let is_whole = self.has_holders && self.has_waiters;
        let has_moved = !is_whole && moved(self.before) != moved(self.now);
        let counts = WatchEvent::Counts { rise: self.rise, unseen: self.unseen() };
        (self.rise != Counts::default() || has_moved).then_some(counts)
    }
}

/// Holders in the order of their grants. An inspection has them by the end of their leases.
fn by_grant<'a>(holders: impl Iterator<Item = &'a HolderInfo>) -> Vec<&'a HolderInfo> {
    let mut holders: Vec<_> = holders.collect();
    holders.sort_unstable_by_key(|holder| holder.token);
    holders
}

/// The ages of waiters by name.
fn ages(waiters: &[WaiterInfo]) -> HashMap<&str, Duration> {
    waiters.iter().map(|waiter| (waiter.holder.as_str(), waiter.age)).collect()
}

/// The cause of an end, of those that are possible: true, and then true if its counter has risen often enough
/// for each end that it may explain.
fn cause(possible: &[(bool, bool, Cause)], by_itself: Cause) -> Cause {
    let mut possible = possible.iter().filter(|(is_possible, ..)| *is_possible);
    match (possible.next(), possible.next()) {
        (None, _) => by_itself,
        (Some((_, true, cause)), None) => *cause,
        _ => Cause::Unknown,
    }
}
