//! A terminal that the command shares with other processes of its job: a pager, a chooser, another run.
//!
//! `permits` must not be stopped while its command runs, because nothing would renew the permit, and another
//! holder would be granted beside the command.

use std::fs;
use std::path::Path;
use std::process::Command;

use permits_testkit::skip;
use permits_testkit::wait::{self, SILENCE};
use rustix::process::Signal;

use crate::support::{Holder, Local, Store, counts, fresh, on_both_stores, output, run, send, state};
use crate::terminal::{CTRL_C, CTRL_Z, Terminal};

on_both_stores! {
    a_neighbour_in_the_pipeline_may_use_the_terminal,
    a_command_and_its_neighbour_take_turns_at_the_terminal,
    runs_beside_and_within_each_other_take_turns_at_the_terminal,
}

const RUN: &str = "\"$P\" run semaphore --limit 2 --recovery off";

/// Writes until its reader ends.
const WRITES: &str = "trap 'exit 0' PIPE; while echo line; do sleep 0.02; done 2> /dev/null";

/// Reads a line of the terminal, as a chooser does, which stops its group if that is in the background.
const CHOOSES: &str = "read line; read answer < /dev/tty; echo \"chosen: $answer\" > /dev/tty";

/// A shell in a directory with these scripts.
struct Session {
    terminal: Terminal,
    directory: tempfile::TempDir,
}

impl Session {
    #[track_caller]
    fn start(store: &dyn Store, scripts: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        for (name, script) in scripts {
            fs::write(directory.path().join(name), script).expect("it is ours");
        }
        let mut terminal = Terminal::shell(store);
        terminal.types(&format!("cd {}; mkfifo gate\n", directory.path().display()));
        terminal.shows("prompt> ");
        Self { terminal, directory }
    }

    /// Types a line, and leaves its echo behind.
    #[track_caller]
    fn types(&mut self, line: &str) {
        self.terminal.types(&format!("{line}\n"));
        self.terminal.shows("\n");
    }

    /// Waits until the shell shows its job as stopped. The shell reports jobs only before a prompt.
    #[track_caller]
    fn waits_until_stopped(&mut self) {
        let stopped = || {
            self.types("jobs; echo listed");
            self.terminal.shows("listed");
            self.terminal.screen().contains("Stopped")
        };
        if !wait::until(stopped) {
            // Show what each process of the job is doing.
            self.types("ps -o pid,pgid,stat,args");
            self.terminal.shows("prompt> ");
            panic!("{}", self.terminal.screen());
        }
    }

    /// Continues the stopped job of a command and a chooser, answers the chooser, and ends the shell.
    #[track_caller]
    fn continues_both(mut self) {
        self.types("fg");
        self.types("both");
        self.terminal.shows("chosen: both");
        self.terminal.shows("prompt> ");
        self.terminal.types("exit 0\n");
        assert_eq!(self.terminal.finish(), 0);
    }

    /// Ends the shell, which has no stopped jobs.
    #[track_caller]
    fn finish(mut self) {
        self.types("jobs; echo none' 'left");
        self.terminal.shows("none left");
        let screen = self.terminal.screen();
        assert!(!screen.contains("Stopped"), "{screen}");
        self.terminal.types("exit 0\n");
        assert_eq!(self.terminal.finish(), 0);
    }
}

fn a_neighbour_in_the_pipeline_may_use_the_terminal(store: &dyn Store, _: &str) {
    for line in [
        format!("{RUN} -- sh writes | sh chooses"),
        format!("{RUN} -- sh writes > >(sh chooses)"),
        format!("{RUN} -- sh writes | {RUN} -- sh chooses"),
        format!("{RUN} -- sh writes < /dev/null | sh chooses"),
        format!("stty tostop; {RUN} -- sh writes | sh chooses; stty -tostop"),
        // A script has one group for itself and all that it starts.
        format!("sh -c '{RUN} -- sh writes | sh chooses; exit'"),
        format!("script -qec '{RUN} -- sh writes | sh chooses' /dev/null"),
    ] {
        may_use_the_terminal(store, &line);
    }
}

#[track_caller]
fn may_use_the_terminal(store: &dyn Store, line: &str) {
    let mut session = Session::start(store, &[("writes", WRITES), ("chooses", CHOOSES)]);
    session.types(line);
    assert!(wait::until(|| counts(store, "semaphore").0 > 0), "{line}: {}", session.terminal.screen());
    session.types("the second");
    session.terminal.shows("chosen: the second");
    session.terminal.shows("prompt> ");
    assert_eq!(counts(store, "semaphore"), (0, 0), "{line}");
    session.finish();
}

/// The first reads two lines of the terminal, and between them the second reads one.
const TURNS: [(&str, &str); 2] = [
    ("command", "read answer; echo \"first: $answer\"; read go < gate; read answer; echo \"third: $answer\""),
    (
        "neighbour",
        "read line; echo \"$line\"; read answer < /dev/tty; echo \"second: $answer\"; echo go > gate; cat",
    ),
];

#[track_caller]
fn take_turns(store: &dyn Store, line: &str) {
    let mut session = Session::start(store, &TURNS);
    session.types(line);
    for (order, answer) in [("first", "one"), ("second", "two"), ("third", "three")] {
        session.types(answer);
        session.terminal.shows(&format!("{order}: {answer}"));
    }
    session.terminal.shows("prompt> ");
    assert_eq!(counts(store, "semaphore"), (0, 0), "{line}");
    session.finish();
}

fn a_command_and_its_neighbour_take_turns_at_the_terminal(store: &dyn Store, _: &str) {
    take_turns(store, &format!("{RUN} -- sh command | sh neighbour"));
}

/// The processes take turns only if none of them is stopped alone, and the job goes on.
fn runs_beside_and_within_each_other_take_turns_at_the_terminal(store: &dyn Store, _: &str) {
    take_turns(store, &format!("{RUN} -- sh command | {RUN} -- sh neighbour"));
    // The shell keeps the process that the outer run watches.
    take_turns(store, &format!("{RUN} -- sh -c '{RUN} -- sh command | sh neighbour; exit'"));
}

/// The inner run is held up, so that the outer run sees its command stopped before the command is continued.
#[test]
fn a_run_is_not_stopped_while_one_within_it_has_the_terminal() {
    let store = Local::new();
    let command = "echo $PPID > inner; read answer; echo \"first: $answer\"; read go < gate";
    let neighbour = "read line; echo \"$line\"; kill -STOP $(cat inner); echo $$ > second
        read answer < /dev/tty; echo \"second: $answer\"; echo go > gate; cat";
    let mut session = Session::start(&store, &[("command", command), ("neighbour", neighbour)]);
    let within = format!("echo $PPID $$ > outer; {RUN} -- sh command | sh neighbour; exit");
    session.types(&format!("{RUN} -- sh -c '{within}'"));
    session.types("one");
    session.terminal.shows("first: one");
    let directory = session.directory.path().to_owned();
    let numbers = |file: &str| -> Vec<u32> {
        let text = fs::read_to_string(directory.join(file)).unwrap_or_default();
        text.split_whitespace().map(|number| number.parse().expect("a process id")).collect()
    };
    let outer = numbers("outer");
    assert!(wait::until(|| state(outer[1]) == 'T'), "{}", session.terminal.screen());
    assert!(!wait::within(SILENCE, || state(outer[0]) == 'T'), "{}", session.terminal.screen());
    // The neighbour asks again, since the first signal is lost for a stopped process.
    send(numbers("inner")[0], Signal::CONT);
    send(numbers("second")[0], Signal::CONT);
    session.types("two");
    session.terminal.shows("second: two");
    session.terminal.shows("prompt> ");
    session.finish();
}

#[test]
fn a_job_in_the_background_is_stopped_with_its_command() {
    let (server, name) = fresh();
    // The command beats before it writes: its first line makes the neighbour ask the terminal, which stops
    // the whole job.
    let beats = "trap 'exit 0' PIPE; while echo . >> beats && echo line; do sleep 0.02; done 2> /dev/null";
    let mut session = Session::start(&server, &[("beats", beats), ("chooses", CHOOSES)]);
    session.types("pwd; echo ';'");
    session.terminal.shows("\r\n;");
    let screen = session.terminal.screen();
    let directory = screen.lines().map(Path::new).rfind(|line| line.is_dir()).expect("pwd has shown it");
    session.types(&format!("{RUN} -- sh beats | sh chooses &"));
    let length = || fs::read(directory.join("beats")).unwrap_or_default().len();
    assert!(wait::until(|| length() > 0), "{}", session.terminal.screen());
    session.waits_until_stopped();
    // The command is stopped when permits is: it beats no more.
    let before = length();
    assert_eq!(output(&mut run(&server, &name, "--limit 2", "echo ran")).stdout, "ran\n");
    assert_eq!(length(), before);
    session.continues_both();
}

/// A shell that starts a program by vfork cannot stop before its child has called exec, which cannot call it
/// while it is stopped.
#[test]
fn a_command_that_is_about_to_start_a_program_is_stopped() {
    if skip::without_program("python3") {
        return;
    }
    let (server, _) = fresh();
    // Python starts programs by vfork. Its child looks in all of these directories, each a long way over
    // symbolic links, before it gives up, which takes more than a second. The neighbour waits until it is on
    // its way.
    let starts = "import os, signal, subprocess, time
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
os.mkdir('here')
os.symlink('here/../' * 500, 'way')
print('line', flush=True)
try:
    subprocess.run(['none'], env={'PATH': ':'.join(['way/' * 30 + 'none'] * 1500)})
except FileNotFoundError:
    while True:
        print('line', flush=True)
        time.sleep(0.02)";
    let chooses = CHOOSES.replace("read line;", "read line; sleep 0.2;");
    let mut session = Session::start(&server, &[("starts", starts), ("chooses", &chooses)]);
    session.types(&format!("{RUN} -- python3 starts | sh chooses &"));
    session.waits_until_stopped();
    session.continues_both();
}

/// Whether the command is in the foreground at its start. The neighbour is there before the permit is
/// granted, since a shell starts the members of a pipeline one after the other.
#[test]
fn a_command_gets_the_terminal_at_once_only_without_neighbours() {
    let (server, name) = fresh();
    // The fifth number is the group of the process, and the eighth the one in the foreground.
    let shows =
        "set -- $(cat /proc/$$/stat); test $5 = $8 && echo in front > /dev/tty || echo behind > /dev/tty";
    let mut session = Session::start(&server, &[("shows", shows)]);
    for (neighbour, place) in [("", "in front"), ("| sh -c 'echo he''re; cat'", "behind")] {
        let holder = Holder::start(&server, &name, "--limit 1");
        session.types(&format!("\"$P\" run {name} -- sh shows {neighbour}"));
        session.terminal.shows("first in line");
        if !neighbour.is_empty() {
            assert!(wait::until(|| session.terminal.screen().contains("here")));
        }
        holder.release();
        session.terminal.shows(place);
        session.terminal.shows("prompt> ");
    }
    session.finish();
}

#[test]
fn keys_reach_a_command_that_shares_the_foreground() {
    let store = Local::new();
    let mut session = Session::start(&store, &[("writes", "echo ready > /dev/tty; exec sleep 1000")]);
    session.types(&format!("{RUN} -- sh writes | cat"));
    session.terminal.shows("ready");
    session.terminal.types(CTRL_Z);
    session.terminal.shows("Stopped");
    session.terminal.shows("prompt> ");
    session.types("fg");
    session.terminal.shows("cat");
    session.terminal.types(CTRL_C);
    session.terminal.shows("prompt> ");
    session.types("echo \"codes ${PIPESTATUS[*]}.\"");
    session.terminal.shows("codes 130.");
    assert!(wait::until(|| counts(&store, "semaphore") == (0, 0)));
    session.terminal.types("exit 0\n");
    assert_eq!(session.terminal.finish(), 0);
}

/// As `sudo permits run … | less` is. (A command that reads the terminal, too, would share what is typed with
/// its neighbour: a `sudo` with a terminal of its own reads on, with `permits` or without.)
#[test]
fn a_neighbour_of_a_run_in_sudo_may_use_the_terminal() {
    if skip::unless_it_runs(Command::new("sudo").args(["-n", "true"])) {
        return;
    }
    let line = format!("sudo -n --preserve-env=P,PERMITS_URL {RUN} -- sh writes | sh chooses");
    may_use_the_terminal(&Local::new(), &line);
}
