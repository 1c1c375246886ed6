//! The arguments: what may be given, what is refused before anything is asked of a store, and the help.
//!
//! What can be checked without a store is checked here, by the library's own rules, so that a wrong call is
//! told apart from a store that cannot be reached.

use std::ffi::OsString;
use std::time::Duration;

use clap::{ArgAction, Parser, Subcommand};
use permits::Invalid;
use permits::protocol::{Holder, Name, check_lease};

const EXAMPLES: &str = "\
Examples:
  export PERMITS_URL=redis://127.0.0.1/
  permits run exports --limit 4 -- ./export.sh     at most 4 at once, anywhere
  permits run nightly --limit 1 --no-wait -- ./nightly.sh
  permits status exports";

const RUN_EXAMPLES: &str = "\
Examples:
  permits run exports --limit 4 -- ./export.sh
  permits run migrate --limit 1 --wait 30s -- ./migrate up
  permits run licence --limit 8 --weight 2 -- sh -c 'simulate --seat \"$PERMITS_SLOT\"'

Environment of the command:
  PERMITS_NAME     the semaphore
  PERMITS_HOLDER   who holds the permit
  PERMITS_TOKEN    fencing token: greater than that of every earlier grant of the semaphore
  PERMITS_SLOT     a number from 0, below the limit, that no other live permit has

Signals:
  INT, TERM, HUP, QUIT leave the line while waiting. While the command runs, they and USR1, USR2 and TSTP are
  passed on to its process group. On a terminal Ctrl-C and Ctrl-Z work as without permits; but a suspended
  permits renews nothing, and if its lease ends meanwhile the command is ended when it is continued.

When the permit is lost:
  The command's process group gets SIGTERM, after 5 s SIGKILL. Should permits itself be killed, the kernel
  kills the command (on Linux; not what the command has started, nor a command that changes its user).

Exit code:
  the command's own; 128+n if signal n ended it, or ended the waiting
   64  wrong usage, also: no limit is known, or the weight exceeds it
   69  the store cannot be reached, denies access, or is not supported
   71  the system refuses, say, another thread
   75  no permit in time: none free, waited too long, line full, holder in use, place in line revoked
   76  the permit was lost
  126  the command cannot be executed
  127  the command was not found";

/// A distributed semaphore: at most N at once, first come, first served
#[derive(Debug, Parser)]
#[command(name = "permits", version, after_help = EXAMPLES, arg_required_else_help = false)]
pub(crate) struct Args {
    /// The store: redis://host:port/db, rediss://… (TLS), redis+unix:///path. With a password it belongs into
    /// the environment, which the process list does not show [default: $PERMITS_URL]
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
}

#[derive(Debug, clap::Args)]
#[command(after_help = RUN_EXAMPLES)]
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
#[command(after_help = "Examples:\n  permits status exports\n  permits status exports --json | jq .held")]
pub(crate) struct Status {
    /// The semaphore, 1 to 200 bytes
    #[arg(value_parser = name)]
    pub(crate) name: String,

    /// As one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

fn name(text: &str) -> Result<String, Invalid> {
    Name::new(text).map(|name| name.as_str().to_owned())
}

fn holder(text: &str) -> Result<String, Invalid> {
    Holder::new(text).map(|holder| holder.as_str().to_owned())
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
