//! A terminal: Ctrl-C, Ctrl-Z and `fg`, programs that read input, and the waiting line.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use permits_testkit::{ChildGuard, HANGS, Server, wait};
use rustix::fs::OFlags;
use rustix::process::Pid;
use rustix::pty::{grantpt, ptsname, unlockpt};
use rustix::termios::tcgetpgrp;

use crate::support::{
    Holder, Running, Store, code, counts, fresh, is_alive, on_a_server, output, permits, revoke, run, waiter,
    without_home,
};
use crate::top::view::View;

on_a_server! {
    the_line_is_shown_and_ctrl_c_leaves_it,
    the_line_is_erased_when_the_permit_comes,
    ctrl_c_reaches_the_command,
    ctrl_c_ends_the_calling_script,
    a_command_can_be_suspended_and_continued,
    a_command_suspended_beyond_its_lease_is_ended,
    a_revoked_command_ends_though_the_terminal_is_stopped,
    the_modes_of_the_terminal_are_restored_after_a_loss_alone,
}

pub(crate) const CTRL_C: &str = "\x03";
const CTRL_D: &str = "\x04";
const CTRL_S: &str = "\x13";
pub(crate) const CTRL_Z: &str = "\x1a";

/// A session on a terminal of its own, driven by the test.
pub(crate) struct Terminal {
    pub(crate) guard: ChildGuard,
    pub(crate) keyboard: File,
    pub(crate) screen: Arc<Mutex<Vec<u8>>>,
    /// Ends when no process has the terminal any more, and all output is on the screen.
    pub(crate) reader: JoinHandle<()>,
    /// The part of the screen that was read.
    seen: usize,
}

impl Terminal {
    #[track_caller]
    pub(crate) fn start(command: &mut Command) -> Self {
        let flags = i32::try_from(OFlags::NOCTTY.bits()).expect("small");
        let open = |path: &str| OpenOptions::new().read(true).write(true).custom_flags(flags).open(path);
        let keyboard = open("/dev/ptmx").expect("a terminal");
        grantpt(&keyboard).and_then(|()| unlockpt(&keyboard)).expect("it is ours");
        let path = ptsname(&keyboard, Vec::new()).expect("it has a name");
        let device = open(path.to_str().expect("text")).expect("it can be opened");
        let stdio = || device.try_clone().expect("it can be shared");
        command.stdin(stdio()).stdout(stdio()).stderr(stdio()).env("TERM", "xterm");
        let controlling = stdio();
        // SAFETY: the closure makes two system calls and nothing else.
        unsafe {
            command.pre_exec(move || {
                rustix::process::setsid()?;
                rustix::process::ioctl_tiocsctty(&controlling)?;
                Ok(())
            })
        };
        let guard = ChildGuard::spawn(command);
        let screen = Arc::new(Mutex::new(Vec::new()));
        let (mut output, buffer) = (keyboard.try_clone().expect("it can be shared"), screen.clone());
        let reader = thread::spawn(move || {
            let mut bytes = [0; 4096];
            // Ends with an error when the last process has closed the terminal.
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                buffer.lock().expect("not poisoned").extend_from_slice(&bytes[..count]);
            }
        });
        Self { guard, keyboard, screen, reader, seen: 0 }
    }

    /// A shell with job control.
    #[track_caller]
    pub(crate) fn shell(store: &dyn Store) -> Self {
        let mut shell = Command::new("bash");
        shell.args(["--norc", "--noprofile", "--noediting", "-i"]).env("PERMITS_URL", store.url());
        without_home(&mut shell);
        shell.env("PS1", "prompt> ").env("P", env!("CARGO_BIN_EXE_permits")).env_remove("PROMPT_COMMAND");
        let mut terminal = Self::start(&mut shell);
        terminal.shows("prompt> ");
        terminal
    }

    pub(crate) fn types(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("the terminal takes it");
    }

    /// Waits until `text` appears after the texts that were waited for before.
    #[track_caller]
    pub(crate) fn shows(&mut self, text: &str) {
        let found = wait::until(|| {
            let screen = self.screen.lock().expect("not poisoned");
            let rest = &screen[self.seen..];
            let place = rest.windows(text.len()).position(|window| window == text.as_bytes());
            self.seen += place.map_or(0, |place| place + text.len());
            place.is_some()
        });
        assert!(found, "no {text:?} in {:?} of {:?}", &self.screen()[self.seen..], self.screen());
    }

    /// Waits for these numbers of holders and of waiters.
    #[track_caller]
    fn until_counts(&self, store: &dyn Store, name: &str, expected: (usize, usize)) {
        let reached = wait::until(|| counts(store, name) == expected);
        assert!(reached, "{:?} instead of {expected:?}: {:?}", counts(store, name), self.screen());
    }

    /// The process group that gets what is typed.
    fn foreground(&self) -> Pid {
        tcgetpgrp(&self.keyboard).expect("there is a session")
    }

    pub(crate) fn screen(&self) -> String {
        String::from_utf8_lossy(&self.screen.lock().expect("not poisoned")).into_owned()
    }

    #[track_caller]
    pub(crate) fn finish(mut self) -> i32 {
        let status = self.guard.wait_timeout(HANGS);
        code(status.unwrap_or_else(|| panic!("still running: {:?}", self.screen())))
    }
}

fn the_line_is_shown_and_ctrl_c_leaves_it(store: &dyn Store, name: &str) {
    let _holder = Holder::start(store, name, "--limit 1 --holder web-1");
    let _ahead = waiter(store, name, "", (1, 1));
    let mut terminal = Terminal::start(&mut run(store, name, "", "echo ran"));
    // The first line comes with the first inspection, which takes a second or more on a busy machine.
    terminal.shows("permits: waiting ");
    terminal.shows(" s for \"semaphore\": 1 before you, 1 of 1 held by web-1");
    // The line is rewritten in place.
    terminal.shows("\r\x1b[K");
    terminal.types(CTRL_C);
    // The line is erased, and nothing more is written.
    terminal.shows("^C\r\x1b[K");
    assert_eq!(terminal.finish(), 130);
    assert_eq!(counts(store, name), (1, 1));
}

#[test]
fn the_line_fits_into_a_window_of_any_width() {
    let (server, name) = (Server::start(), "日本の輸出".repeat(8));
    let holder = "日本".repeat(20);
    let mut command = permits(&server.url(), ["run", &name, "--recovery", "off", "--limit", "1"]);
    command.args(["--holder", &holder, "sh", "-c", "echo ready; exec sleep 1000"]);
    let _holder = Running::until(&mut command, "ready");
    let mut view = View::start(permits(&server.url(), ["run", &name, "true"]));
    for columns in [80, 200, 60, 33, 20] {
        view.resize(24, columns);
        // The line is rewritten, and does not run over into a second line.
        view.until("line that ends in an ellipsis", |rows| {
            let (first, rest) = rows.split_first().expect("there are rows");
            // A line that the terminal itself cuts off has no ellipsis.
            let is_cut = first.starts_with("permits: waiting ") && first.ends_with('…');
            is_cut && rest.iter().all(String::is_empty)
        });
    }
}

fn the_line_is_erased_when_the_permit_comes(store: &dyn Store, name: &str) {
    let holder = Holder::start(store, name, "--limit 1");
    let mut terminal = Terminal::start(&mut run(store, name, "", "echo ran"));
    terminal.shows("first in line");
    holder.release();
    terminal.shows("\r\x1b[Kran\r\n");
    assert_eq!(terminal.finish(), 0);
}

#[test]
fn a_waiter_in_the_background_is_quiet() {
    let (server, name) = fresh();
    let holder = Holder::start(&server, &name, "--limit 1");
    let mut terminal = Terminal::shell(&server);
    terminal.types(&format!("\"$P\" run {name} -- echo r''an &\n"));
    terminal.until_counts(&server, &name, (1, 1));
    let waiter = output(&mut run(&server, &name, "--wait 2s", "true"));
    assert_eq!(waiter.code, 75, "time enough for a line to be shown");
    assert!(!terminal.screen().contains("permits: waiting"), "{}", terminal.screen());
    terminal.types("fg\n");
    terminal.shows("first in line");
    holder.release();
    terminal.shows("ran");
    terminal.shows("prompt> ");
    terminal.types("exit 0\n");
    assert_eq!(terminal.finish(), 0);
}

fn ctrl_c_reaches_the_command(store: &dyn Store, name: &str) {
    let script = "trap 'echo bye; exit 5' INT; echo ready; while :; do sleep 0.02; done";
    let mut terminal = Terminal::start(&mut run(store, name, "--limit 1", script));
    terminal.shows("ready");
    terminal.types(CTRL_C);
    terminal.shows("bye");
    assert_eq!(terminal.finish(), 5);

    let mut terminal = Terminal::start(&mut run(store, name, "--limit 1", "echo ready; exec sleep 1000"));
    terminal.shows("ready");
    terminal.types(CTRL_C);
    assert_eq!(terminal.finish(), 130);
    assert_eq!(counts(store, name), (0, 0));
}

fn ctrl_c_ends_the_calling_script(store: &dyn Store, name: &str) {
    let _holder = Holder::start(store, name, "--limit 2");
    // The command runs with weight 1, and waits with weight 2. The loop must not start another round in
    // either case.
    for weight in ["1", "2"] {
        let script = r#"for round in 1 2; do echo round $round
            "$P" run "$NAME" --weight "$WEIGHT" -- sh -c 'echo running; exec sleep 1000'; done; echo end"#;
        let mut shell = Command::new("bash");
        shell.args(["-c", script]).env("PERMITS_URL", store.url()).env("P", env!("CARGO_BIN_EXE_permits"));
        shell.env("NAME", name).env("WEIGHT", weight);
        let mut terminal = Terminal::start(&mut shell);
        terminal.shows(if weight == "1" { "running" } else { "first in line" });
        terminal.types(CTRL_C);
        let screen = terminal.screen.clone();
        assert_eq!(terminal.finish(), 130);
        let screen = String::from_utf8_lossy(&screen.lock().expect("not poisoned")).into_owned();
        assert!(!screen.contains("round 2") & !screen.contains("end"), "{screen}");
    }
}

fn a_command_can_be_suspended_and_continued(store: &dyn Store, name: &str) {
    let mut terminal = Terminal::shell(store);
    terminal.types(&format!("\"$P\" run {name} --limit 1 -- cat; echo ended $?\n"));
    terminal.until_counts(store, name, (1, 0));
    terminal.types("one\n");
    terminal.shows("one\r\none\r\n");
    for round in ["two", "three"] {
        terminal.types(CTRL_Z);
        terminal.shows("Stopped");
        terminal.shows("prompt> ");
        assert_eq!(counts(store, name), (1, 0), "it is held while it lasts");
        terminal.types("fg\n");
        terminal.shows("$P");
        terminal.types(&format!("{round}\n"));
        terminal.shows(&format!("{round}\r\n{round}\r\n"));
    }
    terminal.types(CTRL_D);
    terminal.shows("prompt> ");
    terminal.until_counts(store, name, (0, 0));
    terminal.types("exit 0\n");
    assert_eq!(terminal.finish(), 0);
}

fn a_command_suspended_beyond_its_lease_is_ended(store: &dyn Store, name: &str) {
    let mut terminal = Terminal::shell(store);
    // The script starts no process, because a shell stopped during a fork does not count as stopped, with or
    // without permits.
    let script = r#"trap "echo asked; exit 0" TERM; echo re""ady $$.; read x"#;
    terminal.types(&format!("\"$P\" run {name} --limit 1 --lease 2s -- sh -c '{script}'\n"));
    terminal.shows("ready ");
    terminal.shows(".");
    let screen = terminal.screen();
    let child = screen.rsplit("ready ").next().and_then(|rest| rest.split('.').next());
    let child: u32 = child.and_then(|pid| pid.parse().ok()).expect("a process id");
    terminal.types(CTRL_Z);
    terminal.shows("Stopped");
    terminal.shows("prompt> ");
    output(&mut run(store, name, "--lease 2s", "echo ran")).prints(0, "ran\n");
    terminal.types("fg\n");
    terminal.shows("asked");
    terminal.shows("prompt> ");
    let reported = wait::until(|| terminal.screen().contains("permits: the permit was lost"));
    assert!(reported, "{}", terminal.screen());
    assert!(!is_alive(child));
    terminal.types("echo code $?.\n");
    terminal.shows("code 76.");
    terminal.types("exit 0\n");
    assert_eq!(terminal.finish(), 0);
}

fn a_revoked_command_ends_though_the_terminal_is_stopped(store: &dyn Store, name: &str) {
    let options = "--limit 1 --holder h";
    let mut terminal = Terminal::start(&mut run(store, name, options, "echo ready $$.; exec sleep 1000"));
    terminal.shows("ready ");
    terminal.shows(".");
    let screen = terminal.screen();
    let child = screen.rsplit("ready ").next().and_then(|rest| rest.split('.').next());
    let child: u32 = child.and_then(|pid| pid.parse().ok()).expect("a process id");
    terminal.types(CTRL_S);
    revoke(store, name, "h", "");
    assert!(wait::until(|| !is_alive(child)), "the command has ended");
    assert_eq!(terminal.finish(), 76);
}

fn the_modes_of_the_terminal_are_restored_after_a_loss_alone(store: &dyn Store, name: &str) {
    let mut terminal = Terminal::shell(store);
    terminal.types("cd $(mktemp -d); stty -g > before\n");
    terminal.shows("prompt> ");
    let full_screen = "stty raw -echo; printf '\\033[?1049hre''ady'; exec sleep 1000";
    terminal.types(&format!("\"$P\" run {name} --limit 1 --holder h -- sh -c \"{full_screen}\"\n"));
    terminal.shows("\u{1b}[?1049hready");
    revoke(store, name, "h", "");
    terminal.shows("\u{1b}7\u{1b}[?1049l\u{1b}[?25h");
    terminal.shows("prompt> ");
    terminal.types("stty -g | cmp - before && echo the sa''me\n");
    terminal.shows("the same");
    // A command that ends by itself may leave other modes on purpose, so they stay.
    terminal.types(&format!("\"$P\" run {name} --limit 1 -- stty -echo\n"));
    terminal.shows("prompt> ");
    terminal.types("stty -g | cmp -s - before || echo cha''nged\n");
    terminal.shows("changed");
    terminal.types("rm before; rmdir $PWD; exit 0\n");
    assert_eq!(terminal.finish(), 0);
}

#[test]
fn a_command_in_the_background_waits_for_its_turn_to_read() {
    let (server, name) = fresh();
    let mut terminal = Terminal::shell(&server);
    terminal.types(&format!("\"$P\" run {name} --limit 1 -- cat &\n"));
    terminal.shows("prompt> ");
    terminal.until_counts(&server, &name, (1, 0));
    // The shell reports jobs only before a prompt.
    let stopped = || {
        terminal.types("jobs; echo listed\n");
        terminal.shows("echo listed");
        let from = terminal.seen;
        terminal.shows("listed");
        terminal.screen.lock().expect("not poisoned")[from..].windows(7).any(|window| window == b"Stopped")
    };
    assert!(wait::until(stopped));
    terminal.shows("prompt> ");
    terminal.types("fg\n");
    terminal.shows("-- cat");
    terminal.types("hello\n");
    terminal.shows("hello\r\nhello\r\n");
    terminal.types(CTRL_D);
    terminal.shows("prompt> ");
    terminal.types("exit 0\n");
    assert_eq!(terminal.finish(), 0);
}

#[test]
fn a_command_whose_input_is_redirected_gets_the_terminal_when_it_asks() {
    let (server, name) = fresh();
    let mut terminal = Terminal::shell(&server);
    let shell = terminal.foreground();
    let script = "echo re''ady; read answer < /dev/tty; echo \"the answer is $answer\"";
    terminal.types(&format!("\"$P\" run {name} --limit 1 -- sh -c '{script}' < /dev/null; echo code $?.\n"));
    terminal.shows("ready");
    terminal.types("yes\n");
    terminal.shows("the answer is yes");
    terminal.shows("code 0.");
    // Ctrl-Z reaches permits itself, and both are suspended.
    terminal.types(&format!("\"$P\" run {name} --limit 1 -- sh -c 'echo $$; exec sleep 1000' < /dev/null\n"));
    terminal.until_counts(&server, &name, (1, 0));
    terminal.types(CTRL_Z);
    terminal.shows("Stopped");
    terminal.shows("prompt> ");
    terminal.types("fg\n");
    terminal.shows("sleep 1000");
    // The shell prints the command before it gives it the terminal. Until then Ctrl-C is for the shell.
    assert!(wait::until(|| terminal.foreground() != shell));
    terminal.types(CTRL_C);
    terminal.shows("prompt> ");
    terminal.types("echo code $?.\n");
    terminal.shows("code 130.");
    terminal.types("exit 0\n");
    assert_eq!(terminal.finish(), 0);
}

#[test]
fn a_session_without_a_shell_cannot_be_suspended() {
    let (server, name) = fresh();
    let mut terminal =
        Terminal::start(&mut permits(&server.url(), ["run", &name, "--limit", "1", "--", "cat"]));
    terminal.until_counts(&server, &name, (1, 0));
    terminal.types(CTRL_Z);
    terminal.shows("^Z");
    // The session continues by itself, because no other process could continue it.
    terminal.types("hello\n");
    terminal.shows("hello\r\nhello\r\n");
    terminal.types(CTRL_D);
    assert_eq!(terminal.finish(), 0);
}
