//! Checks of grants that count for some time, and of the ends in refusals.

use permits_core::model::EntryState;
use permits_core::protocol::{
    AcquireOutcome, Answers, Declaration, Operation, Refusal, ReleaseOutcome, RenewOutcome,
};

use super::step::Step;

/// P17: units that were granted to count for some time stay taken until then, held or cooling, unless an
/// operator frees them or the state is lost. A release may correct their number, to the limit at most, and a
/// renewal lets them count for the longer of two times.
pub(super) fn grants_count_as_long_as_asked(step: &Step) -> Result<(), String> {
    for (holder, before) in step.entries_before() {
        let Some(grant) = before.place.taken() else { continue };
        // The clock may be behind the token of a grant, and is not behind its time.
        let until = match before.place {
            EntryState::Cooling(_) => before.deadline.unsigned_abs(),
            _ => grant.token.div_ceil(1000).min(step.now_ms() + 1) + before.terms.at_least_ms,
        };
        if before.terms.at_least_ms == 0 {
            continue;
        }
        let asked = match (&step.command.operation, &step.reply.answers) {
            (Operation::Renew(requests), Answers::Renew(answers)) => requests
                .iter()
                .zip(answers)
                .filter(|(renew, was)| {
                    renew.holder == *holder && renew.request == before.request && **was == RenewOutcome::Held
                })
                .map(|(renew, _)| renew.terms.at_least_ms)
                .max(),
            _ => None,
        };
        let at_least_ms = asked.unwrap_or(0).max(before.terms.at_least_ms);
        // One whose lease has ended may be put back on other terms.
        let is_held = before.deadline > 0 && before.deadline.unsigned_abs() > step.now_ms();
        if let Some(after) =
            step.entry_after(holder).filter(|after| after.place == EntryState::Holding(grant))
            && is_held
            && after.terms.at_least_ms != at_least_ms
        {
            return Err(format!("{holder} is to count for {at_least_ms} ms: {before:?}, {after:?}"));
        }
        if until <= step.now_ms() {
            continue;
        }
        let freed = match &step.command.operation {
            Operation::Revoke { holder: of, cooling: Some(token), .. } => {
                // One whose lease ends with this command cools first.
                of.cooling(*token) == holder.original().cooling(grant.token)
            }
            _ => false,
        };
        let after = step.entry_after(holder).filter(|after| after.place.taken() == Some(grant));
        let after = after.or_else(|| step.entry_after(&holder.original().cooling(grant.token)));
        // One whose lease ends with this command is not released.
        let counted = match (&step.command.operation, &step.reply.answers) {
            (Operation::Release(requests), Answers::Release(answers)) => requests
                .iter()
                .zip(answers)
                .find(|(release, was)| {
                    release.holder == *holder
                        && release.request == before.request
                        && **was == ReleaseOutcome::Held
                })
                .and_then(|(release, _)| release.counted),
            _ => None,
        };
        let Some(after) = after else {
            if freed || counted == Some(0) {
                continue;
            }
            return Err(format!("the grant {grant:?} of {holder} was to count until {until} ms"));
        };
        let limit = step.after.as_ref().map_or(0, |state| state.limit);
        let weight = counted.map_or(before.terms.weight, |units| units.min(limit.max(before.terms.weight)));
        if after.terms.weight != weight || (holder.is_cooling() && after.deadline.unsigned_abs() < until) {
            return Err(format!("{holder} was {before:?} and is {after:?}"));
        }
    }
    Ok(())
}

/// P17: a request that only units that cool or a pause with an end keep out is refused with the time until it
/// fits, and no other request is. The reason is what keeps it out until then. Of a batch, later requests may
/// have changed what the first one met.
pub(super) fn an_end_is_told_and_true(step: &Step) -> Result<(), String> {
    let (Operation::Acquire { requests, .. }, Answers::Acquire(answers)) =
        (&step.command.operation, &step.reply.answers)
    else {
        return Ok(());
    };
    let ([request], [AcquireOutcome::Refused(refusal)]) = (&requests[..], &answers[..]) else {
        return Ok(());
    };
    let (Some(after), Declaration::Stored) = (&step.after, step.command.declaration) else { return Ok(()) };
    let cooling = after.entries.iter().filter(|(holder, _)| holder.is_cooling()).map(|(_, entry)| entry);
    let fits_in = |ms: u64| {
        let ended = cooling.clone().filter(|entry| entry.deadline.unsigned_abs() <= step.now_ms() + ms);
        let freed: u64 = ended.map(|entry| u64::from(entry.terms.weight)).sum();
        after.held - freed + u64::from(request.terms.weight) <= after.limit.into()
            && step.now_ms() + ms >= after.recovering_until_ms.max(after.paused_until_ms)
    };
    match refusal {
        Refusal::Cooling { .. } if after.is_paused() && after.pause_ends_ms().is_none() => {
            Err("it is paused without an end".to_owned())
        }
        Refusal::Cooling { remaining_ms }
            if !cooling
                .clone()
                .any(|entry| entry.deadline.unsigned_abs() == step.now_ms() + remaining_ms) =>
        {
            Err(format!("nothing cools for {remaining_ms} ms"))
        }
        Refusal::Paused { remaining_ms: Some(remaining_ms) }
            if after.pause_ends_ms() != Some(step.now_ms() + remaining_ms) =>
        {
            Err(format!("the pause does not end in {remaining_ms} ms"))
        }
        Refusal::Paused { .. } if !after.is_paused() => Err("it is not paused".to_owned()),
        Refusal::Cooling { remaining_ms } | Refusal::Paused { remaining_ms: Some(remaining_ms) }
            if !after.queue.is_empty() =>
        {
            Err(format!("{remaining_ms} ms, and that alone does not let it in"))
        }
        Refusal::Cooling { remaining_ms } | Refusal::Paused { remaining_ms: Some(remaining_ms) }
            if !fits_in(*remaining_ms) || fits_in(remaining_ms - 1) =>
        {
            Err(format!("it fits earlier or later than in {remaining_ms} ms"))
        }
        Refusal::Recovering if after.paused_until_ms > after.recovering_until_ms => {
            Err("it is paused for longer than it recovers".to_owned())
        }
        Refusal::NoPermits if after.is_paused() => Err("it is paused".to_owned()),
        Refusal::NoPermits | Refusal::Paused { remaining_ms: None }
            if after.queue.is_empty() && fits_in(1 << 40) =>
        {
            Err("it would fit later, and is not told when".to_owned())
        }
        _ => Ok(()),
    }
}

/// The units by which a release has corrected what its grants count for, upward.
pub(super) fn counted_up(step: &Step) -> u64 {
    let Operation::Release(requests) = &step.command.operation else { return 0 };
    let limit = step.after.as_ref().map_or(0, |state| state.limit);
    let more = requests.iter().filter_map(|release| {
        let weight = step.entry_before(&release.holder)?.terms.weight;
        Some(u64::from(release.counted?.min(limit).saturating_sub(weight)))
    });
    more.sum()
}
