//! `docs/runbook.md`: its commands, in the situations that they are for, print the output that it shows.

mod page;
mod situations;
mod world;

use page::Page;
use world::World;

/// Makes a test of each situation: a function that builds it.
macro_rules! situations {
    ($($situation:ident,)*) => {
        $(#[test]
        fn $situation() {
            let page = Page::read();
            let steps = page.situations.get(stringify!($situation)).expect("the page has it");
            let mut world = World::new();
            situations::$situation(&mut world);
            world.run_steps(steps);
        })*

        #[test]
        fn each_situation_of_the_page_has_a_test() {
            let mut tested = [$(stringify!($situation)),*];
            tested.sort_unstable();
            assert_eq!(Page::read().situations.into_keys().collect::<Vec<_>>(), tested);
        }
    };
}

situations! {
    all_held,
    paused,
    closed,
    pinned_low,
    recovering,
    heavy_request,
    hanging_holder,
    cooling,
    kept,
    another_prefix,
    declared_otherwise,
    long_waits,
    many_requests_of_one_client,
    lost,
    lost_with_the_store,
    killed,
    healthy_store,
    store_down,
    store_slow,
    store_restarted,
    failover,
    memory_full,
    evicting,
    key_deleted,
    everything_deleted,
    pinned,
    out_of_service,
    revoked,
    serve_down,
    serve_up,
    store_of_serve_down,
    many_semaphores,
    unreadable,
    old_textfile,
}

/// A reason for which a block is not run is a choice: a new one is added here.
#[test]
fn few_blocks_are_not_run() {
    let reasons = ["the journal of systemd", "the journal of systemd", "a running Prometheus"];
    assert_eq!(Page::read().not_run, reasons);
}
