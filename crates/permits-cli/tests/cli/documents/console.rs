//! The commands in `console` blocks print the output that the pages show.
//!
//! The blocks of a page are run one after the other, on a local store. After `situation=NAME` a situation of
//! an operator begins: its blocks, up to the next heading or situation, are run in it.

use std::collections::BTreeMap;

use permits_testkit::documents::{self, Page, Run};

use super::situations;
use crate::world::{Step, World, steps};

/// The commands of the documents.
#[derive(Default)]
struct Commands {
    /// The commands of each page, by its path, that are in no situation.
    pages: BTreeMap<String, Vec<Step>>,
    /// The commands of each situation, by its name.
    situations: BTreeMap<String, Vec<Step>>,
}

impl Commands {
    #[track_caller]
    fn read() -> Self {
        let (pages, mut all) = (documents::pages(), Self::default());
        for page in &pages {
            all.add(page);
        }
        all
    }

    #[track_caller]
    fn add(&mut self, page: &Page) {
        let mut last = None;
        for block in page.blocks().filter(|block| block.language == "console") {
            let name = match block.run().unwrap_or_else(|| panic!("{block:?}")) {
                Run::Situation(name) => {
                    assert!(!self.situations.contains_key(name), "{name} is there twice");
                    last = Some((block.heading, name));
                    Some(name)
                }
                Run::Alone => last.filter(|(heading, _)| *heading == block.heading).map(|(_, name)| name),
                _ => continue,
            };
            let commands = match name {
                Some(name) => self.situations.entry(name.to_owned()),
                None => self.pages.entry(page.path.clone()),
            };
            commands.or_default().extend(steps(block.text.lines()));
        }
    }
}

#[test]
fn the_commands_of_a_page_print_what_it_shows() {
    let pages = Commands::read().pages;
    assert!(pages.len() > 4, "they are found: {:?}", pages.keys());
    for (page, steps) in pages {
        println!("{page}");
        World::local().walk(steps);
    }
}

/// Makes a test of each situation: a function that builds it.
macro_rules! situations {
    ($($situation:ident,)*) => {
        $(#[test]
        fn $situation() {
            let mut all = Commands::read().situations;
            let mut world = World::of_page();
            situations::$situation(&mut world);
            world.walk(all.remove(stringify!($situation)).expect("a page has it"));
        })*

        #[test]
        fn each_situation_of_the_pages_has_a_test() {
            let mut tested = [$(stringify!($situation)),*];
            tested.sort_unstable();
            assert_eq!(Commands::read().situations.into_keys().collect::<Vec<_>>(), tested);
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
    healthy_store,
    store_down,
    store_slow,
    failover,
    memory_full,
    evicting,
    everything_deleted,
    revoked,
    serve_down,
    store_of_serve_down,
    many_semaphores,
    unreadable,
    old_metrics,
    nightly_held,
    two_tenants,
}
