//! The arguments: what may be given, what is refused before anything is asked of a store, and the help.
//!
//! What can be checked without a store is checked here, by the library's own rules, so that a wrong call is
//! told apart from a store that cannot be reached.

mod value;

use std::ffi::OsString;
use std::time::Duration;

use clap::{ArgAction, Parser, Subcommand, ValueEnum};
use permits::Recovery;

use crate::{exit, help};
pub(crate) use value::LimitChange;

/// A distributed semaphore: at most N at once, first come, first served
#[derive(Debug, Parser)]
#[command(name = "permits", version, after_help = help::PERMITS, arg_required_else_help = true)]
#[command(subcommand_help_heading = "Verbs", subcommand_value_name = "VERB")]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) common: Common,

    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// What every verb may be given.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Options of every verb")]
pub(crate) struct Common {
    /// The store, such as redis://host:port/db or local:/path/file.db. With a password it belongs into the
    /// environment or a file, which the process list does not show [default: $PERMITS_URL, else what is in
    /// $PERMITS_URL_FILE, else local:]
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) url: Option<String>,

    /// The first part of every key on a server. Semaphores with another one are others
    #[arg(long, global = true, value_name = "P", default_value = "permits", value_parser = value::prefix)]
    pub(crate) prefix: String,

    /// How long a store that is away is waited for [default: 3s; of run: --wait, else 10s]
    #[arg(long, global = true, value_name = "TIME", value_parser = value::duration)]
    pub(crate) store_timeout: Option<Duration>,

    /// Say more on standard error; twice for even more
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Wait for a permit, run a command while holding it, and give it back
    Run(Run),
    /// Show who holds and who waits
    Status(Status),
    /// Show the semaphores that the store has
    List(List),
    /// Watch semaphores, and intervene: a live screen
    Top(Top),
    /// Set how many units may be held at once, and pin it against what programs declare; or show it
    Limit(Limit),
    /// Stop granting; holders keep what they hold
    #[command(after_help = help::PAUSE)]
    Pause(NameArg),
    /// Grant again, beginning with the head of the line
    #[command(after_help = help::RESUME)]
    Resume(NameArg),
    /// Take permits or places in line away
    Revoke(Revoke),
    /// Check the store, and say what to do about what is wrong with it
    Doctor(Doctor),
    /// Print a script that completes this command's arguments in a shell
    Completions(Completions),
    /// Print the manual page of this command, or of one of its verbs
    Man(Man),
}

#[derive(Debug, clap::Args)]
#[command(after_help = help::RUN)]
#[command(override_usage = "permits run [OPTIONS] <NAME> [--] <CMD>...")]
pub(crate) struct Run {
    /// The semaphore, 1 to 200 bytes
    #[arg(value_parser = value::name)]
    pub(crate) name: String,

    /// How many units may be held at once [default: the limit that is stored]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = value::limit)]
    pub(crate) limit: Option<u32>,

    /// How many units to hold
    #[arg(long, value_name = "W", allow_negative_numbers = true, default_value = "1", value_parser = value::weight)]
    pub(crate) weight: u32,

    /// How long the permit stands without renewal, 100ms to 24h. It is renewed three times in that time; if
    /// this machine dies, it is free after so long
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = value::lease)]
    pub(crate) lease: Duration,

    /// How long to wait in line, such as 500ms, 1.5s, 30s, 5m, 1h30m or a number of seconds [default: without
    /// limit]
    #[arg(long, value_name = "TIME", value_parser = value::duration)]
    pub(crate) wait: Option<Duration>,

    /// Do not wait: a permit now, or exit code 75
    #[arg(long, conflicts_with = "wait")]
    pub(crate) no_wait: bool,

    /// Who holds the permit. A holder has at most one permit of a semaphore [default: a name of its own]
    #[arg(long, value_name = "H", value_parser = value::holder)]
    pub(crate) holder: Option<String>,

    /// A text shown beside the holder, at most 120 bytes; it need not be unique
    #[arg(long, value_name = "TEXT", value_parser = value::label)]
    pub(crate) label: Option<String>,

    /// Do not run, exit code 64, if another limit is in force than --limit
    #[arg(long, requires = "limit")]
    pub(crate) require_limit: bool,

    /// How long a server that has just started, and may have forgotten holders, grants nothing: not at all, for
    /// as long as connected holders need to come back, or for the longest lease
    /// [default: as the URL says, else interval]
    #[arg(long, value_name = "HOW", value_enum)]
    pub(crate) recovery: Option<RecoveryArg>,

    /// Say nothing if there is no permit in time
    #[arg(short, long)]
    pub(crate) quiet: bool,

    /// The exit code if there is no permit in time, 0 to 255
    #[arg(short = 'E', long, value_name = "N", default_value_t = exit::NOT_NOW)]
    pub(crate) conflict_exit_code: u8,

    /// The command and its arguments. What follows it is its own, options too
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// [`Recovery`], as it is written.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum RecoveryArg {
    Off,
    Interval,
    Strict,
}

impl From<RecoveryArg> for Recovery {
    fn from(window: RecoveryArg) -> Self {
        match window {
            RecoveryArg::Off => Self::Off,
            RecoveryArg::Interval => Self::Interval,
            RecoveryArg::Strict => Self::Strict,
        }
    }
}

#[derive(Debug, clap::Args)]
#[command(after_help = help::STATUS)]
pub(crate) struct Status {
    /// The semaphore, 1 to 200 bytes
    #[arg(value_parser = value::name)]
    pub(crate) name: String,

    /// As one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = help::LIST)]
pub(crate) struct List {
    /// As one JSON array
    #[arg(long)]
    pub(crate) json: bool,

    /// Only semaphores that are held or waited for
    #[arg(long)]
    pub(crate) busy: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = help::TOP)]
pub(crate) struct Top {
    /// Begin with this semaphore in detail
    #[arg(value_parser = value::name)]
    pub(crate) name: Option<String>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = help::LIMIT)]
#[command(override_usage = "permits limit [OPTIONS] <NAME> [N|+N|-N|--unpin]")]
pub(crate) struct Limit {
    /// The semaphore, 1 to 200 bytes
    #[arg(value_parser = value::name)]
    pub(crate) name: String,

    /// How many units may be held at once, or with a sign how many more or fewer. No permit is revoked if fewer are
    /// allowed than are held [default: show the limit]
    #[arg(value_name = "N", allow_negative_numbers = true, value_parser = value::change)]
    pub(crate) limit: Option<LimitChange>,

    /// Let programs declare the limit again
    #[arg(long, conflicts_with = "limit")]
    pub(crate) unpin: bool,
}

/// What only needs a name.
#[derive(Debug, clap::Args)]
pub(crate) struct NameArg {
    /// The semaphore, 1 to 200 bytes
    #[arg(value_parser = value::name)]
    pub(crate) name: String,
}

#[derive(Debug, clap::Args)]
#[command(after_help = help::REVOKE)]
pub(crate) struct Revoke {
    /// The semaphore, 1 to 200 bytes
    #[arg(value_parser = value::name)]
    pub(crate) name: String,

    /// The holder or waiter, as `permits status` shows it
    #[arg(value_parser = value::holder, required_unless_present = "all", conflicts_with = "all")]
    pub(crate) holder: Option<String>,

    /// All that hold or wait
    #[arg(long)]
    pub(crate) all: bool,

    /// HOLDER is the beginning of a name, and of one only
    #[arg(long, conflicts_with = "all")]
    pub(crate) partial: bool,

    /// What to tell them, at most 1,000 bytes
    #[arg(long, value_name = "R", default_value = "", hide_default_value = true, value_parser = value::reason)]
    pub(crate) reason: String,
}

#[derive(Debug, clap::Args)]
#[command(after_help = help::DOCTOR)]
pub(crate) struct Doctor {
    /// As one JSON object
    #[arg(long)]
    pub(crate) json: bool,

    /// Print the commands that make a user with just the rights that permits needs
    #[arg(long, conflicts_with = "json")]
    pub(crate) acl: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = help::COMPLETIONS)]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, clap::Args)]
#[command(after_help = help::MAN)]
pub(crate) struct Man {
    /// The verb, such as run [default: none, for an overview]
    pub(crate) verb: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        use clap::CommandFactory as _;
        Args::command().debug_assert();
    }
}
