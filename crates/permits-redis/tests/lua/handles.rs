//! Handles of permits that the store does not have: it has forgotten them as idle, has lost them, or has
//! never granted them.

use permits_core::model::Part;
use permits_core::protocol::{
    AcquireOutcome, AdoptRequest, Answers, Grant, Operation, PermitTerms, ReleaseOutcome, RenewOutcome,
    RequestKey,
};

use crate::fixture::{Both, acquire, holder, id, release, renew, renewal};

const LEASE_MS: u64 = 3_000;

impl Both {
    fn granted(&mut self, name: &str) -> Grant {
        let Answers::Acquire(outcomes) = self.same(&acquire(&[name])) else { unreachable!() };
        let [AcquireOutcome::Granted(grant)] = outcomes[..] else { panic!("{outcomes:?}") };
        grant
    }

    fn lets_pass(&mut self, ms: u64) {
        self.uptime_ms += ms;
        self.set_time(self.now_us + 1_000 * ms);
    }

    /// A server that has started since, with the data of this one.
    fn restarts(&mut self) {
        self.lets_pass(1);
        (self.run_id, self.uptime_ms) = ("restarted", 0);
        self.lets_pass(20);
    }

    fn forgets_all(&mut self) {
        self.call(&["FLUSHALL"]);
        self.state = None;
        self.set_time(self.now_us);
    }

    /// The answer to a renewal by the handle.
    fn renewed_by_handle(&mut self, name: &str, grant: Grant) -> RenewOutcome {
        let mut renew = renewal(name, Some(grant));
        renew.by_handle = true;
        let Answers::Renew(outcomes) = self.same(&Operation::Renew(vec![renew])) else { unreachable!() };
        outcomes[0].clone()
    }

    fn adopts(&mut self, name: &str, grant: Grant) -> bool {
        let adopt = AdoptRequest {
            holder: holder(name),
            request: id(name),
            terms: PermitTerms::new(1, LEASE_MS),
            grant,
            new_request: id("adopted"),
            last_token: None,
        };
        self.same(&Operation::Adopt(adopt)) == Answers::Adopt(true)
    }

    fn is_gone(&mut self, name: &str, grant: Grant) {
        assert_eq!(
            (self.renewed_by_handle(name, grant), self.adopts(name, grant)),
            (RenewOutcome::Lost, false),
            "{name}"
        );
    }
}

/// A session that renews has held its permit all along, so there the store has lost it: by FLUSHALL.
#[test]
fn a_handle_stays_lost_when_the_semaphore_is_forgotten() {
    let mut both = Both::start();
    let grant = both.granted("a");
    both.lets_pass(LEASE_MS);
    both.is_gone("a", grant);
    both.lets_pass(100 * LEASE_MS);
    both.is_gone("a", grant);
    let other = both.granted("b");
    assert_eq!(other.slot, grant.slot);
    both.same(&release("b"));
    both.is_gone("a", grant);
    both.lets_pass(100 * LEASE_MS);
    both.is_gone("a", grant);
    let of_session = both.same(&renew("a", Some(grant)));
    assert_eq!(of_session, Answers::Renew(vec![RenewOutcome::Held]));
}

#[test]
fn a_handle_that_is_invented_is_refused() {
    let mut both = Both::start();
    let invented = [5, both.now_us - 1, both.now_us].map(|token| Grant { token, slot: 0 });
    for grant in invented {
        both.is_gone("nobody", grant);
    }
    both.granted("a");
    for grant in invented.map(|grant| Grant { slot: 1, ..grant }) {
        both.is_gone("nobody", grant);
    }
}

/// The handle counts until its lease would have ended, counted from the start of the server.
#[test]
fn a_handle_is_put_back_after_a_restart_that_lost_it() {
    for (late_ms, is_put_back) in [(LEASE_MS - 21, true), (LEASE_MS - 20, false)] {
        for adopts in [false, true] {
            let mut both = Both::start();
            let grant = both.granted("a");
            both.restarts();
            both.forgets_all();
            both.lets_pass(late_ms);
            if adopts {
                assert_eq!(both.adopts("a", grant), is_put_back);
                let adopted = both.same(&Operation::Release(vec![
                    RequestKey { holder: holder("a"), request: id("adopted") }.into(),
                ]));
                let was = if is_put_back { ReleaseOutcome::Held } else { ReleaseOutcome::Unknown };
                assert_eq!(adopted, Answers::Release(vec![was]));
            } else {
                assert_eq!(both.renewed_by_handle("a", grant) == RenewOutcome::Held, is_put_back);
            }
        }
    }
}

/// A grant since the restart may have been of its slot, also if that is free again.
#[test]
fn a_handle_that_comes_after_a_grant_of_the_new_era_is_gone() {
    let mut both = Both::start();
    let grant = both.granted("a");
    both.restarts();
    both.forgets_all();
    let other = both.granted("b");
    assert_eq!(other.slot, grant.slot);
    both.same(&release("b"));
    both.is_gone("a", grant);
}

#[test]
fn a_handle_from_after_the_start_of_the_server_is_not_put_back() {
    let mut both = Both::start();
    both.restarts();
    let grant = both.granted("a");
    both.forgets_all();
    both.is_gone("a", grant);
}

/// The replica has run since before the grant. Without the semaphore, it may as well have forgotten it.
#[test]
fn a_handle_is_gone_where_a_replica_without_the_semaphore_takes_over() {
    let mut both = Both::start();
    let grant = both.granted("a");
    both.run_id = "replica";
    both.lets_pass(20);
    both.forgets_all();
    both.is_gone("a", grant);
}

/// The replica has the state from before the grant, and so it knows that it lacks something.
#[test]
fn a_handle_is_put_back_where_a_replica_has_the_semaphore_without_the_grant() {
    let mut both = Both::start();
    both.granted("a");
    let unknown = Grant { token: both.now_us + 1_000, slot: 1 };
    both.run_id = "replica";
    both.lets_pass(20);
    assert_eq!(both.renewed_by_handle("b", unknown), RenewOutcome::Held);
}

/// Also if the only other trace of the semaphore is one of its keys.
#[test]
fn a_handle_is_put_back_where_a_part_of_the_keys_has_vanished() {
    for key in [0, 2] {
        let mut both = Both::start();
        let grants = ["a", "b", "c"].map(|name| (name, both.granted(name)));
        let gone = both.keys[key].clone();
        both.call(&["DEL", &gone]);
        let part = [Part::State, Part::Leases][key / 2];
        both.state = both.state.take().and_then(|state| state.lose(&[part]));
        both.lets_pass(20);
        assert_eq!(both.renewed_by_handle("a", grants[0].1), RenewOutcome::Held);
        assert!(both.adopts("b", grants[1].1));
        both.same(&release("a"));
        both.lets_pass(LEASE_MS - 1_000);
        both.granted("d");
        both.is_gone("c", grants[2].1);
    }
}
