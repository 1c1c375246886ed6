//! Keys of a semaphore that have vanished, by eviction or by hand.

use permits_core::model::Part;
use permits_core::protocol::{
    AcquireOutcome, AcquireRequest, Answers, LimitChange, Operation, PermitTerms, ReleaseOutcome,
    RenewOutcome, RenewRequest,
};

use crate::fixture::{
    Both, Scene, acquire, acquire_among, change_limit, close_line, every_operation, release, renew, renewal,
    request,
};

/// Every subset of the parts of a semaphore, except the empty one.
fn subsets() -> impl Iterator<Item = Vec<Part>> {
    let parts = [Part::State, Part::Queue, Part::Leases, Part::Free, Part::Lanes];
    (1..1 << parts.len()).map(move |bits: usize| {
        let chosen = parts.iter().enumerate().filter(|(number, _)| bits & (1 << number) != 0);
        chosen.map(|(_, part)| *part).collect()
    })
}

impl Both {
    /// Deletes the keys of these parts.
    fn lose(&mut self, parts: &[Part]) {
        for part in parts {
            let key = self.keys[*part as usize].clone();
            self.call(&["DEL", &key]);
        }
        self.state = self.state.take().and_then(|state| state.lose(parts));
    }
}

#[test]
fn any_subset_of_the_keys_may_vanish_before_any_command() {
    let mut both = Both::start();
    for parts in subsets() {
        for operation in every_operation() {
            for scene in Scene::ALL {
                if parts.contains(&Part::Lanes) && scene != Scene::Laned {
                    continue; // No other scene has this key.
                }
                both.again();
                both.play(scene);
                both.lose(&parts);
                both.same(&operation);
                both.same(&renew("b", None));
                both.same(&acquire(&["e"]));
            }
        }
    }
}

#[test]
fn a_line_stays_closed_for_its_reason_when_a_key_vanishes() {
    let mut both = Both::start();
    both.same(&acquire(&["a"]));
    both.same(&close_line("c1", Some("moved")));
    both.lose(&[Part::Leases]);
    // The first command notices the loss, and the second reads what it has stored.
    for _ in 0..2 {
        both.same(&acquire(&["b"]));
        let Answers::Inspect(seen) = both.same(&Operation::Inspect { max: 1 }) else { unreachable!() };
        assert_eq!(seen.closed.as_deref(), Some("moved"));
    }
}

#[test]
fn any_subset_of_the_keys_of_a_crowd_may_vanish() {
    let names: Vec<String> = (0..300).map(|number| format!("h{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut both = Both::start();
    for parts in subsets().filter(|parts| !parts.contains(&Part::Lanes)) {
        both.again();
        both.same(&change_limit("l1", LimitChange::Set(200)));
        both.same(&acquire_among(&names, 1_000));
        both.same(&release("h7"));
        both.lose(&parts);
        let held = both.state.as_ref().is_some_and(|state| state.damage.is_none());
        let Answers::Inspect(seen) = both.same(&Operation::Inspect { max: 10 }) else { unreachable!() };
        assert_eq!(seen.held, if held { 200 } else { 0 }, "{parts:?}");
        both.same(&renew("h1", None));
        both.same(&acquire_among(&names, 1_000));
        both.set_time(both.now_us + 4_000_000);
        both.same(&Operation::Renew(Vec::new()));
        both.same(&Operation::Renew(Vec::new()));
        both.same(&Operation::Renew(Vec::new()));
    }
}

/// Terms by which a grant counts for a minute.
fn counting() -> PermitTerms {
    PermitTerms { at_least_ms: 60_000, ..request("a").terms }
}

/// A late renewal finds that the permit was put back, and has ended: it is lost, and no renewal brings it
/// back.
#[test]
fn a_grant_that_was_put_back_and_cools_is_not_put_back_again() {
    let mut both = Both::start();
    let acquire = Operation::Acquire {
        queue_max: 1,
        requests: vec![AcquireRequest { terms: counting(), ..request("a") }],
    };
    let Answers::Acquire(granted) = both.same(&acquire) else { unreachable!() };
    let AcquireOutcome::Granted(grant) = granted[0] else { panic!("it is free") };
    both.call(&["FLUSHALL"]);
    both.state = None;
    both.set_time(both.now_us + 1_000);
    let renew = Operation::Renew(vec![RenewRequest { terms: counting(), ..renewal("a", Some(grant)) }]);
    both.same(&renew_nothing());
    assert_eq!(both.same(&renew), Answers::Renew(vec![RenewOutcome::Held]));
    assert_eq!(both.same(&release("a")), Answers::Release(vec![ReleaseOutcome::Held]));
    assert_eq!(both.same(&renew), Answers::Renew(vec![RenewOutcome::Lost]));
}

/// Begins an era.
fn renew_nothing() -> Operation {
    Operation::Renew(Vec::new())
}
