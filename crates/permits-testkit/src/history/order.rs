//! Checks of the line: its order, its head, places that pass on, and waits.

use std::collections::BTreeMap;
use std::time::Duration;

use permits_core::model::{Damage, Entry, EntryState, LaneBounds, Side, State};
use permits_core::protocol::{
    AcquireOutcome, AcquireRequest, Answers, Event, EventKind, Grant, Holder, LaneName, Operation,
    PermitTerms, Setting, WAIT_BOUNDS, Waits,
};

use super::rates::counted_up;
use super::step::Step;

/// P6: the waiters of a lane are granted in the order of their tickets, each only when all before it have
/// gone, and a newcomer only when no waiter is in line: all wait in other lanes, which are full; or which are
/// not short, if the lane of the newcomer is. Without lanes, all waiters are of one.
pub(super) fn first_come_first_served(step: &Step) -> Result<(), String> {
    let mut tickets: BTreeMap<&LaneName, Vec<u64>> = BTreeMap::new();
    for event in step.events.iter().filter(|event| matches!(event.kind, EventKind::Granted(_))) {
        match place_before(step, event) {
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
    // For each lane, the token of the last grant to one of its waiters, or the highest number if one of them
    // still waits. Any newcomer with a lower token was granted while the lane waited.
    let mut waiting: BTreeMap<&LaneName, u64> =
        step.waiters_left().map(|(lane, ..)| (lane, u64::MAX)).collect();
    if let Operation::Acquire { requests, .. } = &step.command.operation
        && let Answers::Acquire(answers) = &step.reply.answers
    {
        // A request that stands in the batch twice counts once.
        let newcomers = step.fresh().into_iter().map(|fresh| fresh.grant);
        let mut newcomers = newcomers.filter(|grant| !is_called(step, grant)).peekable();
        for (at, (asked, answer)) in requests.iter().zip(answers).enumerate() {
            match answer {
                AcquireOutcome::Granted(grant) if newcomers.next_if_eq(grant).is_some() => {
                    let is_short = may_be_short(step, &requests[at..]);
                    let is_passed =
                        |lane: &LaneName| may_be_full(step, lane, requests) || is_short && passes(step, lane);
                    let is_in_line = |lane: &LaneName| *lane == asked.terms.lane || !is_passed(lane);
                    if waiting.iter().any(|(lane, until)| grant.token < *until && is_in_line(lane)) {
                        return Err(format!("{} came last and was granted while others wait", asked.holder));
                    }
                }
                AcquireOutcome::Waiting { .. } => {
                    // A later request of the batch may have raised the limit of the lane, so that this one
                    // was granted after all.
                    let entry =
                        step.entry_after(&asked.holder).filter(|entry| entry.request == asked.request);
                    let called = entry.and_then(|entry| entry.place.taken());
                    let until = waiting.entry(&asked.terms.lane).or_default();
                    *until = called.map_or(u64::MAX, |grant| grant.token).max(*until);
                }
                AcquireOutcome::Granted(_) | AcquireOutcome::Refused(_) => {}
            }
        }
    }
    Ok(())
}

/// The limit and the floor of a lane, and the units of its permits that count towards them. `None` if it has
/// neither.
fn bounds(state: &State, lane: &LaneName) -> Option<LaneBounds> {
    let counts = |entry: &&Entry| entry.terms.lane == *lane && entry.terms.names_bounds();
    let held = state.entries.values().filter(counts).filter(|entry| entry.place.taken().is_some());
    let held = held.map(|entry| u64::from(entry.terms.weight)).sum();
    Some(LaneBounds { held, ..*state.lanes.bounded().get(lane)? })
}

/// The side on which a lane with these bounds stands if its first waiter has this weight.
fn side_of(LaneBounds { limit, floor, held, pinned: _ }: LaneBounds, weight: u32) -> Side {
    if weight <= limit && held + u64::from(weight) > limit.into() {
        Side::Full
    } else if held < floor.into() {
        Side::Short
    } else {
        Side::Fair
    }
}

/// The side on which a lane stands, by its bounds and its first waiter.
pub fn side(state: &State, lane: &LaneName) -> Side {
    let in_lane = state.queue.values().map(|holder| &state.entries[holder].terms);
    // The tickets of a lane are in the order in which they were given.
    let first = in_lane.into_iter().find(|terms| terms.lane == *lane);
    let (Some(bounds), Some(first)) = (bounds(state, lane), first) else { return Side::Fair };
    side_of(bounds, first.weight)
}

/// Returns true if the lane stands on this side before the command or after it.
fn was(step: &Step, lane: &LaneName, there: Side) -> bool {
    [&step.before, &step.after].into_iter().flatten().any(|state| side(state, lane) == there)
}

/// Returns true if the lane is full before or after the command, or may have been full in between, under a
/// limit that one of these requests names.
fn may_be_full(step: &Step, lane: &LaneName, requests: &[AcquireRequest]) -> bool {
    let bounds = step.after.as_ref().and_then(|after| bounds(after, lane));
    let mut of_lane = requests.iter().map(|asked| &asked.terms).filter(|terms| terms.lane == *lane);
    let weight = of_lane.clone().map(|terms| terms.weight).max().unwrap_or(1);
    let is_full = |now, limit| side_of(LaneBounds { limit, ..now }, weight) == Side::Full;
    was(step, lane, Side::Full)
        || bounds.is_some_and(|now| of_lane.any(|terms| is_full(now, terms.lane_limit)))
}

/// Returns true if a lane is not short before the command, or not after it: one that is may pass it.
fn passes(step: &Step, lane: &LaneName) -> bool {
    was(step, lane, Side::Fair) || was(step, lane, Side::Full)
}

/// Returns true if the lane of the first of these requests, which is granted, may have held less than its
/// floor when it came. The others come behind it in the same batch.
fn may_be_short(step: &Step, requests: &[AcquireRequest]) -> bool {
    let lane = &requests[0].terms.lane;
    let Some(after) = step.after.as_ref().and_then(|after| bounds(after, lane)) else { return false };
    let before = step.before.as_ref().and_then(|before| bounds(before, lane));
    let mut of_lane = requests.iter().filter(|asked| asked.terms.lane == *lane);
    let floors = of_lane.clone().map(|asked| asked.terms.lane_floor).chain(before.map(|before| before.floor));
    let is_held = |asked: &&AcquireRequest| {
        let entry = step.entry_after(&asked.holder).filter(|entry| entry.request == asked.request);
        // The lease of an earlier permit of the holder may have ended with this command.
        let is_new = step
            .entry_before(&asked.holder)
            .is_none_or(|before| before.deadline.unsigned_abs() <= step.now_ms());
        entry.is_some_and(|entry| entry.place.taken().is_some()) && is_new
    };
    let granted: u64 = of_lane.by_ref().filter(is_held).map(|asked| u64::from(asked.terms.weight)).sum();
    after.held.saturating_sub(granted) < floors.fold(after.floor, u32::max).into()
}

/// P25: no grant makes a lane hold more than its limit. The limit is the highest that was in force while the
/// command was executed, or the pinned limit. Units that the lane held before its pin count, too.
pub(super) fn a_lane_keeps_its_limit(step: &Step) -> Result<(), String> {
    let Some(after) = &step.after else { return Ok(()) };
    for lane in after.lanes.bounded().keys() {
        let LaneBounds { limit, held, pinned, .. } = bounds(after, lane).unwrap_or_default();
        let mut before = step.before.as_ref().and_then(|before| bounds(before, lane));
        if let Some(Setting::Lane { lane: set, pin: Some(_) }) = step.setting()
            && set == lane
        {
            let of_lane = |(_, entry): &(&Holder, &Entry)| entry.terms.lane == *lane;
            let taken =
                step.entries_before().filter(of_lane).filter(|(_, entry)| entry.place.taken().is_some());
            let held = taken.map(|(_, entry)| u64::from(entry.terms.weight)).sum();
            before = Some(LaneBounds { limit, held, ..before.unwrap_or_default() });
        }
        // Skip a lane without a limit, and a lane that had a floor alone: a batch may have granted it more
        // before the first request with a limit.
        if limit == 0 || before.is_some_and(|before| before.limit == 0) {
            continue;
        }
        let asked = match &step.command.operation {
            Operation::Acquire { requests, .. } if !pinned => &requests[..],
            _ => &[],
        };
        let asked = asked.iter().filter(|asked| asked.terms.lane == *lane);
        let limits = asked.map(|asked| asked.terms.lane_limit);
        let most = limits.chain(before.map(|before| before.limit)).fold(limit, u32::max);
        let grows = before.is_none_or(|before| held > before.held + counted_up(step));
        if held > most.into() && grows {
            return Err(format!("lane {lane:?} holds {held} of {most}, and held {before:?} before"));
        }
    }
    Ok(())
}

/// P7, P11: after every command the head of the queue does not fit; so freed units, and those that a raised
/// limit adds, are handed over at once. The head is the first waiter of a lane that is not full: units idle
/// only where all lanes that wait are. Not while paused, in a recovery window, or when the reply says that
/// work is left.
pub(super) fn what_fits_is_granted(step: &Step) -> Result<(), String> {
    let Some(after) = &step.after else { return Ok(()) };
    let Some(&(_, head)) = after.waiters(1).first() else { return Ok(()) };
    if after.is_paused() || step.is_recovering() || step.is_cut() {
        return Ok(());
    }
    let terms = &after.entries[head].terms;
    if side(after, &terms.lane) == Side::Full {
        let lanes = after.queue.values().map(|holder| &after.entries[holder].terms.lane);
        let in_line = lanes.into_iter().find(|lane| side(after, lane) != Side::Full);
        return in_line.map_or(Ok(()), |lane| Err(format!("{lane:?} is in line, and behind {head}")));
    }
    let (weight, limit) = (u64::from(terms.weight), u64::from(after.limit));
    let of_lane = bounds(after, &terms.lane).filter(|bounds| bounds.limit > 0);
    let most = of_lane.map_or(limit, |bounds| limit.min(bounds.limit.into()));
    // A head that is heavier than a limit is refused when anything is free.
    let fits = if weight > most { after.held < limit } else { after.held + weight <= limit };
    if fits {
        Err(format!("{head} of {weight} waits, and {} of {limit} are held", after.held))
    } else {
        Ok(())
    }
}

/// P23: the head of the queue stays the head, also when other lanes come, until it is granted or has left.
/// While it waits no other is granted, and a command that grants it grants it first. A waiter of a lane that
/// is full is not the head, and lanes that are short come before others.
pub(super) fn the_head_stays(step: &Step) -> Result<(), String> {
    let (Some(before), Some(after)) = (&step.before, &step.after) else { return Ok(()) };
    let Some(&(_, head)) = before.waiters(1).first() else { return Ok(()) };
    let Entry { terms: PermitTerms { lane, .. }, request, .. } = &before.entries[head];
    let has_floor = |state: &State| state.lanes.bounded().values().any(|bounds| bounds.floor > 0);
    let may_change = has_floor(before) || has_floor(after);
    let is_short = [before, after].map(|state| side(state, lane) == Side::Short) == [true; 2];
    if was(step, lane, Side::Full) || may_change && !is_short {
        return Ok(());
    }
    let granted = |event: &&Event| matches!(event.kind, EventKind::Granted(_));
    let mut granted = step.events.iter().filter(granted);
    if step.waiters_left().any(|(_, _, holder)| holder == head) {
        let now = after.waiters(1).first().map(|(_, holder)| *holder);
        if now != Some(head) || granted.next().is_some() {
            return Err(format!("{head} was the head, and waits behind {now:?}: {:?}", after.lanes));
        }
    } else if granted.position(|event| &event.request == request).is_some_and(|at| at > 0) {
        return Err(format!("{head} was the head, and was not granted first"));
    }
    Ok(())
}

/// P26: lanes that hold less than their floor are granted to before others. After each command the first lane
/// in line is one of them, if one waits; and what a command that is no request grants goes to them as long as
/// one waits.
pub(super) fn floors_come_first(step: &Step) -> Result<(), String> {
    let Some(after) = &step.after else { return Ok(()) };
    let mut left: BTreeMap<&LaneName, u32> = BTreeMap::new();
    for (_, holder) in after.waiters(usize::MAX) {
        let terms = &after.entries[holder].terms;
        left.entry(&terms.lane).or_insert(terms.weight);
    }
    if let Some((_, head)) = after.waiters(1).first() {
        let first = side(after, &after.entries[*head].terms.lane);
        if let Some((lane, _)) = left.iter().find(|(lane, _)| side(after, lane) < first) {
            return Err(format!("{lane:?} is behind {head}: {:?}", after.lanes));
        }
    }
    if matches!(step.command.operation, Operation::Acquire { .. }) || step.is_cut() {
        return Ok(());
    }
    // Walk back from the last grant to the first: `now` has what each lane held, and `left` its first waiter.
    let held = |lane: &LaneName| bounds(after, lane);
    let mut now: BTreeMap<&LaneName, LaneBounds> =
        after.lanes.bounded().keys().filter_map(|lane| Some((lane, held(lane)?))).collect();
    for event in step.events.iter().rev().filter(|event| matches!(event.kind, EventKind::Granted(_))) {
        let Some(entry) = step.entry_before(&event.holder) else { continue };
        let (lane, weight) = (&entry.terms.lane, entry.terms.weight);
        if let Some(bounds) = now.get_mut(lane) {
            bounds.held = bounds.held.saturating_sub(weight.into());
        }
        left.insert(lane, weight);
        let is_short = |lane: &LaneName, weight| {
            now.get(lane).is_some_and(|bounds| side_of(*bounds, weight) == Side::Short)
        };
        if !is_short(lane, weight)
            && let Some((other, _)) = left.iter().find(|(lane, weight)| is_short(lane, **weight))
        {
            return Err(format!(
                "{} of {lane:?} was granted while {other:?} is short: {now:?}",
                event.holder
            ));
        }
    }
    Ok(())
}

/// The request of this holder that supersedes a waiter in this command, with the holder and the entry of the
/// waiter.
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

/// Returns true if an event tells of the grant, so its request has waited, if only for a moment.
fn is_called(step: &Step, grant: &Grant) -> bool {
    step.events.iter().any(|event| event.kind == EventKind::Granted(*grant))
}

/// The request of this holder that this command has queued. It may be let in by its own bounds of its lane,
/// or by those of a later request of the command, for example.
pub(super) fn queued<'a>(step: &'a Step, holder: &Holder) -> Option<&'a AcquireRequest> {
    let Operation::Acquire { requests, .. } = &step.command.operation else { return None };
    let Answers::Acquire(answers) = &step.reply.answers else { return None };
    let mut answered = requests.iter().zip(answers);
    let is_queued = |(asked, answer): &(&AcquireRequest, &AcquireOutcome)| {
        let has_waited = match answer {
            AcquireOutcome::Waiting { .. } => true,
            AcquireOutcome::Granted(grant) => is_called(step, grant),
            AcquireOutcome::Refused(_) => false,
        };
        asked.holder == *holder && has_waited
    };
    answered.find(is_queued).map(|(asked, _)| asked)
}

/// The lane of a request that is called, and its ticket. A request that supersedes a waiter of its lane takes
/// the ticket of the waiter; if the waiter is in another lane, the request is the last of its own lane. A
/// request that the command itself has queued is also the last of its lane.
fn place_before<'a>(step: &'a Step, Event { holder, request, .. }: &Event) -> Option<(&'a LaneName, u64)> {
    // An earlier permit or waiter whose lease has ended may have had the holder's name.
    let waited = step.entry_before(holder).filter(|entry| matches!(entry.place, EntryState::Waiting(_)));
    let waited = waited.filter(|entry| entry.request == *request);
    let (lane, entry) = match (waited, superseding(step, holder)) {
        (Some(entry), _) => (&entry.terms.lane, entry),
        (None, Some((asked, _, entry))) => (&asked.terms.lane, entry),
        (None, None) => return queued(step, holder).map(|asked| (&asked.terms.lane, u64::MAX)),
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
            // The waiter came and went with this command.
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
        // A request that supersedes a waiter has waited as long as that waiter, if it has its place.
        return Ok(());
    }
    let mut waits = step
        .before
        .as_ref()
        .filter(|before| before.damage != Some(Damage::StateLost))
        .map_or_else(Waits::default, |before| before.waits);
    for event in step.events.iter().filter(|event| matches!(event.kind, EventKind::Granted(_))) {
        let waited = step.entry_before(&event.holder).filter(|entry| entry.request == event.request);
        let queued_us = match waited.map(|entry| (entry.place, entry)) {
            Some((EntryState::Waiting(_), entry)) if entry.terms.is_laned() => entry.queued_us,
            Some((EntryState::Waiting(ticket), _)) => ticket,
            _ if queued(step, &event.holder).is_some() => step.now_us,
            _ => continue,
        };
        let wait = Duration::from_micros(step.now_us.saturating_sub(queued_us));
        waits.total_us += step.now_us.saturating_sub(queued_us);
        waits.numbers[WAIT_BOUNDS.iter().filter(|bound| wait > **bound).count()] += 1;
    }
    if after.waits == waits { Ok(()) } else { Err(format!("{:?} are counted, not {waits:?}", after.waits)) }
}
