//! Checks of what operators change: the limit, lanes, a pause, the line, the alert, and the memory of that.

use std::collections::BTreeMap;

use permits_core::model::{CHANGES_MAX, Damage, LaneBounds, State};
use permits_core::protocol::{
    AcquireOutcome, Alert, Answers, CHANGE_RETRIED_MS, Declaration, EventKind, LaneName, LanePin, Operation,
    PermitTerms, RenewOutcome, Setting,
};

use super::step::Step;

/// The bounds of lanes that an operator has pinned.
fn pins(state: &State) -> BTreeMap<LaneName, LanePin> {
    let pinned = state.lanes.bounded().iter().filter(|(_, bounds)| bounds.pinned);
    let pin = |(lane, LaneBounds { limit, floor, .. }): (&LaneName, &LaneBounds)| {
        (lane.clone(), LanePin { limit: *limit, floor: *floor })
    };
    pinned.map(pin).collect()
}

fn calls_waiters(step: &Step) -> bool {
    step.events.iter().any(|event| matches!(event.kind, EventKind::Granted(_)))
}

/// Returns true if the lane of a request on these terms has a floor, or gets one from the request.
fn has_floor(before: &State, terms: &PermitTerms) -> bool {
    terms.lane_floor > 0 || before.lanes.bounded().get(&terms.lane).is_some_and(|bounds| bounds.floor > 0)
}

/// P11: a declaration never changes a limit that an operator pinned, nor the bounds of a lane. A refused
/// request does not change the limit. One exception: its lane is below its floor, and the waiters that the
/// command calls take the units. The version counts every change. A waiter that a lowered limit shuts out for
/// good learns so from its renewal, also behind others.
pub(super) fn pinned_limit(step: &Step) -> Result<(), String> {
    let (Some(before), Some(after)) = (&step.before, &step.after) else { return Ok(()) };
    let is_same = (before.limit, before.pinned) == (after.limit, after.pinned);
    let setting = step.setting();
    let operator = matches!(setting, Some(Setting::Limit { .. }));
    if before.pinned && !operator && !is_same {
        return Err(format!("a pinned limit of {} became {}", before.limit, after.limit));
    }
    let is_there = before.damage != Some(Damage::StateLost);
    let sets_lanes = matches!(setting, Some(Setting::Lane { .. }));
    if is_there && !sets_lanes && pins(before) != pins(after) {
        return Err(format!("the pinned lanes {:?} became {:?}", pins(before), pins(after)));
    }
    // A change at a version makes a new version, for any limit.
    let at_version = matches!(setting, Some(Setting::Limit { expected_version: Some(_), .. }));
    let is_same_version = before.limit_version == after.limit_version;
    if is_same != is_same_version && !(is_same && at_version) {
        return Err(format!("version {} became {}", before.limit_version, after.limit_version));
    }
    let declared = match step.command.declaration {
        Declaration::Stored => None,
        Declaration::Declare(limit) | Declaration::Fallback(limit) | Declaration::Require(limit) => {
            Some(limit)
        }
    };
    if !operator && before.limit != after.limit && Some(after.limit) != declared {
        return Err(format!("no command set the limit to {}", after.limit));
    }
    if let (Operation::Acquire { requests, .. }, Answers::Acquire(answers)) =
        (&step.command.operation, &step.reply.answers)
        && answers.iter().all(|answer| matches!(answer, AcquireOutcome::Refused(_)))
        && !is_same
        && !(calls_waiters(step) && requests.iter().any(|asked| has_floor(before, &asked.terms)))
    {
        return Err(format!("all were refused, and the limit became {}", after.limit));
    }
    if let (Operation::Renew(renewals), Answers::Renew(answers)) =
        (&step.command.operation, &step.reply.answers)
    {
        let waits = renewals.iter().zip(answers);
        let waits = waits.filter(|(_, answer)| matches!(answer, RenewOutcome::Waiting { .. }));
        let weights = waits.filter_map(|(renew, _)| Some(step.entry_after(&renew.holder)?.terms.weight));
        if let Some(weight) = weights.max().filter(|weight| *weight > after.limit) {
            return Err(format!(
                "a waiter of {weight} units goes on waiting, and the limit is {}",
                after.limit
            ));
        }
    }
    Ok(())
}

/// P20: while the line is closed no request waits, each waiter that was there receives the reason, and no
/// request is queued. Only an operator closes the line, opens it or changes the reason.
pub(super) fn a_closed_line_is_empty(step: &Step) -> Result<(), String> {
    let closed = |state: &Option<State>| state.as_ref().and_then(|state| state.closed.clone());
    let (before, after) = (closed(&step.before), closed(&step.after));
    let wanted = match &step.command.operation {
        Operation::Set { origin, setting: Setting::Line(reason) } if !step.was_made(&origin.request) => {
            reason.clone()
        }
        Operation::Delete { .. } if step.after.is_none() => None,
        _ => before,
    };
    if after != wanted {
        return Err(format!("the line should be closed for {wanted:?}, and is for {after:?}"));
    }
    for event in &step.events {
        if let EventKind::LineClosed(reason) = &event.kind
            && after.as_ref() != Some(reason)
        {
            return Err(format!("{} received the reason {reason:?} of {after:?}", event.holder));
        }
    }
    let waiting = step.after.as_ref().map_or(0, |state| state.queue.len());
    if after.is_some() && waiting > 0 && !step.is_cut() {
        return Err(format!("{waiting} wait in a closed line"));
    }
    Ok(())
}

/// P21: a pause, a pin, also of a lane, a closed line and an alert have the command that made them as the
/// last change, and of each part of the state the last change stays.
pub(super) fn changes_are_remembered(step: &Step) -> Result<(), String> {
    let found = |state: &&State| state.damage != Some(Damage::StateLost) && !state.is_expired(step.now_ms());
    let (Some(after), before) = (&step.after, step.before.as_ref().filter(found)) else { return Ok(()) };
    // The end of a pause is not an operator's change.
    let paused = |state: &State| Some(state.paused_until_ms).filter(|until| *until > step.now_ms());
    let stops = |state: &State| (paused(state), state.pinned, state.closed.clone(), state.alert, pins(state));
    let origin = step.command.operation.origin();
    let last = after.changes.last();
    if before.map_or((None, false, None, Alert::default(), BTreeMap::new()), stops) != stops(after)
        && last.map(|change| (&change.origin, change.at_us)) != origin.map(|origin| (origin, step.now_us))
    {
        return Err(format!(
            "{:?} is now {:?}, and the last change is {last:?}",
            before.map(stops),
            stops(after)
        ));
    }
    let changes = before.map_or(&[][..], |before| &before.changes);
    for change in changes {
        let is_recent = step.now_us < change.at_us + 1000 * CHANGE_RETRIED_MS;
        if is_recent && changes.len() < CHANGES_MAX && !after.changes.contains(change) {
            return Err(format!("{change:?} is forgotten, and its session may send it again"));
        }
        if !after.changes.iter().any(|later| later.effect.is_on_same_part(&change.effect)) {
            return Err(format!("{change:?} is forgotten, and no change of its part has followed"));
        }
    }
    Ok(())
}
