//! The commands of the pages that a new user walks through print what the pages show.
//!
//! The blocks of a page are run one after the other, on one store. A command that ends in ` &` is started,
//! and holds or waits when the next one is run; `$!` is its process id.

use permits_testkit::documents;

use crate::cookbook::log_of;
use crate::world::{Step, World, steps};

/// Runs each `console` block of a page, and returns the number of commands.
#[track_caller]
fn walk(page: &str, world: &mut World) -> usize {
    let text = documents::read(page);
    let blocks = documents::blocks(&text).filter(|block| block.language == "console");
    let (mut started, mut commands) = (0, 0);
    for Step { command, output } in blocks.flat_map(|block| steps(block.text.lines())) {
        commands += 1;
        if command.starts_with("permits serve") {
            world.serve("");
            started += 1;
        } else if let Some(program) = command.strip_suffix(" &") {
            world.call(&format!("& {program}"));
            started += 1;
        } else {
            world.run_steps(&[Step { command: command.replace("$!", &format!("$P{started}")), output }]);
        }
    }
    commands
}

#[test]
fn the_commands_of_the_pages_of_tasks_print_what_the_pages_show() {
    for (page, commands) in [("waiting", 2), ("limits", 4), ("pause", 6), ("slots", 1)] {
        assert_eq!(walk(&format!("use/{page}.md"), &mut World::local()), commands, "{page}");
    }
}

#[test]
fn the_first_ten_minutes_are_as_the_page_says() {
    assert_eq!(walk("start.md", &mut World::local()), 8);
}

/// The blocks without output, of which each command runs a script to its end.
#[test]
fn the_scripts_of_the_pages_run_to_their_end() {
    for page in ["use/lanes.md", "use/newest.md", "use/rates.md", "use/several.md", "languages/shell.md"] {
        let text = documents::read(page);
        let blocks: Vec<_> = documents::blocks(&text).filter(|block| block.language == "sh").collect();
        assert!(!blocks.is_empty(), "{page}");
        for block in blocks {
            let scripts: Vec<&str> =
                block.text.split_whitespace().filter_map(|word| word.strip_prefix("./")).collect();
            let log = log_of(&format!("USER=app BRANCH=main\n{}\n", block.text), 1, &scripts);
            assert_eq!(log.lines().count(), 2 * scripts.len(), "{page}: {log}");
        }
    }
}
