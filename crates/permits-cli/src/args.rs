//! The arguments: what may be given, what is refused before anything is asked of a store, and the help.
//!
//! What can be checked without a store is checked here, by the library's own rules, so that a wrong call is
//! told apart from a store that cannot be reached.

use std::ffi::OsString;
use std::time::Duration;

use clap::{ArgAction, Parser, Subcommand, ValueEnum};
use permits::protocol::{Holder, Label, Name, check_lease, check_prefix, check_reason};
use permits::{InvalidInput, Recovery};

use crate::{exit, help};

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
    #[arg(long, global = true, value_name = "P", default_value = "permits", value_parser = prefix)]
    pub(crate) prefix: String,

    /// How long a store that is away is waited for [default: 3s; of run: --wait, else 10s]
    #[arg(long, global = true, value_name = "TIME", value_parser = duration)]
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

    /// How long to wait in line, such as 500ms, 1.5s, 30s, 5m, 1h30m or a number of seconds [default: without
    /// limit]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) wait: Option<Duration>,

    /// Do not wait: a permit now, or exit code 75
    #[arg(long, conflicts_with = "wait")]
    pub(crate) no_wait: bool,

    /// Who holds the permit. A holder has at most one permit of a semaphore [default: a name of its own]
    #[arg(long, value_name = "H", value_parser = holder)]
    pub(crate) holder: Option<String>,

    /// A text shown beside the holder, at most 120 bytes; it need not be unique
    #[arg(long, value_name = "TEXT", value_parser = label)]
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

    /// Only semaphores that are held or waited for
    #[arg(long)]
    pub(crate) busy: bool,
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
#[command(override_usage = "permits limit [OPTIONS] <NAME> [N|+N|-N|--unpin]")]
pub(crate) struct Limit {
    /// The semaphore, 1 to 200 bytes
    #[arg(value_parser = name)]
    pub(crate) name: String,

    /// How many units may be held at once, or with a sign how many more or fewer. No permit is revoked if fewer are
    /// allowed than are held [default: show the limit]
    #[arg(value_name = "N", allow_negative_numbers = true, value_parser = change)]
    pub(crate) limit: Option<LimitChange>,

    /// Let programs declare the limit again
    #[arg(long, conflicts_with = "limit")]
    pub(crate) unpin: bool,
}

/// What becomes of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LimitChange {
    To(u32),
    By(i64),
}

/// What only needs a name.
#[derive(Debug, clap::Args)]
pub(crate) struct NameArg {
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

    /// The holder or waiter, as `permits status` shows it
    #[arg(value_parser = holder, required_unless_present = "all", conflicts_with = "all")]
    pub(crate) holder: Option<String>,

    /// All that hold or wait
    #[arg(long)]
    pub(crate) all: bool,

    /// HOLDER is the beginning of a name, and of one only
    #[arg(long, conflicts_with = "all")]
    pub(crate) partial: bool,

    /// What to tell them, at most 1,000 bytes
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

fn name(text: &str) -> Result<String, InvalidInput> {
    Name::new(text).map(|name| name.as_str().to_owned())
}

fn holder(text: &str) -> Result<String, InvalidInput> {
    Holder::new(text).map(|holder| holder.as_str().to_owned())
}

fn label(text: &str) -> Result<String, InvalidInput> {
    Label::new(text).map(|label| label.as_str().to_owned())
}

fn prefix(text: &str) -> Result<String, InvalidInput> {
    check_prefix(text).map(|()| text.to_owned())
}

fn reason(text: &str) -> Result<String, InvalidInput> {
    check_reason(text).map(|reason| reason.to_string())
}

fn limit(text: &str) -> Result<u32, String> {
    at_least_1(text, InvalidInput::ZeroLimit)
}

fn weight(text: &str) -> Result<u32, String> {
    at_least_1(text, InvalidInput::ZeroWeight)
}

fn change(text: &str) -> Result<LimitChange, String> {
    if !text.starts_with(['+', '-']) {
        return limit(text).map(LimitChange::To);
    }
    let most = i64::from(u32::MAX);
    let by = text.parse().ok().filter(|by| (-most..=most).contains(by));
    by.map(LimitChange::By).ok_or_else(|| format!("behind a sign it must be a number up to {most}"))
}

fn at_least_1(text: &str, zero: InvalidInput) -> Result<u32, String> {
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

/// Numbers with `ms`, `s`, `m` or `h`, the larger unit first, such as `1h30m`; seconds without a unit. The last number
/// may have a fraction.
fn duration(text: &str) -> Result<Duration, String> {
    const UNITS: [(&str, u64); 4] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];
    let wrong = || "write numbers with ms, s, m or h, such as 500ms, 1.5s, 15s or 1h30m".to_owned();
    let (mut rest, mut larger, mut total) = (text, u64::MAX, 0_u64);
    loop {
        let whole = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, behind) = rest.split_at(whole);
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let fraction = behind.strip_prefix('.').map(|fraction| &fraction[..digits(fraction)]);
        let behind = &behind[fraction.map_or(0, |fraction| fraction.len() + 1)..];
        let unit = behind.bytes().take_while(u8::is_ascii_lowercase).count();
        let (unit, behind) = behind.split_at(unit);
        let last = behind.is_empty();
        let bare = unit.is_empty() && last && larger == u64::MAX;
        let unit = if bare { "s" } else { unit };
        let milliseconds =
            UNITS.iter().find(|(name, _)| *name == unit).map(|(_, milliseconds)| *milliseconds);
        let milliseconds = milliseconds.filter(|unit| *unit < larger).ok_or_else(wrong)?;
        if number.is_empty() || fraction.is_some_and(|fraction| fraction.is_empty() || !last) {
            return Err(wrong());
        }
        let number = number.parse::<u64>().ok().and_then(|number| number.checked_mul(milliseconds));
        // Rounded to a millisecond.
        let fraction = fraction.map_or(0.0, |digits| format!("0.{digits}").parse().unwrap_or(0.0));
        let part =
            number.and_then(|number| number.checked_add((fraction * milliseconds as f64).round() as u64));
        total = part.and_then(|part| total.checked_add(part)).ok_or("it is too long")?;
        if last {
            return Ok(Duration::from_millis(total));
        }
        (rest, larger) = (behind, milliseconds);
    }
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
        for (text, milliseconds) in [
            ("500ms", 500),
            ("15s", 15_000),
            ("15", 15_000),
            ("2m", 120_000),
            ("1h", 3_600_000),
            ("0", 0),
            ("1.5s", 1_500),
            ("0.25", 250),
            ("1.5h", 5_400_000),
            ("1h30m", 5_400_000),
            ("1h2m3s4ms", 3_723_004),
            ("1m1.5s", 61_500),
            ("0.29s", 290),
            ("0.0004s", 0),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
    }

    #[test]
    fn invalid_durations_are_refused() {
        let too_long = ["99999999999999999999", "18446744073709551615s", "6000000000000000h"];
        for text in [
            "", "s", "ms", "-1", "+1", "1 s", "1d", "15S", "ten", "1e3", "½s", "1.", "1.s", ".5s", "1.2.3s",
            "1m30", "30s1m", "1s1s", "1.5m1s", "1h 30m",
        ] {
            assert!(duration(text).is_err(), "{text}");
        }
        for text in too_long {
            assert_eq!(duration(text), Err("it is too long".into()), "{text}");
        }
    }

    #[test]
    fn a_limit_with_a_sign_is_a_difference() {
        for (text, expected) in [
            ("4", LimitChange::To(4)),
            ("+2", LimitChange::By(2)),
            ("-1", LimitChange::By(-1)),
            ("+4294967295", LimitChange::By(4_294_967_295)),
        ] {
            assert_eq!(change(text), Ok(expected), "{text}");
        }
        for text in ["0", "+", "-", "+-1", "+1.5", "-4294967296", "x"] {
            assert!(change(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_longest_lease_is_a_day() {
        assert!(lease("24h").is_ok());
        assert!(lease("86401").is_err());
        assert!(lease("99ms").is_err());
    }
}
