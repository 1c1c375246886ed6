//! The program for which a permit is requested, and the label that its acquisitions have by default.

use std::env::{self, VarError};
use std::ffi::OsString;
use std::path::Path;

use permits::check;

use crate::args::value::cut_label;
use crate::exit::{self, Failure};
use crate::{connect, report};

/// The environment variable with the label. An empty one means none.
const LABEL: &str = "PERMITS_LABEL";

/// The program that uses the permit.
#[derive(Clone, Copy)]
pub(crate) enum Caller<'a> {
    /// The command of `permits run`, with its arguments.
    Command(&'a [OsString]),
    /// The unknown caller of this verb.
    Verb(&'static str),
}

/// The label as it is shown, with a warning if `source` gave a longer one.
fn cut(source: &str, label: &str) -> String {
    let shown = cut_label(label);
    if shown.len() < label.len() {
        let (bytes, most) = (label.len(), shown.len());
        report::say(format_args!("{source} has {bytes} bytes: the first {most} are shown as the label"));
    }
    shown.to_owned()
}

impl Caller<'_> {
    /// The label of the acquisitions: `given`, else the label from the environment, else the user and the
    /// program's name. Arguments may contain secrets, and every user of the store can read a label.
    pub(crate) fn label(self, given: Option<&str>) -> Result<String, Failure> {
        match (given, env::var(LABEL)) {
            (Some(given), _) => Ok(cut("--label", given)),
            (None, Ok(label)) => {
                let label = cut(LABEL, &label);
                let wrong = |error| Failure::new(exit::USAGE, format!("{LABEL}: {error}"));
                check::label(&label).map(|()| label.clone()).map_err(wrong)
            }
            (None, Err(VarError::NotPresent)) => Ok(self.default_label()),
            (None, Err(VarError::NotUnicode(_))) => {
                Err(Failure::new(exit::USAGE, format!("{LABEL} is not UTF-8")))
            }
        }
    }

    fn default_label(self) -> String {
        let program = match self {
            Self::Command(command) => {
                let name = command.first().and_then(|program| Path::new(program).file_name());
                name.unwrap_or_default().to_string_lossy().into_owned()
            }
            Self::Verb(verb) => format!("permits {verb}"),
        };
        check::label_from(&format!("{}: {program}", connect::user()))
    }

    /// True if an argument behind the command is this option.
    pub(super) fn has_argument(self, option: &str) -> bool {
        let Self::Command([_, arguments @ ..]) = self else { return false };
        let is_option =
            |argument: &str| argument.split_once('=').map_or(argument, |(name, _)| name) == option;
        arguments.iter().filter_map(|argument| argument.to_str()).any(is_option)
    }
}
