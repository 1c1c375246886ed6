//! The properties of one command, checked from outside: the state before, the request, the reply, and the
//! state after. Each check is named by its property, and says it in its message.
//!
//! The checks do not depend on how the model decides. Each exception to a bound is stated here.

use std::collections::BTreeSet;

use permits_core::model::{Entry, EntryState, KEPT_TOKENS, PAUSED, State};
use permits_core::protocol::{
    AcquireOutcome, AcquireRequest, Answers, Event, EventKind, Grant, Holder, MAX_BATCH, Operation,
    PermitTerms, Refusal, ReleaseOutcome, RenewOutcome, RenewRequest, RequestId, Setting,
};

use super::Violation;
use super::operators::{a_closed_line_is_empty, changes_are_remembered, pinned_limit};
use super::order::{
    a_lane_keeps_its_limit, a_place_passes_on, first_come_first_served, floors_come_first, queued,
    superseding, the_head_stays, waits_are_counted, what_fits_is_granted,
};
use super::rates::{an_end_is_told_and_true, counted_up, grants_count_as_long_as_asked};
use super::step::{Fresh, Step};

/// A check, and the property that it is for.
pub type Check = fn(&Step) -> Result<(), String>;

/// All checks of one command.
pub const CHECKS: [(&str, Check); 21] = [
    ("P1", bound),
    ("P4, kept", tokens_that_may_be_used_are_passed),
    ("P5", nothing_appears_unasked),
    ("P6", first_come_first_served),
    ("P6, superseded", a_place_passes_on),
    ("P7", what_fits_is_granted),
    ("P7, asked for", what_is_left_is_asked_for),
    ("P9", what_left_is_gone),
    ("P10", conservation),
    ("P11", pinned_limit),
    ("P13", others_are_untouched),
    ("P15", no_herd),
    ("P17", grants_count_as_long_as_asked),
    ("P17, until", an_end_is_told_and_true),
    ("P20", a_closed_line_is_empty),
    ("P21", changes_are_remembered),
    ("P22", what_may_be_kept_is_known),
    ("P23", the_head_stays),
    ("P24", waits_are_counted),
    ("P25", a_lane_keeps_its_limit),
    ("P26", floors_come_first),
];

/// Runs all checks.
///
/// # Errors
/// The property that the command violates.
pub fn check(step: &Step) -> Result<(), Violation> {
    if step.command.only_looks() {
        return looking_changes_nothing(step).map_err(|reason| Violation::new("P12", reason));
    }
    CHECKS.iter().try_for_each(|(property, check)| {
        let whole = |reason| format!("{reason}\n{:?}\n{:?}", step.command, step.reply);
        check(step).map_err(|reason| Violation::new(property, whole(reason)))
    })
}

/// P12: an inspection changes nothing, and causes no event.
fn looking_changes_nothing(step: &Step) -> Result<(), String> {
    let Step { before, after, events, .. } = step;
    let is_same = before == after && events.is_empty();
    is_same.then_some(()).ok_or_else(|| format!("{before:?}, then {after:?}, {events:?}"))
}

/// P1: after every command the units held are within the limit. They may be above it only when they were
/// before it was lowered, and then they only become fewer: nothing is granted or put back above the limit. A
/// command that lowers it by its declaration may have granted to waiters before, under the limit that it then
/// replaced. While the server recovers, nothing is granted out of capacity that was free when the command
/// came, neither units nor slots.
///
/// A limit that the server forgot keeps no holder out that it forgot, too.
///
/// A release may correct the units that its grant counts for: up to the limit.
///
/// Units of holders past their deadline that are not reaped yet count as held, which is the safe side.
fn bound(step: &Step) -> Result<(), String> {
    let Some(after) = &step.after else { return Ok(()) };
    let fresh = step.fresh();
    let promoted = step.events.iter().filter(|event| matches!(event.kind, EventKind::Granted(_))).count();
    let only_waiters = fresh.len() == promoted;
    let limit = if only_waiters { step.limit_of_waiters() } else { after.limit.into() };
    let held = after.held;
    if held > limit && limit > 0 && held > step.held_before() + counted_up(step) {
        return Err(format!("{} held before, {held} now, of {limit}", step.held_before()));
    }
    if !fresh.is_empty() {
        if held > limit {
            return Err(format!("granted while {held} of {limit} are held"));
        }
        if after.is_paused() {
            return Err("granted while paused".into());
        }
        if after.closed.is_some() {
            return Err("granted while the line is closed".into());
        }
        if step.is_recovering() && held > step.held_before() {
            return Err(format!("granted out of free capacity in a recovery window: {held} held"));
        }
    }
    for Fresh { holder, grant, .. } in &fresh {
        if u64::from(grant.slot) >= limit {
            return Err(format!("{holder} got slot {} of {limit}", grant.slot));
        }
        if step.is_recovering() {
            // The slot was a known holder's, also of one that this command put back and then ended. So no
            // forgotten holder can reclaim it.
            let place = |entry: &Entry| entry.place.taken().is_some_and(|before| before.slot == grant.slot);
            let put_back = match &step.command.operation {
                Operation::Renew(renewals) => &renewals[..],
                _ => &[],
            };
            let named = |renew: &RenewRequest| renew.grant.is_some_and(|named| named.slot == grant.slot);
            if !step.entries_before().any(|(_, entry)| place(entry)) && !put_back.iter().any(named) {
                return Err(format!("{holder} got slot {}, which may be a forgotten holder's", grant.slot));
            }
        } else if let Some((lower, _)) = after.free.range(..u64::from(grant.slot)).next() {
            // A command frees slots before it takes one.
            return Err(format!("{holder} got slot {}, and {lower} is free", grant.slot));
        }
    }
    Ok(())
}

/// P4: when a grant that its session may keep ends, or is another session's from then on, the next token is
/// above all that the session may have used: up to the one that a release or an adoption names.
fn tokens_that_may_be_used_are_passed(step: &Step) -> Result<(), String> {
    let Some(after) = &step.after else { return Ok(()) };
    for (holder, entry) in step.entries_before().filter(|(_, entry)| entry.terms.keep) {
        let Some(grant) = entry.place.taken() else { continue };
        let stays = after.entries.get(holder).filter(|now| now.place.taken() == Some(grant));
        if stays.is_some_and(|now| now.terms.keep) {
            continue;
        }
        let named = match &step.command.operation {
            Operation::Release(requests) => {
                let released = requests.iter().find(|release| release.request == entry.request);
                released.map(|release| release.last_token)
            }
            Operation::Adopt(adopt) if stays.is_some() => Some(adopt.last_token),
            _ => None,
        };
        let last = grant.token + KEPT_TOKENS - 1;
        let last = named.map_or(last, |named| named.unwrap_or(0).min(last));
        if after.last_token < last {
            return Err(format!("{holder} may have used {last}, and the last is {}", after.last_token));
        }
    }
    Ok(())
}

/// P5: an entry appears only by an acquire with such an answer, by an adoption that changes nothing but the
/// name and the session, or by the reclaim of a permit from before this era, which the store has forgotten,
/// by its renewal or its adoption.
/// Any other renewed entry stays gone.
fn nothing_appears_unasked(step: &Step) -> Result<(), String> {
    an_adopted_permit_begins_anew(step)?;
    let Some(after) = &step.after else { return Ok(()) };
    for (holder, entry) in &after.entries {
        let known = step.entry_before(holder).is_some_and(|before| before.request == entry.request);
        if known && !matches!(step.command.operation, Operation::Renew(_)) {
            continue;
        }
        if let EntryState::Cooling(grant) = entry.place {
            let held = EntryState::Holding(grant);
            let before = step.entry_before(holder).or_else(|| step.entry_before(&holder.original()));
            if before.is_some_and(|before| before.place == held || before.place == entry.place) {
                continue;
            }
        }
        // If a command has two renewals with other grants, the second ends what the first put back.
        let is_forgotten = |grant: Grant| {
            let is_known = grant.token <= after.era_known || after.era_began_us <= grant.token;
            !is_known && entry.place.taken() == Some(grant)
        };
        let appeared = match (&step.command.operation, &step.reply.answers) {
            (Operation::Acquire { requests, .. }, Answers::Acquire(answers)) => {
                requests.iter().zip(answers).any(|(asked, answer)| {
                    asked.holder == *holder
                        && asked.request == entry.request
                        && match (answer, entry.place) {
                            (AcquireOutcome::Granted(grant), EntryState::Holding(held)) => *grant == held,
                            (AcquireOutcome::Waiting { .. }, EntryState::Waiting(_)) => true,
                            // A later request of the batch has let it in.
                            (AcquireOutcome::Waiting { .. }, EntryState::Holding(grant)) => {
                                step.events.iter().any(|event| {
                                    event.request == entry.request && event.kind == EventKind::Granted(grant)
                                })
                            }
                            _ => false,
                        }
                })
            }
            (Operation::Renew(renewals), Answers::Renew(answers)) => {
                let before = step.entry_before(holder);
                let stays = known && before.is_some_and(|before| before.place == entry.place);
                let promoted = step.events.iter().any(|event| event.request == entry.request);
                let reclaimed = renewals.iter().zip(answers).any(|(renew, answer)| {
                    let forgotten = renew.grant.is_some_and(is_forgotten);
                    renew.request == entry.request && *answer == RenewOutcome::Held && forgotten
                });
                stays || (known && promoted) || reclaimed
            }
            (Operation::Adopt(adopt), Answers::Adopt(adopted)) => {
                let before = step.entry_before(holder);
                let same = before.is_some_and(|before| {
                    (before.place, before.terms.weight, before.terms.lease_ms)
                        == (entry.place, entry.terms.weight, entry.terms.lease_ms)
                });
                *adopted
                    && (same || is_forgotten(adopt.grant))
                    && adopt.new_request == entry.request
                    && EntryState::Holding(adopt.grant) == entry.place
            }
            _ => false,
        };
        if !appeared {
            return Err(format!("{holder} appeared: {entry:?}"));
        }
    }
    Ok(())
}

/// P5: the session that adopts a permit counts its changes of the lease from the beginning, and keeps no
/// permit of another session. Otherwise the store would take its first changes for late ones.
fn an_adopted_permit_begins_anew(step: &Step) -> Result<(), String> {
    let (Operation::Adopt(adopt), Answers::Adopt(true)) = (&step.command.operation, &step.reply.answers)
    else {
        return Ok(());
    };
    let Some(entry) = step.entry_after(&adopt.holder) else { return Ok(()) };
    let begins = (&entry.session, entry.lease_version, entry.terms.keep);
    if begins == (&step.command.session, 0, false) {
        Ok(())
    } else {
        Err(format!("{} was adopted, and is {entry:?}", adopt.holder))
    }
}

/// P9: a holder that was released or revoked has no entry, and is not granted by the command that removed it.
fn what_left_is_gone(step: &Step) -> Result<(), String> {
    let left: Vec<(&Holder, Option<&RequestId>)> = match (&step.command.operation, &step.reply.answers) {
        (Operation::Release(releases), Answers::Release(answers)) => {
            let left = releases.iter().zip(answers).filter(|(_, was)| **was != ReleaseOutcome::Unknown);
            left.map(|(release, _)| (&release.holder, Some(&release.request))).collect()
        }
        // A repeated command has the answer of the first one.
        (Operation::Revoke { origin, .. }, _) if step.was_made(&origin.request) => return Ok(()),
        (Operation::Revoke { holder, cooling: None, .. }, Answers::Revoke(_)) => vec![(holder, None)],
        _ => return Ok(()),
    };
    for (holder, request) in left {
        let granted = |event: &Event| event.holder == *holder && matches!(event.kind, EventKind::Granted(_));
        if step.entry_after(holder).is_some() || step.events.iter().any(granted) {
            return Err(format!("{holder} ({request:?}) left and is still there"));
        }
    }
    Ok(())
}

/// P10: the parts of the state agree: units, slots, queue, leases and entries; and no lease is over.
fn conservation(step: &Step) -> Result<(), String> {
    let Some(state) = &step.after else { return Ok(()) };
    conserved(state)?;
    if state.expires_ms < step.now_ms() + 2 * state.lease_max_ms {
        return Err(format!("it expires at {}, too early for a lease to end", state.expires_ms));
    }
    // The store must not forget the longest lease: once it has lost something, `lease_max_ms` says for how
    // long a holder may be away.
    let is_longer = |(_, entry): &(&Holder, &Entry)| entry.terms.counts_for_ms() > state.lease_max_ms;
    if let Some(longer) = state.entries.iter().find(is_longer) {
        return Err(format!("the longest lease known is {} ms, and there is {longer:?}", state.lease_max_ms));
    }
    let sequence = step.before.as_ref().map_or(0, |state| state.sequence) + 1;
    if (state.sequence, step.reply.sequence) != (sequence, sequence) {
        return Err(format!("sequence {} after {sequence} commands", state.sequence));
    }
    Ok(())
}

/// Checks that the parts of a state agree.
///
/// # Errors
/// The parts that do not agree.
pub fn conserved(state: &State) -> Result<(), String> {
    state.check_invariants()
}

/// P13, P5, P11: an entry that the command does not name keeps all its fields until its own deadline, unless
/// it is granted or refused by an event. So no short lease ends a longer one, no late release frees another's
/// permit, and a lowered limit revokes no holder.
fn others_are_untouched(step: &Step) -> Result<(), String> {
    let named = step.named();
    for (holder, before) in step.entries_before() {
        if named.contains(&(holder.clone(), before.request.clone())) {
            if let Operation::Renew(renewals) = &step.command.operation
                && renewals.iter().filter(|renew| renew.holder == *holder).count() == 1
                && before.deadline.unsigned_abs() > step.now_ms()
                && let Some(after) = step.entry_after(holder).filter(|after| after.request == before.request)
            {
                terms_change_in_order(before, after)?;
            }
            continue;
        }
        let ended = before.deadline.unsigned_abs() <= step.now_ms();
        // If there are two renewals with other grants, the second ends what the first put back: it cools
        // anew.
        if ended && holder.is_cooling() && named.contains(&(holder.original(), before.request.clone())) {
            continue;
        }
        let published =
            step.events.iter().find(|event| event.holder == *holder && event.request == before.request);
        let wanted = match published.map(|event| &event.kind) {
            None | Some(EventKind::Turn(_)) => Some(before.clone()),
            Some(EventKind::Granted(grant)) => Some(Entry {
                place: EntryState::Holding(*grant),
                deadline: (step.now_ms() + before.terms.lease_ms).cast_signed(),
                queued_us: 0,
                ..before.clone()
            }),
            Some(EventKind::Refused | EventKind::Superseded | EventKind::LineClosed(_)) => None,
            Some(EventKind::Revoked(_)) => return Err(format!("{holder} was revoked, and not by name")),
        };
        // Another entry of the same name may have come after this one left.
        let after = step.entry_after(holder).filter(|after| after.request == before.request).cloned();
        let reaped = ended && published.is_none() && after.is_none();
        // A grant counts towards the bounds of its lane even if its request does not name them, and an
        // earlier grant counts from the pin of the bounds on. The store notes the bounds in the entry then:
        // ignore that.
        let pinned = match &step.command.operation {
            Operation::Set { setting: Setting::Lane { lane, pin: Some(_) }, .. } => Some(lane),
            _ => None,
        };
        let after = after.map(|mut after| {
            let is_counted = before.place != after.place || pinned == Some(&before.terms.lane);
            if !before.terms.names_bounds() && is_counted {
                (after.terms.lane_limit, after.terms.lane_floor) = (0, 0);
            }
            after
        });
        if after != wanted && !reaped {
            return Err(format!("{holder} was {before:?} and is {after:?}"));
        }
    }
    Ok(())
}

/// P5: no renewal adds units, and none from before a change of the lease sets the former one. An entry that
/// the command may have ended and put back is not judged: one whose lease is over, or one that two renewals
/// name.
fn terms_change_in_order(before: &Entry, after: &Entry) -> Result<(), String> {
    let is_earlier = after.lease_version < before.lease_version;
    let is_other =
        after.lease_version == before.lease_version && after.terms.lease_ms != before.terms.lease_ms;
    let is_wrong = after.terms.weight > before.terms.weight || is_earlier || is_other;
    // A waiter that was put back as a holder has the terms that its session knows.
    if is_wrong && before.place == after.place {
        return Err(format!("{before:?} became {after:?}"));
    }
    Ok(())
}

/// P15: waiters are granted only from units that were free or became free, each once, and each session
/// receives only its own events.
fn no_herd(step: &Step) -> Result<(), String> {
    let freed_of = |(holder, before): (&Holder, &Entry)| {
        let Some(grant) = before.place.taken() else { return 0 };
        let stays = step.entry_after(holder).filter(|after| after.place == before.place);
        let left = stays.or_else(|| step.entry_after(&holder.cooling(grant.token)));
        u64::from(before.terms.weight.saturating_sub(left.map_or(0, |left| left.terms.weight)))
    };
    let freed: u64 = step.entries_before().map(freed_of).sum();
    let room = step.limit_of_waiters().saturating_sub(step.held_before().saturating_sub(freed));
    let mut notified = BTreeSet::new();
    let mut granted = 0;
    for event in step.events.iter().filter(|event| !matches!(event.kind, EventKind::Turn(_))) {
        if !notified.insert((&event.holder, &event.request)) {
            return Err(format!("{} received two events: {:?}", event.holder, step.events));
        }
        if step.named().contains(&(event.holder.clone(), event.request.clone()))
            && event.kind == EventKind::Superseded
        {
            // The entry came and went with this command.
            continue;
        }
        // The lease of a holder may have ended with this command, which asks for it again. If too many have
        // ended at once, some are still there, and may be revoked.
        let has_ended = |entry: &Entry| {
            let is_over = entry.place.taken().is_some() && entry.deadline.unsigned_abs() <= step.now_ms();
            is_over && !matches!(event.kind, EventKind::Revoked(_))
        };
        let before = step.entry_before(&event.holder);
        let before = before.filter(|entry| entry.request == event.request && !has_ended(entry));
        let (session, terms, place) = match (before, superseding(step, &event.holder)) {
            (Some(before), _) => (&before.session, &before.terms, before.place),
            (None, Some((asked, _, before))) if asked.request == event.request => {
                (&step.command.session, &asked.terms, before.place)
            }
            _ => match queued(step, &event.holder).filter(|asked| asked.request == event.request) {
                Some(asked) => (&step.command.session, &asked.terms, EntryState::Waiting(u64::MAX)),
                None => return Err(format!("{} received an event and had no entry", event.holder)),
            },
        };
        if event.session != *session {
            return Err(format!("{} is not of session {}", event.holder, event.session));
        }
        if let EventKind::Granted(_) = event.kind {
            if !matches!(place, EntryState::Waiting(_)) {
                return Err(format!("{} was granted again", event.holder));
            }
            granted += u64::from(terms.weight);
        }
    }
    if granted > room {
        return Err(format!("{granted} units were handed to waiters, and {room} were there to give"));
    }
    Ok(())
}

/// P7: work that a bound has cut off is asked for by sessions of waiters, because the caller may end: at once
/// by that of the head, and by a few others later, since that one may be dead. Otherwise the head alone has
/// its turn, and no herd asks; and always if a waiter was granted for a shorter lease than that of the head,
/// or a holder has shortened its own.
fn what_is_left_is_asked_for(step: &Step) -> Result<(), String> {
    const SESSIONS: usize = 4;
    let Some(after) = &step.after else { return Ok(()) };
    let max = if after.lanes.last == 0 { MAX_BATCH } else { 2 * SESSIONS };
    let heads = after.heads(max);
    let sessions: BTreeSet<&str> = heads.iter().map(|head| after.entries[*head].session.as_str()).collect();
    // If a lease ends after the head's next renewal, the head learns of it then.
    let lease_ms = |holder: &Holder| after.entries.get(holder).map(|entry| entry.terms.lease_ms);
    let of_head_ms = heads.first().and_then(|head| lease_ms(head));
    let is_short = |event: &Event| {
        let is_grant = matches!(event.kind, EventKind::Granted(_));
        is_grant && lease_ms(&event.holder).is_some_and(|ms| Some(ms) < of_head_ms)
    };
    // If one renewal loses a permit, and a later one of the same command puts it back, that is a new grant.
    let is_lost = |holder: &Holder| match (&step.command.operation, &step.reply.answers) {
        (Operation::Renew(requests), Answers::Renew(answers)) => {
            let mut renewals = requests.iter().zip(answers);
            renewals.any(|(renew, answer)| renew.holder == *holder && *answer == RenewOutcome::Lost)
        }
        _ => false,
    };
    let is_shorter = |(holder, before): (&Holder, &Entry)| {
        let now = after.entries.get(holder).filter(|now| now.place == before.place && !is_lost(holder));
        now.is_some_and(|now| now.place.taken().is_some() && now.terms.lease_ms < before.terms.lease_ms)
    };
    let shortened = !heads.is_empty() && step.entries_before().any(is_shorter);
    let due = if step.is_cut() {
        sessions.len().min(SESSIONS)
    } else {
        usize::from(after.paused_until_ms < PAUSED && (shortened || step.events.iter().any(is_short)))
    };
    let mut turns = step.events.iter().filter_map(|event| match event.kind {
        EventKind::Turn(delay_us) => Some((event, delay_us)),
        _ => None,
    });
    let asked: Vec<_> = turns.clone().map(|(event, _)| event.session.as_str()).collect();
    let apart = asked.iter().collect::<BTreeSet<_>>().len() == asked.len();
    let first = turns.next();
    let is_head = first.is_none_or(|(turn, _)| heads.first() == Some(&&turn.holder));
    let at_once = !step.is_cut() || first.is_none_or(|(_, delay_us)| delay_us == 1);
    if asked.len() < due || asked.len() > due.max(1) || !apart || !is_head || !at_once {
        let all: Vec<_> = first.into_iter().chain(turns).collect();
        return Err(format!("of {} sessions that wait, these have turns: {all:?}", sessions.len()));
    }
    Ok(())
}

/// P22: the store knows until when grants may be kept: a lease after each request for one, since its session
/// holds it no longer without another. It says that they may be kept only while no request needs units and no
/// lane is pinned, and refuses no try for units that a recall may free. A try waits for such units alone.
fn what_may_be_kept_is_known(step: &Step) -> Result<(), String> {
    let Some(after) = &step.after else { return Ok(()) };
    let asked: Vec<&PermitTerms> = match &step.command.operation {
        Operation::Acquire { requests, .. } => requests.iter().map(|request| &request.terms).collect(),
        Operation::Renew(requests) => requests.iter().map(|renew| &renew.terms).collect(),
        _ => Vec::new(),
    };
    let kept = asked.into_iter().filter(|terms| terms.keep).map(|terms| step.now_ms() + terms.lease_ms);
    let known = step.before.as_ref().map_or(0, |state| state.kept_until_ms);
    if let Some(until) = kept.chain([known]).find(|until| after.kept_until_ms < *until) {
        return Err(format!("kept until {until}, and the store knows of {}", after.kept_until_ms));
    }
    let is_needed = !after.queue.is_empty() || after.held > after.limit.into() || after.is_paused();
    let is_needed = is_needed || after.lanes.pins() > 0;
    if step.reply.keepable && (is_needed || after.closed.is_some() || step.is_recovering()) {
        return Err(format!("nothing is to be kept: {after:?}"));
    }
    let (Operation::Acquire { requests, queue_max: 1.. }, Answers::Acquire(answers)) =
        (&step.command.operation, &step.reply.answers)
    else {
        return Ok(());
    };
    let refused = answers.first() == Some(&AcquireOutcome::Refused(Refusal::NoPermits));
    let waits = requests.iter().any(|request| request.wait);
    let is_recalled = !after.is_paused() && !step.is_recovering() && step.now_ms() < after.kept_until_ms;
    if refused && !waits && after.queue.is_empty() && is_recalled {
        return Err("a try is refused, and permits may be kept".into());
    }
    let waited = |asked: &AcquireRequest| {
        // One whose lease has ended keeps its place until it is reaped, and a call reaps some of many.
        let stays = |entry: &&Entry| {
            entry.deadline.unsigned_abs() > step.now_ms()
                || after.entries.get(&asked.holder).is_some_and(|now| now.place == entry.place)
        };
        let before = step.entry_before(&asked.holder).filter(stays);
        let all_tries =
            requests.iter().filter(|other| other.request == asked.request).all(|other| !other.wait);
        before.is_some_and(|entry| entry.request == asked.request) || !all_tries
    };
    let queued = |(asked, answer): (&AcquireRequest, &AcquireOutcome)| {
        matches!(answer, AcquireOutcome::Waiting { .. }) && !asked.wait && !waited(asked)
    };
    if !is_recalled && requests.iter().zip(answers).any(queued) {
        return Err("a try waits, and no recall can free anything".into());
    }
    Ok(())
}
