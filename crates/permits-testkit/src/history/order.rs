//! Checks of the line: its order, its head, places that pass on, and waits.

use std::collections::BTreeMap;
use std::time::Duration;

use permits_core::model::{Damage, Entry, EntryState};
use permits_core::protocol::{
    AcquireOutcome, AcquireRequest, Answers, Event, EventKind, Holder, LaneName, Operation, WAIT_BOUNDS,
    Waits,
};

use super::step::Step;

/// P6: the waiters of a lane are granted in the order of their tickets, each only when all before it have
/// gone, and a newcomer only when the queue is empty. Without lanes, all waiters are of one.
pub(super) fn first_come_first_served(step: &Step) -> Result<(), String> {
    let mut tickets: BTreeMap<&LaneName, Vec<u64>> = BTreeMap::new();
    for event in step.events.iter().filter(|event| matches!(event.kind, EventKind::Granted(_))) {
        match place_before(step, &event.holder) {
            Some((lane, ticket)) => tickets.entry(lane).or_default().push(ticket),
            None => return Err(format!("{} did not wait and was called", event.holder)),
        }
    }
    if let Some((lane, unsorted)) = tickets.iter().find(|(_, tickets)| !tickets.is_sorted()) {
        return Err(format!("granted in the order {unsorted:?} in lane {lane:?}"));
    }
    for (lane, ticket, holder) in step.waiters_left() {
        if let Some(last) = tickets.get(lane).and_then(|tickets| tickets.last())
            && ticket < *last
        {
            return Err(format!("{holder} with ticket {ticket} was overtaken by {last} in lane {lane:?}"));
        }
    }
    let promoted = tickets.values().map(Vec::len).sum();
    let mut waiting = step.waiters_left().next().is_some();
    if let Operation::Acquire { requests, .. } = &step.command.operation
        && let Answers::Acquire(answers) = &step.reply.answers
    {
        // Newcomers are behind the waiters that were granted. A request that stands in the batch twice counts
        // once.
        let mut newcomers = step.fresh().into_iter().skip(promoted).map(|fresh| fresh.grant).peekable();
        for (asked, answer) in requests.iter().zip(answers) {
            match answer {
                AcquireOutcome::Granted(grant) if newcomers.next_if_eq(grant).is_some() && waiting => {
                    return Err(format!("{} came last and was granted while others wait", asked.holder));
                }
                AcquireOutcome::Waiting { .. } => waiting = true,
                AcquireOutcome::Granted(_) | AcquireOutcome::Refused(_) => {}
            }
        }
    }
    Ok(())
}

/// P7, P11: after every command the head of the queue does not fit; so freed units, and those that a raised
/// limit adds, are handed over at once. Not while paused, in a recovery window, or when the reply says that
/// work is left.
pub(super) fn what_fits_is_granted(step: &Step) -> Result<(), String> {
    let Some(after) = &step.after else { return Ok(()) };
    let Some(&(_, head)) = after.waiters(1).first() else { return Ok(()) };
    if after.is_paused() || step.is_recovering() || step.is_cut() {
        return Ok(());
    }
    let (weight, limit) = (u64::from(after.entries[head].terms.weight), u64::from(after.limit));
    // A head that is heavier than the limit is refused when anything is free.
    let fits = if weight > limit { after.held < limit } else { after.held + weight <= limit };
    if fits {
        Err(format!("{head} of {weight} waits, and {} of {limit} are held", after.held))
    } else {
        Ok(())
    }
}

/// P23: the head of the queue stays the head, also when other lanes come, until it is granted or has left.
/// While it waits no other is granted, and a command that grants it grants it first.
pub(super) fn the_head_stays(step: &Step) -> Result<(), String> {
    let (Some(before), Some(after)) = (&step.before, &step.after) else { return Ok(()) };
    let Some(&(_, head)) = before.waiters(1).first() else { return Ok(()) };
    let granted = |event: &&Event| matches!(event.kind, EventKind::Granted(_));
    let mut granted = step.events.iter().filter(granted).map(|event| &event.holder);
    if step.waiters_left().any(|(_, _, holder)| holder == head) {
        let now = after.waiters(1).first().map(|(_, holder)| *holder);
        if now != Some(head) || granted.next().is_some() {
            return Err(format!("{head} was the head, and waits behind {now:?}: {:?}", after.lanes));
        }
    } else if granted.position(|holder| holder == head).is_some_and(|at| at > 0) {
        return Err(format!("{head} was the head, and was not granted first"));
    }
    Ok(())
}

/// The request of this holder that supersedes a waiter in this command, with the holder and entry of that.
pub(super) fn superseding<'a>(
    step: &'a Step,
    holder: &Holder,
) -> Option<(&'a AcquireRequest, &'a Holder, &'a Entry)> {
    let Operation::Acquire { requests, .. } = &step.command.operation else { return None };
    let asked = requests.iter().find(|asked| asked.supersedes && asked.holder == *holder)?;
    let is_superseded = |(holder, entry): &(&Holder, &Entry)| {
        let left = |event: &Event| (&event.holder, &event.request) == (*holder, &entry.request);
        entry.terms.supersede == asked.terms.supersede
            && step.events.iter().any(|event| event.kind == EventKind::Superseded && left(event))
    };
    step.entries_before().find(is_superseded).map(|(holder, entry)| (asked, holder, entry))
}

/// The lane of a request that is called, and its ticket: that of the waiter which it supersedes in its lane,
/// or the last one of another lane.
fn place_before<'a>(step: &'a Step, holder: &Holder) -> Option<(&'a LaneName, u64)> {
    // The name may have been that of a holder whose lease has ended.
    let waited = step.entry_before(holder).filter(|entry| matches!(entry.place, EntryState::Waiting(_)));
    let (lane, entry) = match (waited, superseding(step, holder)) {
        (Some(entry), _) => (&entry.terms.lane, entry),
        (None, Some((asked, _, entry))) => (&asked.terms.lane, entry),
        (None, None) => return None,
    };
    match entry.place {
        EntryState::Waiting(ticket) => {
            Some((lane, if *lane == entry.terms.lane { ticket } else { u64::MAX }))
        }
        EntryState::Holding(_) | EntryState::Cooling(_) => None,
    }
}

/// P6: a waiter is superseded only by a request with its key that asks for that, and its place in its lane
/// passes to that request, if it is in the same lane: its ticket, or a grant in its turn; and the time at
/// which it was queued.
pub(super) fn a_place_passes_on(step: &Step) -> Result<(), String> {
    let Operation::Acquire { requests, .. } = &step.command.operation else { return Ok(()) };
    for event in step.events.iter().filter(|event| event.kind == EventKind::Superseded) {
        let Some(before) = step.entry_before(&event.holder).filter(|entry| entry.request == event.request)
        else {
            // It came and went with this command.
            continue;
        };
        let newest = requests.iter().rev().find(|asked| {
            asked.supersedes && asked.terms.supersede == before.terms.supersede && before.terms.is_keyed()
        });
        let after = newest.and_then(|asked| step.entry_after(&asked.holder));
        let passed = match (before.place, after) {
            (EntryState::Waiting(ticket), Some(after)) if after.terms.lane == before.terms.lane => {
                let since = |entry: &Entry| if entry.terms.is_laned() { entry.queued_us } else { ticket };
                matches!(after.place, EntryState::Holding(_))
                    || after.place == EntryState::Waiting(ticket) && since(before) == since(after)
            }
            (EntryState::Waiting(_), Some(_)) => true,
            _ => false,
        };
        if !passed {
            return Err(format!("the place of {}, {before:?}, passed to {after:?}", event.holder));
        }
    }
    Ok(())
}

/// P24: the wait of each request that is granted out of the queue is counted, and nothing else.
pub(super) fn waits_are_counted(step: &Step) -> Result<(), String> {
    let Some(after) = &step.after else { return Ok(()) };
    if step.events.iter().any(|event| event.kind == EventKind::Superseded) {
        // Requests that the command itself has queued may be granted with it.
        return Ok(());
    }
    let mut waits = step
        .before
        .as_ref()
        .filter(|before| before.damage != Some(Damage::StateLost))
        .map_or_else(Waits::default, |before| before.waits);
    for event in step.events.iter().filter(|event| matches!(event.kind, EventKind::Granted(_))) {
        let Some(entry) = step.entry_before(&event.holder) else { continue };
        let EntryState::Waiting(ticket) = entry.place else { continue };
        let queued_us = if entry.terms.is_laned() { entry.queued_us } else { ticket };
        let wait = Duration::from_micros(step.now_us.saturating_sub(queued_us));
        waits.total_us += step.now_us.saturating_sub(queued_us);
        waits.numbers[WAIT_BOUNDS.iter().filter(|bound| wait > **bound).count()] += 1;
    }
    if after.waits == waits { Ok(()) } else { Err(format!("{:?} are counted, not {waits:?}", after.waits)) }
}
