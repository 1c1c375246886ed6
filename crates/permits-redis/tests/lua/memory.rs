//! A server without free memory.

use permits_core::model;
use permits_core::protocol::{Answers, LimitChange, Operation, ReleaseOutcome, RenewOutcome};
use permits_store::StoreError;

use crate::fixture::{Both, Scene, acquire, change_limit, close_line, holder, id, pause, release, renew};

#[test]
fn without_memory_nothing_is_acquired_and_nothing_half_done() {
    for scene in [Scene::Used, Scene::Full, Scene::Lined] {
        nothing_is_acquired(&mut Both::in_scene(scene));
    }
}

fn nothing_is_acquired(both: &mut Both) {
    both.fill_memory();
    for operation in [acquire(&["new"]), acquire(&["a"]), acquire(&["new", "a", "c"])] {
        let error = both.execute(&operation).expect_err("there is no memory");
        assert!(matches!(error, StoreError::OutOfMemory { .. }), "{error:?}");
        both.unchanged();
    }
    both.free_memory();
    both.same(&acquire(&["new"]));
}

#[test]
fn without_memory_a_new_semaphore_is_not_begun() {
    let mut both = Both::start();
    both.fill_memory();
    let error = both.execute(&acquire(&["a"])).expect_err("there is no memory");
    assert!(matches!(error, StoreError::OutOfMemory { .. }), "{error:?}");
    both.unchanged();
    both.free_memory();
    both.same(&acquire(&["a"]));
}

#[test]
fn without_memory_permits_are_kept_freed_and_handed_on() {
    for scene in [Scene::Full, Scene::Lined] {
        permits_are_kept_freed_and_handed_on(&mut Both::in_scene(scene));
    }
}

fn permits_are_kept_freed_and_handed_on(both: &mut Both) {
    both.fill_memory();
    both.same(&renew("b", None));
    both.same(&renew("c", None));
    assert_eq!(both.same(&release("a")), Answers::Release(vec![ReleaseOutcome::Held]));
    both.same(&pause("p2", true));
    both.same(&Operation::Revoke {
        origin: id("r2").into(),
        holder: holder("b"),
        cooling: None,
        reason: "late".into(),
    });
    both.same(&pause("p3", false));
    both.same(&close_line("c2", Some("moved")));
    both.same(&close_line("c3", None));
    both.same(&change_limit("l3", LimitChange::Set(1)));
    both.same(&change_limit("l4", LimitChange::Unpin));
    both.same(&Operation::Inspect { max: 10 });
    // Leases end as usual.
    both.free_memory();
    both.set_time(both.now_us + 3_500_000);
    both.fill_memory();
    both.same(&renew("c", None));
    both.same(&Operation::Inspect { max: 10 });
}

#[test]
fn without_memory_a_forgotten_permit_is_put_back() {
    let mut both = Both::in_scene(Scene::Full);
    let entry = &both.state.as_ref().expect("there is one").entries[&holder("b")];
    let model::EntryState::Holding(grant) = entry.place else { panic!("b holds: {entry:?}") };
    let now_us = both.now_us + 1_000_000;
    both.call(&["FLUSHALL"]);
    both.state = None;
    both.set_time(now_us);
    both.fill_memory();
    assert_eq!(both.same(&renew("b", Some(grant))), Answers::Renew(vec![RenewOutcome::Held]));
}
