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

    /// The command of a key: what `p`, say, would do to this semaphore, or to this holder or waiter of it.
    pub(super) fn of_key(
        &self,
        key: char,
        name: &str,
        row: &ListRow,
        holder: Option<&str>,
    ) -> Option<Command> {
        Some(match key {
            'p' if row.paused => self.command("resume", &[name], &[]),
            'p' => self.command("pause", &[name], &["--for", "10m"]),
            'l' => self.command("limit", &[name, &row.limit.unwrap_or(1).to_string()], &[]),
            'u' => self.command("limit", &[name], &["--unpin"]),
            'a' => self.command("alert", &[name], &["--wait", "30s", "--waiting", "100"]),
            'c' if row.closed.is_some() => self.command("open", &[name], &[]),
            'c' => self.command("close", &[name], &["--reason", ""]),
            'd' => self.command("delete", &[name], &[]),
            'r' => self.command("revoke", &[name, holder?], &[]),
            _ => return None,
        })
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
