//! Checks of grants that count for some time, and of the ends in refusals.

use std::collections::BTreeSet;

use permits_core::model::{Entry, EntryState, LaneBounds, Side, State};
use permits_core::protocol::{
    AcquireOutcome, AcquireRequest, Answers, Declaration, EventKind, Holder, LaneName, Operation,
    PermitTerms, Refusal, ReleaseOutcome, RenewOutcome, RenewRequest, RequestId,
};

use super::order::side;
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
        // A grant whose lease has ended may be put back on other terms. So may a grant that a renewal of the
        // batch ends by naming another one: under another request, or once it need not count any more.
        let names_another = |renew: &RenewRequest| {
            renew.holder == *holder
                && renew.request == before.request
                && renew.grant.is_some_and(|it| it != grant)
        };
        let is_ended = until <= step.now_ms()
            && matches!(&step.command.operation, Operation::Renew(requests) if requests.iter().any(names_another));
        let is_held = before.deadline > 0 && before.deadline.unsigned_abs() > step.now_ms();
        let is_renewal = matches!(step.command.operation, Operation::Renew(_));
        let is_same = |after: &&Entry| !is_renewal || after.request == before.request;
        if let Some(after) =
            step.entry_after(holder).filter(|after| after.place == EntryState::Holding(grant)).filter(is_same)
            && is_held
            && !is_ended
            && after.terms.at_least_ms != at_least_ms
        {
            return Err(format!("{holder} is to count for {at_least_ms} ms: {before:?}, {after:?}"));
        }
        if until <= step.now_ms() {
            continue;
        }
        let freed = match &step.command.operation {
            Operation::Revoke { holder: of, cooling: Some(token), .. } => {
                // A holder whose lease ends with this command cools first.
                of.cooling(*token) == holder.original().cooling(grant.token)
            }
            _ => false,
        };
        let after = step.entry_after(holder).filter(|after| after.place.taken() == Some(grant));
        let after = after.or_else(|| step.entry_after(&holder.original().cooling(grant.token)));
        // A holder whose lease ends with this command is not released.
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

/// P17: a request is refused with the time until it fits if nothing but cooling units or a pause with an end
/// keeps it out, and only then. The reason says what keeps it out until then.
///
/// Each request of a batch is judged by what it met: units that later requests were granted do not count, nor
/// later requests that wait. A request whose declared limit is not in force, because none of the requests
/// would fit it, is judged under that limit.
pub(super) fn an_end_is_told_and_true(step: &Step) -> Result<(), String> {
    let (Operation::Acquire { requests, .. }, Answers::Acquire(answers)) =
        (&step.command.operation, &step.reply.answers)
    else {
        return Ok(());
    };
    let Some(after) = &step.after else { return Ok(()) };
    let supersedes = step.events.iter().any(|event| event.kind == EventKind::Superseded);
    // A batch with a superseding request, or with bounds of lanes, is not judged: the states and the reply do
    // not show what each of its requests met.
    let names_bounds = requests.iter().any(|asked| asked.terms.names_bounds());
    let meets_bounds = names_bounds || !after.lanes.bounded().is_empty();
    if step.is_cut() || ((supersedes || meets_bounds) && requests.len() > 1) {
        return Ok(());
    }
    for (at, (asked, answer)) in requests.iter().zip(answers).enumerate() {
        let AcquireOutcome::Refused(refusal) = answer else { continue };
        if let Err(reason) = Met::by(step, after, at).judge(asked, refusal) {
            return Err(format!("request {at}, which is refused as {refusal:?}: {reason}"));
        }
    }
    Ok(())
}

/// The semaphore as a request of a batch met it.
struct Met<'a> {
    now_ms: u64,
    after: &'a State,
    held: u64,
    /// The side of the waiting lane that is served first; `None` without waiters.
    first: Option<Side>,
    /// The limit that counts for the request.
    limit: u64,
}

impl<'a> Met<'a> {
    /// The semaphore as the request at this place met it.
    fn by(step: &Step, after: &'a State, at: usize) -> Self {
        let (Operation::Acquire { requests, .. }, Answers::Acquire(answers)) =
            (&step.command.operation, &step.reply.answers)
        else {
            unreachable!("the command acquires")
        };
        let fresh = step.fresh();
        // A request may stand in the batch twice, first as a try and then to wait.
        let earlier = requests.iter().zip(answers).take(at);
        let earlier: BTreeSet<&RequestId> = earlier
            .filter(|(_, answer)| !matches!(answer, AcquireOutcome::Refused(_)))
            .map(|(asked, _)| &asked.request)
            .collect();
        let is_known = |holder: &Holder, request: &RequestId| {
            let is_alive = |entry: &&Entry| entry.deadline.unsigned_abs() > step.now_ms();
            let before = step.entry_before(holder).filter(is_alive);
            before.is_some_and(|entry| entry.request == *request) || earlier.contains(request)
        };
        let later = || {
            let pairs = requests.iter().zip(answers).skip(at + 1);
            pairs.filter(|(asked, _)| !is_known(&asked.holder, &asked.request))
        };
        let granted = later().filter(|(_, answer)| match answer {
            AcquireOutcome::Granted(grant) => fresh.iter().any(|fresh| fresh.grant == *grant),
            _ => false,
        });
        let granted: BTreeSet<&Holder> = granted.map(|(asked, _)| &asked.holder).collect();
        let units = |holder: &&Holder| u64::from(after.entries[*holder].terms.weight);
        let joined = later().filter(|(_, answer)| matches!(answer, AcquireOutcome::Waiting { .. }));
        let joined: BTreeSet<&Holder> = joined.map(|(asked, _)| &asked.holder).collect();
        let declared = match step.command.declaration {
            Declaration::Declare(limit) if !after.pinned => Some(limit),
            Declaration::Fallback(limit) | Declaration::Require(limit) if after.limit == 0 => Some(limit),
            _ => None,
        };
        Self {
            now_ms: step.now_ms(),
            after,
            held: after.held - granted.iter().map(units).sum::<u64>(),
            first: after
                .queue
                .values()
                .filter(|holder| !joined.contains(holder))
                .map(|holder| side(after, &after.entries[holder].terms.lane))
                .min(),
            limit: declared.unwrap_or(after.limit).into(),
        }
    }

    /// The times at which cooling units become free, with their numbers, the earliest first: of all units, or
    /// of those that count towards the limit of a lane.
    fn cooling(&self, lane: Option<&LaneName>) -> Vec<(u64, u64)> {
        let counts =
            |entry: &Entry| lane.is_none_or(|lane| entry.terms.lane == *lane && entry.terms.names_bounds());
        let cooling = self.after.entries.iter();
        let cooling = cooling.filter(|(holder, entry)| holder.is_cooling() && counts(entry));
        let mut ends: Vec<_> =
            cooling.map(|(_, entry)| (entry.deadline.unsigned_abs(), entry.terms.weight.into())).collect();
        ends.sort_unstable();
        ends
    }

    /// The time at which a request of this weight fits if none other comes, if no holder has to leave for
    /// that.
    fn fits_at(&self, terms: &PermitTerms) -> Option<u64> {
        if self.waits(terms) || (self.after.is_paused() && self.after.pause_ends_ms().is_none()) {
            return None;
        }
        let at_ms = self.cools_at(self.held + u64::from(terms.weight), self.limit, None)?;
        let lane_ms = self.lane_fits_at(terms)?;
        Some(at_ms.max(lane_ms).max(self.after.recovering_until_ms).max(self.after.paused_until_ms))
    }

    /// Returns true if a waiter is before a request. If the lane of the request is short, only a waiter of a
    /// short lane is before it.
    fn waits(&self, terms: &PermitTerms) -> bool {
        let LaneBounds { floor, held, .. } = self.lane_of(terms);
        let is_full = self.lane_fits_at(terms) != Some(self.now_ms);
        let behind = if held < floor.into() && !is_full { Side::Short } else { Side::Fair };
        self.first.is_some_and(|first| first <= behind)
    }

    /// The bounds of the request's lane: the bounds that the request names, unless others are pinned.
    fn lane_of(&self, terms: &PermitTerms) -> LaneBounds {
        let found = self.after.lanes.bounded().get(&terms.lane).copied().unwrap_or_default();
        let named = |units: u32, otherwise| if units > 0 && !found.pinned { units } else { otherwise };
        let (limit, floor) = (named(terms.lane_limit, found.limit), named(terms.lane_floor, found.floor));
        LaneBounds { limit, floor, ..found }
    }

    /// The time at which it fits its lane.
    fn lane_fits_at(&self, terms: &PermitTerms) -> Option<u64> {
        let LaneBounds { limit, held, .. } = self.lane_of(terms);
        if limit == 0 {
            return Some(self.now_ms);
        }
        if self.after.queue.values().any(|holder| self.after.entries[holder].terms.lane == terms.lane) {
            return None;
        }
        self.cools_at(held + u64::from(terms.weight), limit.into(), Some(&terms.lane))
    }

    /// The time from which so many units are no more than the limit.
    fn cools_at(&self, mut units: u64, limit: u64, lane: Option<&LaneName>) -> Option<u64> {
        let mut ends = self.cooling(lane).into_iter();
        let mut at_ms = self.now_ms;
        while units > limit {
            let (end_ms, cooled) = ends.next()?;
            (units, at_ms) = (units - cooled, end_ms);
        }
        Some(at_ms)
    }

    fn judge(&self, asked: &AcquireRequest, refusal: &Refusal) -> Result<(), String> {
        let fits = self.fits_at(&asked.terms).filter(|at_ms| *at_ms > self.now_ms);
        let ends_at = |lane, at_ms: u64| self.cooling(lane).iter().any(|(end_ms, _)| *end_ms == at_ms);
        let (told, of_it) = match refusal {
            Refusal::Cooling { remaining_ms } => {
                let at_ms = self.now_ms + remaining_ms;
                (Some(at_ms), ends_at(None, at_ms))
            }
            Refusal::Paused { remaining_ms: Some(remaining_ms) } => {
                let at_ms = self.now_ms + remaining_ms;
                (Some(at_ms), self.after.pause_ends_ms() == Some(at_ms))
            }
            Refusal::Recovering => {
                (Some(self.after.recovering_until_ms), self.now_ms < self.after.recovering_until_ms)
            }
            Refusal::LaneFull { remaining_ms: Some(remaining_ms) } => {
                let at_ms = self.now_ms + remaining_ms;
                (Some(at_ms), ends_at(Some(&asked.terms.lane), at_ms))
            }
            Refusal::LaneFull { .. } if self.after.leases.len() > LEASES_SEEN => return Ok(()),
            Refusal::LaneFull { remaining_ms: None } => {
                (None, self.lane_fits_at(&asked.terms) != Some(self.now_ms))
            }
            Refusal::Paused { remaining_ms: None } => (None, self.after.is_paused()),
            // A refusal looks at the leases that end first, and not at all of them.
            Refusal::NoPermits if self.after.leases.len() > LEASES_SEEN => return Ok(()),
            Refusal::NoPermits => (None, !self.after.is_paused()),
            _ => return Ok(()),
        };
        if told != fits {
            return Err(format!("{told:?} is told, and it fits at {fits:?}"));
        }
        if of_it { Ok(()) } else { Err("this does not end then".to_owned()) }
    }
}

/// The number of leases up to which a refusal has an end in any case.
const LEASES_SEEN: usize = 128;

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
