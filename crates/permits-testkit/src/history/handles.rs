//! The answers to renewals and adoptions by handles, judged over a whole history.
//!
//! Sessions do not renew the permit of a handle, so no client notices that its lease has ended. The store may
//! have forgotten the permit since, together with all else about the semaphore. So the check remembers what a
//! store may forget: the grants of each slot, and whether the present state began with a loss.

use std::collections::BTreeMap;

use permits_core::model::{EntryState, ServerClock};
use permits_core::protocol::{Answers, Grant, Holder, Operation, RenewOutcome};

use super::step::Step;

/// The grants since the store last forgot something.
#[derive(Clone, Debug, Default)]
pub struct Handles {
    /// The last token granted of each slot.
    granted: BTreeMap<u32, u64>,
    /// True if the present era began because the store had lost something and kept the rest: then it knows
    /// of the loss.
    has_lost: bool,
}

impl Handles {
    /// P5: a handle is never answered as held after its lease has ended, or after another holder was granted
    /// its slot.
    ///
    /// The rule of the lease has an exception, because a handle does not have the time of its last renewal:
    /// for one lease after a loss of state, the store may answer a handle of an earlier grant as held, since
    /// it may have forgotten the permit. A loss is a start of the server, if there is no state; another
    /// server, if there is one; or a part of the state that has vanished, `damaged`. The rule of the slot has
    /// an exception, too: once the clock was set back to before the era, a grant of the era may have a token
    /// from before it.
    ///
    /// # Errors
    /// The handle that was wrongly answered as held.
    pub fn note(&mut self, step: &Step, server: &ServerClock<'_>, damaged: bool) -> Result<(), String> {
        let of_other_server = |known: &String| {
            let after = step.after.as_ref().map(|state| &state.server);
            after.is_some_and(|after| after != known)
        };
        let known = step.before.as_ref().map(|state| &state.server);
        let begins = damaged || known.is_none_or(of_other_server);
        if begins {
            self.granted.clear();
            self.has_lost = damaged || known.is_some();
        }
        let handles = held(step).into_iter();
        let verdict = handles.map(|held| self.judge(step, server, &held)).find(Result::is_err);
        let began_us = step.after.as_ref().map_or(0, |state| state.era_began_us);
        for fresh in step.fresh().iter().filter(|fresh| fresh.grant.token >= began_us) {
            self.granted.insert(fresh.grant.slot, fresh.grant.token);
        }
        verdict.unwrap_or(Ok(()))
    }

    fn judge(&self, step: &Step, server: &ServerClock<'_>, held: &Held<'_>) -> Result<(), String> {
        let Held { holder, grant, lease_ms } = held;
        let known = step.entry_before(holder).filter(|entry| entry.place == EntryState::Holding(*grant));
        // A command that stops at its bound leaves entries whose leases have ended, and their units taken.
        if known.is_some_and(|entry| entry.deadline > step.now_ms().cast_signed() || step.is_cut()) {
            return Ok(());
        }
        if let Some(token) = self.granted.get(&grant.slot) {
            return Err(format!(
                "{holder} is answered as the holder of {grant:?}, whose slot was granted with {token}"
            ));
        }
        let began_us = step.after.as_ref().map_or(0, |state| state.era_began_us);
        let started_us = server.now_us.saturating_sub(server.uptime_ms.saturating_mul(1000));
        let lost_us = if self.has_lost { began_us } else { started_us };
        if grant.token < lost_us && step.now_ms() < lost_us / 1000 + lease_ms {
            return Ok(());
        }
        Err(format!(
            "{holder} is answered as the holder of {grant:?}, and nothing was lost since, or a lease ago"
        ))
    }
}

/// A handle that is answered as held.
struct Held<'a> {
    holder: &'a Holder,
    grant: Grant,
    lease_ms: u64,
}

fn held(step: &Step) -> Vec<Held<'_>> {
    match (&step.command.operation, &step.reply.answers) {
        (Operation::Adopt(adopt), Answers::Adopt(true)) => {
            vec![Held { holder: &adopt.holder, grant: adopt.grant, lease_ms: adopt.terms.lease_ms }]
        }
        (Operation::Renew(renewals), Answers::Renew(answers)) if step.command.is_by_handle() => {
            let held = renewals.iter().zip(answers).filter(|(_, answer)| **answer == RenewOutcome::Held);
            let handles = held.filter_map(|(renew, _)| {
                // An earlier renewal of the batch may have put it back for another lease.
                let same = renewals.iter().filter(|other| other.grant == renew.grant);
                let lease_ms = same.map(|other| other.terms.lease_ms).max().unwrap_or(0);
                renew.grant.map(|grant| Held { holder: &renew.holder, grant, lease_ms })
            });
            handles.collect()
        }
        _ => Vec::new(),
    }
}
