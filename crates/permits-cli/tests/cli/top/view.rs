//! A terminal emulator, which interprets the escape codes of a program, so that a test sees the screen and
//! not the writes.

use std::num::NonZero;
use std::process::Command;

use permits_testkit::{HANGS, Server, wait};
use rustix::termios::{InputModes, LocalModes, OutputModes, Winsize, tcgetattr, tcsetwinsize};

use crate::support::permits;
use crate::terminal::Terminal;

/// A terminal with a visible screen.
pub(crate) struct View {
    pub(crate) terminal: Terminal,
    pub(crate) emulator: vt100::Parser,
    /// The part of the output that was interpreted.
    read: usize,
}

impl View {
    #[track_caller]
    pub(crate) fn of(terminal: Terminal) -> Self {
        let mut view = Self { terminal, emulator: vt100::Parser::default(), read: 0 };
        view.resize(24, 80);
        view
    }

    #[track_caller]
    pub(crate) fn start(mut command: Command) -> Self {
        // The command keeps the terminal open, and is dropped here.
        Self::of(Terminal::start(&mut command))
    }

    #[track_caller]
    pub(crate) fn top(server: &Server, arguments: &[&str]) -> Self {
        Self::start(permits(&server.url(), ["top"].iter().chain(arguments)))
    }

    #[track_caller]
    pub(crate) fn resize(&mut self, rows: u16, columns: u16) {
        self.rows();
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&self.terminal.keyboard, size).expect("it is a terminal");
        let [rows, columns] = [rows, columns].map(|count| NonZero::new(count).expect("not nothing"));
        self.emulator.screen_mut().set_size(rows, columns);
    }

    pub(crate) fn types(&mut self, keys: &str) {
        self.terminal.types(keys);
    }

    /// The screen, line by line.
    pub(crate) fn rows(&mut self) -> Vec<String> {
        let bytes = self.terminal.screen.lock().expect("not poisoned");
        self.emulator.process(&bytes[self.read..]);
        self.read = bytes.len();
        let screen = self.emulator.screen();
        screen.rows(0, screen.size().1.get()).map(|row| row.trim_end().to_owned()).collect()
    }

    /// Waits for a screen that meets `condition`.
    #[track_caller]
    pub(crate) fn until(&mut self, expected: &str, condition: impl Fn(&[String]) -> bool) {
        let reached = wait::until(|| condition(&self.rows()));
        assert!(reached, "no {expected} in\n{}", self.rows().join("\n"));
    }

    #[track_caller]
    pub(crate) fn shows(&mut self, text: &str) {
        self.until(text, |rows| rows.iter().any(|row| row.contains(text)));
    }

    #[track_caller]
    pub(crate) fn does_not_show(&mut self, text: &str) {
        self.until(&format!("screen without {text}"), |rows| !rows.iter().any(|row| row.contains(text)));
    }

    /// Waits for a line of these words, with any spaces between them.
    #[track_caller]
    pub(crate) fn shows_row(&mut self, words: &[&str]) {
        self.until(&format!("{words:?}"), |rows| {
            rows.iter().any(|row| row.split_whitespace().collect::<Vec<_>>() == words)
        });
    }

    /// Waits until the program has restored the terminal.
    #[track_caller]
    pub(crate) fn is_left(&mut self) {
        let left = wait::until(|| {
            self.rows();
            let screen = self.emulator.screen();
            !screen.alternate_screen() && !screen.hide_cursor()
        });
        assert!(left, "it is still up:\n{}", self.rows().join("\n"));
        let now = tcgetattr(&self.terminal.keyboard).expect("it is a terminal");
        let expected = LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG | LocalModes::IEXTEN;
        assert!(now.local_modes.contains(expected), "{now:?}");
        assert!(now.input_modes.contains(InputModes::ICRNL | InputModes::IXON), "{now:?}");
        assert!(now.output_modes.contains(OutputModes::OPOST), "{now:?}");
    }

    /// Waits for the end of the program. Returns its exit code and the screen.
    #[track_caller]
    pub(crate) fn finish(mut self) -> (i32, String) {
        let status = self.terminal.guard.wait_timeout(HANGS);
        assert!(status.is_some(), "still running:\n{}", self.rows().join("\n"));
        assert!(wait::until(|| self.terminal.reader.is_finished()), "a process has the terminal");
        self.is_left();
        let rest = self.rows().join("\n");
        (self.terminal.finish(), rest.trim_end().to_owned())
    }

    #[track_caller]
    pub(crate) fn quits(mut self) {
        self.types("q");
        assert_eq!(self.finish(), (0, String::new()));
    }
}
