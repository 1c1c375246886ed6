//! The programs in blocks with the words `run=languages.rs`, which use `permits hold` without a package: in
//! the languages that this machine has.

use std::fs;
use std::process::Command;

use permits_testkit::documents;
use permits_testkit::skip;
use tempfile::TempDir;

use crate::support::{Local, Running, Store, add_program, in_path, prepare, revoke, status, until_counts};

/// The programs: the kind of its block, the file to write it to, and the command that runs it.
const LANGUAGES: [(&str, &str, &[&str]); 3] = [
    ("python", "program.py", &["python3", "program.py"]),
    ("ruby", "program.rb", &["ruby", "program.rb"]),
    ("bash", "program.bash", &["bash", "program.bash"]),
];

/// The longest program, in lines.
const MAX_LINES: usize = 44;

/// The jobs of a program, and the limit that it declares.
const JOBS: usize = 4;
const LIMIT: i32 = 2;

/// A directory with a program, beside the work that it does.
struct Example {
    directory: TempDir,
    store: Local,
    command: &'static [&'static str],
}

impl Example {
    /// The program in this language; `None` if the machine does not have the language.
    #[track_caller]
    fn new((kind, file, command): (&str, &str, &'static [&'static str]), work: &str) -> Option<Self> {
        let block = program(kind);
        let lines = block.lines().count();
        assert!(lines <= MAX_LINES, "{kind} has {lines} lines");
        if skip::without_program(command[0]) {
            return None;
        }
        let (directory, store) = (TempDir::new().expect("a directory"), Local::new());
        add_program(directory.path(), "export.sh", work);
        fs::write(directory.path().join(file), block).expect("it can be written");
        let example = Self { directory, store, command };
        prepare(&example.store, "exports");
        Some(example)
    }

    fn start(&self) -> Running {
        let mut program = Command::new(self.command[0]);
        program.args(&self.command[1..]).current_dir(self.directory.path());
        Running::start(&mut in_path(program, &self.store.url()))
    }

    /// Demands that so many works have run, and at most [`LIMIT`] at once.
    #[track_caller]
    fn assert_kept_the_limit(&self, works: usize) {
        let (command, log) = (self.command, self.directory.path().join("log"));
        let (mut running, mut ran) = (0, 0);
        for line in fs::read_to_string(log).expect("the work was done").lines() {
            running += if line == "+" { 1 } else { -1 };
            ran += usize::from(line == "+");
            assert!(running <= LIMIT, "{command:?}: {running} at once");
        }
        assert_eq!((running, ran), (0, works), "{command:?}");
    }

    /// The process of the work, when it runs.
    #[track_caller]
    fn worker(&self) -> u32 {
        let pid = self.directory.path().join("pid");
        let pid = || fs::read_to_string(&pid).ok().and_then(|text| text.trim().parse().ok());
        let runs = permits_testkit::wait::until(|| pid().is_some());
        assert!(runs, "{:?}", self.command);
        pid().expect("it was written")
    }
}

/// The one program in this language.
#[track_caller]
fn program(language: &str) -> String {
    let pages = documents::pages();
    let blocks = documents::blocks_of(&pages, "languages.rs");
    let mut found = blocks.iter().filter(|block| block.language == language);
    let text = found.next().map(|block| block.text.to_owned() + "\n").expect("there is a program");
    assert!(found.next().is_none(), "there are several programs in {language}");
    text
}

#[test]
fn each_program_of_the_pages_is_run() {
    let pages = documents::pages();
    for block in documents::blocks_of(&pages, "languages.rs") {
        assert!(LANGUAGES.iter().any(|(kind, ..)| *kind == block.language), "{block:?}");
    }
}

#[test]
fn the_programs_keep_the_limit() {
    let work = "#!/bin/sh\necho + >>log\nsleep 0.2\necho - >>log\n";
    for language in LANGUAGES {
        let Some(example) = Example::new(language, work) else { continue };
        let output = example.start().finish();
        assert_eq!(output.code, 0, "{language:?}: {}{}", output.stdout, output.stderr);
        example.assert_kept_the_limit(JOBS);
        until_counts(&example.store, "exports", (0, 0));
    }
}

#[test]
fn the_programs_kill_the_work_whose_permit_is_lost() {
    // The first one works without an end, the others meanwhile.
    let work = "#!/bin/sh\nmkdir first 2>/dev/null || exit 0\necho $$ >pid\nexec sleep 1000\n";
    for language in LANGUAGES {
        let Some(example) = Example::new(language, work) else { continue };
        let program = example.start();
        let pid = example.worker();
        until_counts(&example.store, "exports", (1, 0));
        let holder = status(&example.store, "exports")["holders"][0]["holder"].clone();
        revoke(&example.store, "exports", holder.as_str().expect("a text"), "enough");
        let output = program.finish();
        assert_eq!(output.code, 1, "{language:?}: {}{}", output.stdout, output.stderr);
        assert!(permits_testkit::wait::until(|| !crate::support::is_alive(pid)));
    }
}

#[test]
fn the_programs_kill_their_works_when_permits_hold_is_killed() {
    let work = "#!/bin/sh\necho $$ >pid\nexec sleep 1000\n";
    for language in LANGUAGES {
        let Some(example) = Example::new(language, work) else { continue };
        let program = example.start();
        let pid = example.worker();
        until_counts(&example.store, "exports", (2, 2));
        let hold = status(&example.store, "exports")["holders"][0]["holder"].clone();
        // A name that is made for a holder has the process.
        let hold = hold.as_str().and_then(|holder| holder.split([':', '/']).nth(1)?.parse().ok());
        crate::support::send(hold.expect("a process"), rustix::process::Signal::KILL);
        let output = program.finish();
        assert_eq!(output.code, 1, "{language:?}: {}{}", output.stdout, output.stderr);
        assert!(permits_testkit::wait::until(|| !crate::support::is_alive(pid)));
    }
}
