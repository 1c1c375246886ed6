//! The arguments, checked before a store is asked, and the help.
//!
//! Everything that can be checked without a store is checked here, by the library's own rules, so that wrong
//! usage and an unreachable store have different exit codes.
//!
//! A struct of options that several verbs share has a plain comment: the parser would take a documentation
//! comment for the help of each of these verbs.

mod names;
mod request;
mod serve;
mod tip;
pub(crate) mod value;

use std::ffi::OsString;
use std::time::Duration;

use clap::{ArgAction, Parser, Subcommand};
use permits::Change;

use crate::exit::{self, Failure};
use crate::help;
use crate::order::Order;
use crate::report::LogFormat;
pub(crate) use names::{Author, Changed, Chosen, Names, Targets};
pub(crate) use request::{Others, Request};
pub(crate) use serve::Serve;
pub(crate) use tip::with_tip;
pub(crate) use value::{Also, Handle};
use value::{Group, Listen};

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

// Options of every verb.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Options of every verb")]
pub(crate) struct Common {
    /// The store, such as redis://host:port/db or local:/path/permits. A URL with a password belongs in the
    /// environment or in a file, because the process list shows arguments [default: $PERMITS_URL, else the
    /// URL in $PERMITS_URL_FILE, else local:]
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) url: Option<String>,

    /// The first part of every key: 1 to 64 printable ASCII characters without braces and spaces. Sessions
    /// with different prefixes don't see each other's semaphores
    // Of the flag:
    /// [default: $PERMITS_PREFIX, else permits]
    #[arg(long, global = true, value_name = "P", value_parser = value::prefix)]
    pub(crate) prefix: Option<String>,

    /// The time for which the store may be unreachable before operations that need it fail. Permits that are
    /// held are not affected: they last until their deadlines
    // Of the flag:
    /// [default: 3s; of top 2s; to acquire --wait, else 10s]
    #[arg(long, global = true, value_name = "TIME", allow_negative_numbers = true, value_parser = value::duration)]
    pub(crate) store_timeout: Option<Duration>,

    /// Log more to standard error; give it twice for even more
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,

    /// Lines on standard error: text or json [default: text]
    #[arg(long, global = true, value_name = "FORM", value_enum, default_value = "text")]
    #[arg(hide_default_value = true, hide_possible_values = true)]
    pub(crate) log_format: LogFormat,
}

// Deferred: only the options of the verb that is used are made.
#[derive(Debug, Subcommand)]
#[command(defer = true)]
pub(crate) enum Verb {
    /// Wait for a permit, run a command while holding it, and release it
    Run(Run),
    /// Hold a permit for another program, which reads and writes JSON lines
    Hold(Hold),
    /// Acquire a permit and print a handle, which ends with its lease unless it is renewed
    Acquire(Acquire),
    /// Renew the permit of a handle
    Renew(Renew),
    /// Release the permit of a handle
    Release(Release),
    /// Show the holders and the waiters of a semaphore
    Status(Status),
    /// Show the semaphores of the store
    List(List),
    /// Watch semaphores on a live screen, with the commands that change them
    Top(Top),
    /// Print the changes of a semaphore, a line each, until a signal
    Watch(Watch),
    /// Serve metrics, JSON and a page of the semaphores over HTTP
    Serve(Serve),
    /// Set the limit, and pin it against what programs declare; or show it
    Limit(SetLimit),
    /// Set the wait and the waiters beyond which a semaphore needs a look; or show them
    Alert(SetAlert),
    /// Set the limit and the floor of a lane, and pin them; or show them
    Lane(SetLane),
    /// Stop granting; holders keep their permits
    Pause(Pause),
    /// Grant again, starting with the head of the line
    #[command(after_help = help::RESUME)]
    Resume(Changed),
    /// Send waiters and new requests away; holders keep their permits
    Close(Close),
    /// Let requests into the line again
    #[command(after_help = help::OPEN)]
    Open(Changed),
    /// Take permits or places in line away
    Revoke(Revoke),
    /// Forget a semaphore that is not in use, with its limit
    #[command(after_help = help::DELETE)]
    Delete(Delete),
    /// Check the store, and say how to fix what is wrong with it
    Doctor(Doctor),
    /// Print a completion script for a shell
    Completions(Completions),
    /// Print the manual page of this command or of a verb
    Man(Man),
}

#[derive(Debug, clap::Args)]
#[command(after_help = help::RUN)]
#[command(override_usage = "permits run [OPTIONS] <NAME> [--] <CMD>...")]
pub(crate) struct Run {
    /// The semaphore, 1 to 200 bytes
    #[arg(value_parser = value::name)]
    pub(crate) name: String,

    #[command(flatten)]
    pub(crate) request: Request,

    #[command(flatten)]
    pub(crate) others: Others,

    /// The command and its arguments. Everything after its name belongs to the command, options too
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = help::HOLD)]
#[command(override_usage = "permits hold [OPTIONS] <NAME|--many|--listen unix:PATH>")]
pub(crate) struct Hold {
    /// The semaphore, 1 to 200 bytes
    #[arg(value_parser = value::name, required_unless_present_any = ["many", "listen"])]
    pub(crate) name: Option<String>,

    #[command(flatten)]
    pub(crate) request: Request,

    #[command(flatten)]
    pub(crate) others: Others,

    /// Hold any number of permits, over one connection to the store: standard input has a request a line
    #[arg(long, conflicts_with_all = ["name", "Request", "Others"])]
    pub(crate) many: bool,

    /// Do so for all programs that connect to a Unix socket, in place of standard input and output. Written
    /// unix:PATH; only this user can connect. Or systemd, for the socket that a .socket unit hands over
    #[arg(long, value_name = "ADDRESS", value_parser = value::socket)]
    #[arg(conflicts_with_all = ["name", "Request", "Others"])]
    pub(crate) listen: Option<Listen>,

    /// Let the members of this group connect, too (mode 0660): its name, or its number
    #[arg(long, value_name = "NAME", value_parser = value::group, requires = "listen")]
    pub(crate) group: Option<Group>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = help::ACQUIRE)]
#[command(mut_arg("max_hold", |max_hold| max_hold.hide(true)))]
pub(crate) struct Acquire {
    /// The semaphore, 1 to 200 bytes
    #[arg(value_parser = value::name)]
    pub(crate) name: String,

    #[command(flatten)]
    pub(crate) request: Request,

    /// Print one JSON object, with the token and the slot
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = help::RENEW)]
pub(crate) struct Renew {
    #[command(flatten)]
    pub(crate) handle: HandleArg,
}

#[derive(Debug, clap::Args)]
#[command(after_help = help::RELEASE)]
pub(crate) struct Release {
    #[command(flatten)]
    pub(crate) handle: HandleArg,

    /// The units that the grant really cost, of a permit with --at-least: fewer are free at once, and with
    /// more the line waits until they have counted for that time
    #[arg(long, value_name = "UNITS", allow_negative_numbers = true, value_parser = value::count)]
    pub(crate) count: Option<u32>,
}

// A handle that `permits acquire` printed.
#[derive(Debug, clap::Args)]
pub(crate) struct HandleArg {
    /// The handle, or - to read it from standard input, which keeps it out of the process list
    #[arg(value_name = "HANDLE", value_parser = value::handle)]
    pub(crate) given: Handle,
}

#[derive(Debug, clap::Args)]
#[command(after_help = help::STATUS)]
pub(crate) struct Status {
    #[command(flatten)]
    pub(crate) names: Names,

    /// Print one JSON object, a line for each semaphore
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = help::LIST)]
pub(crate) struct List {
    /// Print one JSON array
    #[arg(long)]
    pub(crate) json: bool,

    /// Show only semaphores with holders or waiters
    #[arg(long)]
    pub(crate) busy: bool,

    /// The order: name, need (what needs a look first), held, waiting or waited, the highest number first
    #[arg(long, value_name = "ORDER", value_enum, default_value = "name", hide_possible_values = true)]
    pub(crate) sort: Order,

    /// Show only semaphores whose names begin with PREFIX
    #[arg(long, value_name = "PREFIX", default_value = "", hide_default_value = true)]
    pub(crate) under: String,
}

#[derive(Debug, clap::Args)]
#[command(after_help = help::TOP)]
pub(crate) struct Top {
    /// Open this semaphore first
    #[arg(value_parser = value::name)]
    pub(crate) name: Option<String>,

    /// The order: need (what needs a look first), name, held, waiting or waited, the highest number first
    #[arg(long, value_name = "ORDER", value_enum, default_value = "need", hide_possible_values = true)]
    pub(crate) sort: Order,

    /// Show only semaphores with holders or waiters
    #[arg(long)]
    pub(crate) busy: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = help::WATCH)]
pub(crate) struct Watch {
    #[command(flatten)]
    pub(crate) names: Names,

    /// Print JSON, an object a line
    #[arg(long)]
    pub(crate) json: bool,

    /// The time between two reads of the store, at least 100ms
    #[arg(long, value_name = "TIME", default_value = "1s", allow_negative_numbers = true, value_parser = value::interval)]
    pub(crate) interval: Duration,
}

#[derive(Debug, clap::Args)]
#[command(after_help = help::LIMIT)]
#[command(override_usage = "permits limit [OPTIONS] <NAME|--under PREFIX> [N|+N|-N|N --declare|--unpin]")]
pub(crate) struct SetLimit {
    #[command(flatten)]
    pub(crate) changed: Changed,

    /// The new limit, or with a sign the difference to the present one. A limit lower than the units that are
    /// held revokes no permit [default: show the limit]
    #[arg(value_name = "N", allow_negative_numbers = true, value_parser = value::change)]
    pub(crate) limit: Option<Change>,

    /// Let programs declare the limit again
    #[arg(long, conflicts_with = "limit")]
    pub(crate) unpin: bool,

    /// Declare N as a program does, in place of pinning it
    #[arg(long, conflicts_with = "unpin")]
    pub(crate) declare: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = help::LANE)]
#[command(
    override_usage = "permits lane [OPTIONS] <NAME|--under PREFIX> <LANE> [--limit N] [--floor N]|[--unpin]"
)]
pub(crate) struct SetLane {
    #[command(flatten)]
    pub(crate) changed: Changed,

    /// The lane, 1 to 120 bytes
    #[arg(value_parser = value::lane_name, allow_negative_numbers = true)]
    pub(crate) lane: Option<String>,

    /// The most units that the lane may hold, at least 1. None unless set.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = value::of_lane("lane_limit"))]
    pub(crate) limit: Option<u32>,

    /// The units up to which the lane is served before others, at most the limits. None unless set.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = value::of_lane("lane_floor"))]
    pub(crate) floor: Option<u32>,

    /// Let requests name the limit and the floor again
    #[arg(long, conflicts_with_all = ["limit", "floor"])]
    pub(crate) unpin: bool,
}

impl SetLane {
    /// The lane, and the change of it, if it is to be changed. With a prefix, the parser has taken LANE for
    /// NAME.
    pub(crate) fn settled(self) -> Result<(Changed, String, Option<Change>), Failure> {
        let Self { mut changed, lane, limit, floor, unpin } = self;
        let wrong = |why: String| Failure::new(exit::USAGE, why);
        let Names { name, under } = &mut changed.targets.names;
        let word = if under.is_some() && lane.is_none() { name.take() } else { None };
        let lane = match word {
            Some(word) => Some(value::lane_name(&word).map_err(wrong)?),
            None => lane,
        };
        let lane = lane.ok_or_else(|| wrong("the lane is missing: <LANE>".to_owned()))?;
        let change = match (unpin, limit, floor) {
            (true, ..) => Some(Change::UnpinLane { lane: lane.clone() }),
            (false, None, None) => None,
            _ => Some(Change::SetLane { lane: lane.clone(), limit, floor }.checked()?),
        };
        Ok((changed, lane, change))
    }
}

impl SetLimit {
    /// Moves N to its place, and the change that is no number, too. With a prefix, the parser has taken N for
    /// NAME.
    pub(crate) fn settled(mut self) -> Result<Self, Failure> {
        let Names { name, under } = &mut self.changed.targets.names;
        let wrong = |why: String| Failure::new(exit::USAGE, why);
        if under.is_some()
            && self.limit.is_none()
            && let Some(word) = name.take()
        {
            let limit = value::change(&word).map_err(|error| wrong(format!("{word:?} for [N]: {error}")))?;
            self.limit = Some(limit);
        }
        match (&self.limit, self.declare, self.unpin) {
            (None, true, _) => Err(wrong("--declare needs a limit: <N>".to_owned())),
            (Some(_), _, true) => Err(wrong("a limit cannot be used with --unpin".to_owned())),
            (None, _, true) => Ok(Self { limit: Some(Change::Unpin), ..self }),
            _ => Ok(self),
        }
    }
}

#[derive(Debug, clap::Args)]
#[command(after_help = help::ALERT)]
pub(crate) struct SetAlert {
    #[command(flatten)]
    pub(crate) changed: Changed,

    /// The longest wait that needs no look, 1ms to 366d. None unless set.
    #[arg(long, value_name = "TIME", allow_negative_numbers = true, value_parser = value::alert_wait)]
    pub(crate) wait: Option<Duration>,

    /// The most waiters that need no look, at least 1. None unless set.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = value::alert_waiting)]
    pub(crate) waiting: Option<u32>,

    /// Remove the thresholds
    #[arg(long, conflicts_with_all = ["wait", "waiting"])]
    pub(crate) off: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Delete {
    /// The semaphore, 1 to 200 bytes
    #[arg(value_parser = value::name)]
    pub(crate) name: String,

    /// Delete it also if it cannot be read, even if it is in use
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = help::PAUSE)]
pub(crate) struct Pause {
    #[command(flatten)]
    pub(crate) changed: Changed,

    /// The time after which the pause ends by itself, 1ms to 366d, rounded up to a millisecond
    // Of the flag:
    /// [default: until permits resume]
    #[arg(long = "for", value_name = "TIME", allow_negative_numbers = true, value_parser = value::pause)]
    pub(crate) time: Option<Duration>,

    /// The reason that people read, at most 1,000 bytes. Empty unless set.
    #[arg(long, value_name = "R", default_value = "", hide_default_value = true, value_parser = value::reason)]
    pub(crate) reason: String,
}

#[derive(Debug, clap::Args)]
#[command(after_help = help::CLOSE)]
pub(crate) struct Close {
    #[command(flatten)]
    pub(crate) changed: Changed,

    /// The reason that people read, at most 1,000 bytes. Empty unless set.
    #[arg(long, value_name = "R", default_value = "", hide_default_value = true, value_parser = value::reason)]
    pub(crate) reason: String,
}

#[derive(Debug, clap::Args)]
#[command(after_help = help::REVOKE)]
pub(crate) struct Revoke {
    #[command(flatten)]
    pub(crate) targets: Targets,

    /// The holder or waiter, as `permits status` shows it
    #[arg(value_parser = value::holder, required_unless_present_any = ["all", "under"], conflicts_with = "all")]
    pub(crate) holder: Option<String>,

    /// Revoke all holders and waiters
    #[arg(long)]
    pub(crate) all: bool,

    /// Take HOLDER as the beginning of a name, which must match only one of at most 1,000 holders and waiters
    #[arg(long, conflicts_with = "all")]
    pub(crate) partial: bool,

    /// The reason that people read, at most 1,000 bytes. Empty unless set.
    #[arg(long, value_name = "R", default_value = "", hide_default_value = true, value_parser = value::reason)]
    pub(crate) reason: String,
}

#[derive(Debug, clap::Args)]
#[command(after_help = help::DOCTOR)]
pub(crate) struct Doctor {
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,

    /// Print the commands that create a user with just the rights that permits needs
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
