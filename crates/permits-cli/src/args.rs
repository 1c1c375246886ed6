//! The arguments: what may be given, what is refused before anything is asked of a store, and the help.
//!
//! What can be checked without a store is checked here, by the library's own rules, so that a wrong call is
//! told apart from a store that cannot be reached.

use std::ffi::OsString;
use std::time::Duration;

use clap::{ArgAction, ArgGroup, Parser, Subcommand};
use permits::Invalid;
use permits::protocol::{Holder, Name, check_lease, check_reason};

use crate::help;

/// A distributed semaphore: at most N at once, first come, first served
#[derive(Debug, Parser)]
#[command(name = "permits", version, after_help = help::PERMITS, arg_required_else_help = true)]
#[command(subcommand_help_heading = "Verbs", subcommand_value_name = "VERB")]
pub(crate) struct Args {
    /// The store, such as redis://host:port/db or local:/path/file.db. With a password it belongs into the
    /// environment, which the process list does not show [default: $PERMITS_URL, else local:]
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) url: Option<String>,

    /// Say more on standard error; twice for even more
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,

    #[command(subcommand)]
    pub(crate) verb: Verb,
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
    /// Set how many units may be held at once, and pin it against what programs declare
    Limit(Limit),
    /// Stop granting; holders keep what they hold
    #[command(after_help = help::PAUSE)]
    Pause(One),
    /// Grant again, beginning with the head of the line
    #[command(after_help = help::RESUME)]
    Resume(One),
    /// Take a holder's permit or place in line away
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
pub(crate) struct Run {
    /// The semaphore, 1 to 200 bytes
    #[arg(value_parser = name)]
    pub(crate) name: String,

    /// How many units may be held at once [default: the limit that is stored]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = limit)]
    pub(crate) limit: Option<u32>,

    /// How many units to hold
    #[arg(long, value_name = "W", allow_negative_numbers = true, default_value = "1", value_parser = weight)]
    pub(crate) weight: u32,

    /// How long the permit stands without renewal, 100ms to 24h. It is renewed three times in that time; if
    /// this machine dies, it is free after so long
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = lease)]
    pub(crate) lease: Duration,

    /// How long to wait in line, such as 500ms, 30s, 5m, 1h or a number of seconds [default: without limit]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) wait: Option<Duration>,

    /// Do not wait: a permit now, or exit code 75
    #[arg(long, conflicts_with = "wait")]
    pub(crate) no_wait: bool,

    /// Who holds the permit. A holder has at most one permit of a semaphore [default: a name of its own]
    #[arg(long, value_name = "H", value_parser = holder)]
    pub(crate) holder: Option<String>,

    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = help::STATUS)]
pub(crate) struct Status {
    /// The semaphore, 1 to 200 bytes
    #[arg(value_parser = name)]
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
}

#[derive(Debug, clap::Args)]
#[command(after_help = help::TOP)]
pub(crate) struct Top {
    /// Begin with this semaphore in detail
    #[arg(value_parser = name)]
    pub(crate) name: Option<String>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = help::LIMIT)]
#[command(group(ArgGroup::new("what").required(true).args(["limit", "unpin"])))]
#[command(override_usage = "permits limit [OPTIONS] <NAME> <N|--unpin>")]
pub(crate) struct Limit {
    /// The semaphore, 1 to 200 bytes
    #[arg(value_parser = name)]
    pub(crate) name: String,

    /// How many units may be held at once. Fewer than are held now revokes nobody
    #[arg(value_name = "N", allow_negative_numbers = true, value_parser = limit)]
    pub(crate) limit: Option<u32>,

    /// Let programs declare the limit again
    #[arg(long)]
    pub(crate) unpin: bool,
}

/// What only needs a name.
#[derive(Debug, clap::Args)]
pub(crate) struct One {
    /// The semaphore, 1 to 200 bytes
    #[arg(value_parser = name)]
    pub(crate) name: String,
}

#[derive(Debug, clap::Args)]
#[command(after_help = help::REVOKE)]
pub(crate) struct Revoke {
    /// The semaphore, 1 to 200 bytes
    #[arg(value_parser = name)]
    pub(crate) name: String,

    /// Who holds or waits, as `permits status` shows it
    #[arg(value_parser = holder)]
    pub(crate) holder: String,

    /// What to tell it, at most 1,000 bytes
    #[arg(long, value_name = "R", default_value = "", hide_default_value = true, value_parser = reason)]
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

fn name(text: &str) -> Result<String, Invalid> {
    Name::new(text).map(|name| name.as_str().to_owned())
}

fn holder(text: &str) -> Result<String, Invalid> {
    Holder::new(text).map(|holder| holder.as_str().to_owned())
}

fn reason(text: &str) -> Result<String, Invalid> {
    check_reason(text).map(|reason| reason.to_string())
}

fn limit(text: &str) -> Result<u32, String> {
    at_least_1(text, Invalid::ZeroLimit)
}

fn weight(text: &str) -> Result<u32, String> {
    at_least_1(text, Invalid::ZeroWeight)
}

fn at_least_1(text: &str, zero: Invalid) -> Result<u32, String> {
    match text.parse() {
        Ok(0) => Err(zero.to_string()),
        Ok(number) => Ok(number),
        Err(_) => Err(format!("it must be a number from 1 to {}", u32::MAX)),
    }
}

fn lease(text: &str) -> Result<Duration, String> {
    let lease = duration(text)?;
    check_lease(u64::try_from(lease.as_millis()).unwrap_or(u64::MAX)).map_err(|error| error.to_string())?;
    Ok(lease)
}

/// A whole number with `ms`, `s`, `m` or `h`; seconds without.
fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let milliseconds = match unit {
        "ms" => 1,
        "" | "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => 0,
    };
    if number.is_empty() || milliseconds == 0 {
        return Err("write a whole number with ms, s, m or h, such as 500ms, 15s or 2m".into());
    }
    let number = number.parse::<u64>().ok();
    let total = number.and_then(|number| number.checked_mul(milliseconds));
    total.map(Duration::from_millis).ok_or_else(|| "it is too long".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        use clap::CommandFactory as _;
        Args::command().debug_assert();
    }

    #[test]
    fn durations_have_a_unit_or_are_seconds() {
        for (text, milliseconds) in
            [("500ms", 500), ("15s", 15_000), ("15", 15_000), ("2m", 120_000), ("1h", 3_600_000), ("0", 0)]
        {
            assert_eq!(duration(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        let too_long = ["99999999999999999999", "18446744073709551615s", "6000000000000000h"];
        for text in ["", "s", "ms", "-1", "+1", "1.5s", "1 s", "1d", "1m30s", "15S", "ten", "1e3", "½s"] {
            assert!(duration(text).is_err(), "{text}");
        }
        for text in too_long {
            assert_eq!(duration(text), Err("it is too long".into()), "{text}");
        }
    }

    #[test]
    fn the_longest_lease_is_a_day() {
        assert!(lease("24h").is_ok());
        assert!(lease("86401").is_err());
        assert!(lease("99ms").is_err());
    }
}
