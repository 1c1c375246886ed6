//! The commands of `docs/runbook.md`, and the output that they show.
//!
//! The first line of a block has words that its readers do not see. After `situation=NAME` a situation
//! begins: its blocks, up to the next heading or situation, are run in it one after the other. After
//! `not run: REASON` is a block that the tests cannot run.

use std::collections::BTreeMap;

use permits_testkit::documents;

/// A command, and its output.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) command: String,
    pub(super) output: String,
}

/// The blocks of the document.
#[derive(Debug, Default)]
pub(super) struct Page {
    /// The steps of each situation, by its name.
    pub(super) situations: BTreeMap<String, Vec<Step>>,
    /// The reasons of the blocks that are not run, in their order.
    pub(super) not_run: Vec<String>,
}

impl Page {
    #[track_caller]
    pub(super) fn read() -> Self {
        Self::parse(&documents::read("runbook.md"))
    }

    #[track_caller]
    fn parse(text: &str) -> Self {
        let mut page = Self::default();
        let mut situation = None;
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if line.starts_with('#') {
                situation = None;
            }
            let Some(kind) = line.strip_prefix("```") else { continue };
            let words = kind.strip_prefix("console").unwrap_or_else(|| panic!("{kind:?} is not run")).trim();
            let steps = steps(lines.by_ref().take_while(|line| *line != "```"));
            assert!(!steps.is_empty(), "a block of {situation:?} has no commands");
            if let Some(reason) = words.strip_prefix("not run: ") {
                page.not_run.push(reason.to_owned());
                continue;
            }
            if !words.is_empty() {
                let name = words.strip_prefix("situation=").unwrap_or_else(|| panic!("{words:?}"));
                assert!(!page.situations.contains_key(name), "{name} is there twice");
                situation = Some(name);
            }
            let name = situation.unwrap_or_else(|| panic!("{steps:?} are in no situation"));
            page.situations.entry(name.to_owned()).or_default().extend(steps);
        }
        page
    }
}

/// The commands of a block: each begins with `$ `, and its output follows.
#[track_caller]
fn steps<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for line in lines {
        if let Some(command) = line.strip_prefix("$ ") {
            steps.push(Step { command: command.to_owned(), output: String::new() });
        } else {
            let step = steps.last_mut().unwrap_or_else(|| panic!("no command is above {line:?}"));
            step.output += line;
            step.output.push('\n');
        }
    }
    steps
}

#[test]
fn a_block_belongs_to_its_situation_or_is_marked() {
    let page = Page::parse(
        "# Page\n```console situation=one\n$ a b\nc\n$ d\n```\n```console not run: far away\n$ e\n```\n\
         ```console\n$ f\n```\n",
    );
    let commands = |name: &str| -> Vec<(&str, &str)> {
        page.situations[name].iter().map(|step| (&*step.command, &*step.output)).collect()
    };
    assert_eq!(commands("one"), [("a b", "c\n"), ("d", ""), ("f", "")]);
    assert_eq!(page.not_run, ["far away"]);
    let one = "```console situation=one\n$ a\n```\n";
    for wrong in [
        "```console\n$ a\n```",
        "```sh\n$ a\n```",
        "```console not run\n$ a\n```",
        "```console situation=one\na\n```",
        "```console situation=one\n```",
        &format!("{one}# Next\n```console\n$ b\n```"),
        &format!("{one}{one}"),
    ] {
        assert!(std::panic::catch_unwind(|| Page::parse(wrong)).is_err(), "{wrong}");
    }
}
