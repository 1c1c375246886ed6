//! `docs/operate/runbook.md`: its commands, in the situations that they are for, print the output that it
//! shows.
//!
//! The first line of a block has words that its readers do not see. After `situation=NAME` a situation
//! begins: its blocks, up to the next heading or situation, are run in it one after the other. After
//! `not run: REASON` is a block that the tests cannot run.

mod situations;

use std::collections::BTreeMap;

use permits_testkit::documents::{self, Block};

use crate::world::{Step, World, steps};

/// The blocks of the document.
#[derive(Debug, Default)]
struct Page {
    /// The steps of each situation, by its name.
    situations: BTreeMap<String, Vec<Step>>,
    /// The reasons of the blocks that are not run, in their order.
    not_run: Vec<String>,
}

impl Page {
    #[track_caller]
    fn read() -> Self {
        let (text, mut page, mut last) = (documents::read("operate/runbook.md"), Self::default(), None);
        for Block { heading, language, attributes, text } in documents::blocks(&text) {
            assert_eq!(language, "console", "below {heading:?}");
            let steps = steps(text.lines());
            if let Some(reason) = attributes.strip_prefix("not run: ") {
                page.not_run.push(reason.to_owned());
            } else if let Some(name) = attributes.strip_prefix("situation=") {
                assert!(page.situations.insert(name.to_owned(), steps).is_none(), "{name} is there twice");
                last = Some((heading, name));
            } else {
                let name = last.filter(|(of, _)| *of == heading && attributes.is_empty());
                let (_, name) = name.unwrap_or_else(|| panic!("{steps:?} are in no situation"));
                page.situations.get_mut(name).expect("it was inserted").extend(steps);
            }
        }
        page
    }
}

/// Makes a test of each situation: a function that builds it.
macro_rules! situations {
    ($($situation:ident,)*) => {
        $(#[test]
        fn $situation() {
            let page = Page::read();
            let steps = page.situations.get(stringify!($situation)).expect("the page has it");
            let mut world = World::of_page();
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
    old_metrics,
}

/// A reason for which a block is not run is a choice: a new one is added here.
#[test]
fn few_blocks_are_not_run() {
    let reasons = ["the journal of systemd", "the journal of systemd", "a running Prometheus"];
    assert_eq!(Page::read().not_run, reasons);
}
