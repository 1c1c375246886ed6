//! The program for which a permit is requested, and the label that its acquisitions have by default.

use std::env::{self, VarError};
use std::ffi::OsString;
use std::path::Path;

use permits::check;

use crate::connect;
use crate::exit::{self, Failure};

/// The environment variable with the label. An empty one means none.
const LABEL: &str = "PERMITS_LABEL";

/// The most bytes of a label.
const MAX_LABEL: usize = 120;

/// The program that uses the permit.
#[derive(Clone, Copy)]
pub(crate) enum Caller<'a> {
    /// The command of `permits run`, with its arguments.
    Command(&'a [OsString]),
    /// The unknown caller of this verb.
    Verb(&'static str),
}

impl Caller<'_> {
    /// The label of the acquisitions: `given`, else that of the environment, else the user and the program's
    /// name. Arguments may contain secrets, and every user of the store can read a label.
    pub(crate) fn label(self, given: Option<&str>) -> Result<Option<String>, Failure> {
        let label = match (given, env::var(LABEL)) {
            (Some(given), _) => given.to_owned(),
            (None, Ok(label)) => {
                let wrong = |error| Failure::new(exit::USAGE, format!("{LABEL}: {error}"));
                check::label(&label).map_err(wrong)?;
                label
            }
            (None, Err(VarError::NotPresent)) => self.default_label(),
            (None, Err(VarError::NotUnicode(_))) => {
                return Err(Failure::new(exit::USAGE, format!("{LABEL} is not UTF-8")));
            }
        };
        Ok(Some(label).filter(|label| !label.is_empty()))
    }

    fn default_label(self) -> String {
        let mut label = format!("{}: ", connect::user());
        let program = match self {
            Self::Command(command) => {
                let name = command.first().and_then(|program| Path::new(program).file_name());
                name.unwrap_or_default().to_string_lossy().into_owned()
            }
            Self::Verb(verb) => format!("permits {verb}"),
        };
        for character in program.chars().filter(|character| !character.is_control()) {
            if label.len() + character.len_utf8() > MAX_LABEL {
                break;
            }
            label.push(character);
        }
        label
    }

    /// True if an argument behind the command is this option.
    pub(super) fn has_argument(self, option: &str) -> bool {
        let Self::Command([_, arguments @ ..]) = self else { return false };
        let is_option =
            |argument: &str| argument.split_once('=').map_or(argument, |(name, _)| name) == option;
        arguments.iter().filter_map(|argument| argument.to_str()).any(is_option)
    }
}
