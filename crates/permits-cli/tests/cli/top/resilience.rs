//! `permits top` with an unreachable store, under signals and Ctrl-Z, on terminals of other sizes, or without
//! one.

use std::process::Command;

use permits_testkit::wait;
use rustix::process::Signal;

use super::view::View;
use crate::support::{CLOSED_PORT, Holder, Running, assert_own_lines, fresh, output, permits, send};
use crate::terminal::{CTRL_C, CTRL_Z, Terminal};

#[test]
fn the_keys_work_while_the_store_is_unreachable() {
    let (server, name) = fresh();
    let _holder = Holder::start(&server, &name, "--limit 1 --holder web-1 --lease 1h");
    let mut view = View::top(&server, &[&name]);
    view.resize(24, 160);
    view.shows("> web-1");
    server.kill();
    view.shows(" ago: the store ");
    view.shows("> web-1");
    view.types("?");
    view.shows("q, Ctrl-C");
    view.types("?");
    view.shows("> web-1");
    server.restart();
    // The server keeps nothing on disk, and has lost the limit until a program declares it again.
    view.does_not_show(" ago: the store ");
    server.kill();
    view.shows(" ago: the store ");
    view.types("q");
    let (code, rest) = view.finish();
    assert_eq!(code, 0);
    // Warnings of the library do not damage the screen, and are not lost.
    assert_own_lines(&rest);
}

#[test]
fn an_unreachable_store_opens_no_screen() {
    let (code, said) = View::start(permits(CLOSED_PORT, ["top", "--store-timeout", "0"])).finish();
    assert_eq!(code, 69);
    assert!(said.starts_with("permits: the store cannot be reached"), "{said}");
}

#[test]
fn the_screen_can_be_left_while_the_store_is_silent() {
    let (server, name) = fresh();
    let mut view = View::top(&server, &[]);
    view.shows_row(&[">", &name, "0", "1", "0"]);
    server.pause();
    view.shows(" ago: the store ");
    view.types("q");
    assert_eq!(view.finish().0, 0);
    server.resume();
}

#[test]
fn the_terminal_is_restored_however_it_ends() {
    let (server, name) = fresh();
    let ended = |end: &dyn Fn(&mut View)| {
        let mut view = View::top(&server, &[]);
        view.shows(&format!("> {name}"));
        assert!(view.emulator.screen().alternate_screen() && view.emulator.screen().hide_cursor());
        end(&mut view);
        view.finish()
    };
    assert_eq!(ended(&|view| view.types("q")), (0, String::new()));
    assert_eq!(ended(&|view| view.types(CTRL_C)), (130, String::new()));
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129), (Signal::QUIT, 131)] {
        let by_signal = |view: &mut View| send(view.terminal.guard.pid(), signal);
        assert_eq!(ended(&by_signal), (code, String::new()), "{signal:?}");
    }
}

#[test]
fn ctrl_c_ends_the_calling_script() {
    let (server, name) = fresh();
    let mut shell = Command::new("bash");
    shell.args(["-c", r#""$P" top; echo and on"#]).env("PERMITS_URL", server.url());
    shell.env("P", env!("CARGO_BIN_EXE_permits"));
    let mut view = View::start(shell);
    view.shows(&format!("> {name}"));
    view.types(CTRL_C);
    assert_eq!(view.finish(), (130, String::new()));
}

#[test]
fn it_can_be_suspended_and_continued() {
    let (server, name) = fresh();
    let mut view = View::of(Terminal::shell(&server));
    view.types("\"$P\" top; echo ended $?.\n");
    for round in 1..=2 {
        view.shows(&format!("> {name}"));
        view.types(CTRL_Z);
        view.shows("Stopped");
        view.is_left();
        view.types(&format!("stty -a | grep -c -- '-icanon' ; echo round $(({round} + 10)).\n"));
        view.shows(&format!("round {}.", round + 10));
        view.types("clear; fg\n");
    }
    view.shows(&format!("> {name}"));
    view.types("?");
    view.shows("q, Ctrl-C");
    view.types("q");
    view.shows("prompt>");
    view.is_left();
    view.types("clear; exit 0\n");
    assert_eq!(view.terminal.finish(), 0);
}

#[test]
fn it_fits_whatever_size_the_terminal_is_given() {
    let (server, name) = fresh();
    let _holder = Holder::start(&server, &name, "--limit 1 --holder web-1");
    let mut view = View::top(&server, &[&name]);
    view.shows("> web-1");
    for (rows, columns) in [(1, 1), (2, 3), (3, 80), (40, 7), (5, 20), (30, 120)] {
        view.resize(rows, columns);
        view.types("?");
        view.types("?j");
    }
    view.shows(&format!("{name}: 1 of 1 held, 0 waiting"));
    view.shows("> web-1");
    view.quits();
}

#[test]
fn without_a_terminal_it_names_the_alternatives() {
    let (server, name) = fresh();
    let refused = output(permits(&server.url(), ["top", &name]).env("TERM", "xterm"));
    refused.prints(64, "");
    assert_own_lines(&refused.stderr);
    assert!(refused.stderr.contains("use permits list, or permits status NAME"), "{}", refused.stderr);

    let mut shell = Command::new("sh");
    let script = r#"TERM=dumb "$P" top; echo dumb $?.; TERM= "$P" top; echo none $?."#;
    shell.args(["-c", script]).env("PERMITS_URL", server.url()).env("P", env!("CARGO_BIN_EXE_permits"));
    let (code, said) = View::start(shell).finish();
    assert_eq!(code, 0);
    assert!(said.contains("dumb 64.") && said.contains("none 64."), "{said}");
    assert_eq!(said.matches("permits: top needs a terminal").count(), 2, "{said}");
}

/// A window that is closed: `script` has the other end of the terminal, and is killed.
#[test]
fn the_end_of_the_terminal_is_129() {
    let (server, name) = fresh();
    let _holder = Holder::start(&server, &name, "--limit 1 --holder web-1");
    let directory = tempfile::tempdir().expect("a directory");
    let code = directory.path().join("code");
    // The shell between survives, and the program is hung up or ignores that, as under nohup. The kernel
    // signals them when the first shell of the terminal has ended, which may be later than the program
    // notices that its terminal is gone. So the shell ignores that signal before it starts `mv`.
    for reaction in [":", "''"] {
        let inner = format!(
            "trap {reaction} HUP; stty rows 24 cols 80; \"$P\" top; code=$?; trap '' HUP; \
             echo $code > \"$CODE.new\"; mv \"$CODE.new\" \"$CODE\""
        );
        let mut script = Command::new("script");
        script.args(["-qfc", "sh -c \"$INNER\"; exit", "/dev/null"]).env("INNER", inner).env("CODE", &code);
        script.env("P", env!("CARGO_BIN_EXE_permits")).env("PERMITS_URL", server.url()).env("TERM", "xterm");
        let mut running = Running::until(&mut script, &name);
        running.guard.kill();
        assert!(wait::until(|| code.exists()), "with trap {reaction}");
        let found = std::fs::read_to_string(&code).expect("it is there");
        assert_eq!(found, "129\n", "with trap {reaction}");
        std::fs::remove_file(&code).expect("it is ours");
    }
}
