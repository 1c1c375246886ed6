//! The command lines for a row, ready to copy into a shell.
//!
//! The screen itself changes nothing. A change that you type in a shell can be read before it is made, takes
//! a reason and an author, stays in the history, and works in a script as well.

use crate::args::Common;
use crate::inspected::ListRow;
use crate::report::redacted;
use crate::text::{shell_word, width};

/// A command line: its words, quoted for a shell.
pub(super) type Command = Vec<String>;

/// Makes command lines for the store of the screen.
#[derive(Debug, Default)]
pub(super) struct Commands {
    /// `--url` and `--prefix` as they were given to `top`. A shell knows the environment already.
    store: Vec<String>,
}

impl Commands {
    /// A password in the URL is replaced by `***`: a command with it is refused until you put it in.
    pub(super) fn of(common: &Common) -> Self {
        let url = common.url.as_deref().map(redacted);
        let given = [("--url", url), ("--prefix", common.prefix.clone())];
        let options = given.into_iter().filter_map(|(option, value)| Some([option.to_owned(), value?]));
        Self { store: options.flatten().collect() }
    }

    /// The commands for a semaphore in this state, and for this holder or waiter of it.
    pub(super) fn of_row(&self, name: &str, row: &ListRow, holder: Option<&str>) -> Vec<Command> {
        let revoke = holder.map(|holder| self.command("revoke", &[name, holder], &[]));
        let pause = match row.paused {
            true => self.command("resume", &[name], &[]),
            false => self.command("pause", &[name], &["--for", "10m"]),
        };
        let limit = match row.pinned {
            true => self.command("limit", &[name], &["--unpin"]),
            false => self.command("limit", &[name, &row.limit.unwrap_or(1).to_string()], &[]),
        };
        let line = match row.closed {
            Some(_) => self.command("open", &[name], &[]),
            None => self.command("close", &[name], &["--reason", ""]),
        };
        revoke.into_iter().chain([pause, limit, line]).collect()
    }

    /// The command that shows why a semaphore cannot be read, and the remedy.
    pub(super) fn status(&self, name: &str) -> Command {
        self.command("status", &[name], &[])
    }

    fn command(&self, verb: &str, arguments: &[&str], options: &[&str]) -> Command {
        let options = options.iter().copied().chain(self.store.iter().map(String::as_str));
        let arguments = arguments.iter().copied();
        let words: Vec<&str> = if arguments.clone().any(|word| word.starts_with('-')) {
            options.chain(["--"]).chain(arguments).collect()
        } else {
            arguments.chain(options).collect()
        };
        ["permits", verb].into_iter().chain(words).map(shell_word).collect()
    }
}

/// Puts commands on lines, beside each other where they fit. A longer one is continued as in a shell, by a
/// backslash. `None` if a word does not fit on a line: a command that is cut off would do something else.
pub(super) fn lines(commands: &[Command], columns: usize) -> Option<Vec<String>> {
    let mut lines: Vec<String> = Vec::new();
    for command in commands {
        let whole = command.join(" ");
        match lines.last_mut() {
            Some(last) if width(last) + 3 + width(&whole) <= columns => *last += &format!(" · {whole}"),
            _ if width(&whole) <= columns => lines.push(whole),
            _ => lines.extend(continued(command, columns)?),
        }
    }
    Some(lines)
}

fn continued(command: &Command, columns: usize) -> Option<Vec<String>> {
    let mut lines: Vec<String> = Vec::new();
    for word in command {
        // Room for the backslash.
        let room = columns.checked_sub(2 + width(word))?;
        match lines.last_mut() {
            Some(last) if width(last) < room => *last += &format!(" {word}"),
            Some(last) => {
                last.push_str(" \\");
                lines.push(word.clone());
            }
            None => lines.push(word.clone()),
        }
    }
    Some(lines)
}
