//! The commands on standard input, read by a thread of their own: a read of a terminal or a pipe cannot be
//! cancelled.

use std::io::{self, BufRead, Read as _};

use tokio::sync::mpsc;

/// The longest line. The rest of a longer one is skipped.
const MAX_LINE: u64 = 256;

/// Commands that were read and not yet taken. The thread waits when there are more.
const MAX_QUEUED: usize = 16;

/// A line of standard input.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Command {
    Release,
    Renew,
    /// Its first characters.
    Unknown(String),
}

impl Command {
    fn parse(line: &[u8]) -> Self {
        match line.trim_ascii() {
            b"release" => Self::Release,
            b"renew" => Self::Renew,
            line => Self::Unknown(String::from_utf8_lossy(line).into_owned()),
        }
    }
}

/// Standard input, from now on.
pub(super) struct Input {
    commands: mpsc::Receiver<Command>,
}

impl Input {
    /// Starts to read.
    ///
    /// # Errors
    /// The system's error if it refuses a thread.
    pub(super) fn start() -> io::Result<Self> {
        let (sender, commands) = mpsc::channel(MAX_QUEUED);
        let read = move || read(io::stdin().lock(), |command| sender.blocking_send(command).is_ok());
        std::thread::Builder::new().name("stdin".into()).spawn(read)?;
        Ok(Self { commands })
    }

    /// The next command, or `None` at the end of the input. Cancel safe.
    pub(super) async fn next(&mut self) -> Option<Command> {
        self.commands.recv().await
    }
}

/// Reads until the end, or until `take` returns false.
fn read(mut input: impl BufRead, mut take: impl FnMut(Command) -> bool) {
    let mut is_rest = false;
    loop {
        let mut line = Vec::new();
        match input.by_ref().take(MAX_LINE).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let is_whole = line.ends_with(b"\n") || (line.len() as u64) < MAX_LINE;
        let is_first = !std::mem::replace(&mut is_rest, !is_whole);
        let is_empty = line.trim_ascii().is_empty();
        if is_first && !is_empty && !take(Command::parse(&line)) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Command, MAX_LINE, read};

    fn commands(input: &[u8]) -> Vec<Command> {
        let mut commands = Vec::new();
        read(input, |command| {
            commands.push(command);
            true
        });
        commands
    }

    #[test]
    fn a_line_is_a_command() {
        let unknown = || Command::Unknown("stop".to_owned());
        assert_eq!(commands(b"renew\n\r\n release \r\n"), [Command::Renew, Command::Release]);
        assert_eq!(commands(b"stop\nrelease"), [unknown(), Command::Release]);
        assert_eq!(commands(b""), []);
        assert_eq!(commands(b"\xff\n"), [Command::Unknown("\u{fffd}".to_owned())]);
    }

    #[test]
    fn the_rest_of_a_long_line_is_no_command() {
        let mut long = vec![b'x'; MAX_LINE as usize];
        long.extend(b"release\nrenew\n");
        let found = commands(&long);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(matches!(&found[0], Command::Unknown(line) if line.len() == MAX_LINE as usize));
        assert_eq!(found[1], Command::Renew);
    }
}
