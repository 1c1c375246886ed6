//! The options of a request for a permit, shared by the verbs that acquire.

use std::time::Duration;

use clap::ValueEnum;
use permits::{AcquireOptions, Recovery};

use super::value::{self, Also, LaneArg};
use crate::exit;

// The options of a request for a permit of one semaphore.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Request {
    /// The number of units that may be held at once [default: the stored limit]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = value::limit)]
    pub(crate) limit: Option<u32>,

    /// The number of units to hold
    #[arg(long, value_name = "W", allow_negative_numbers = true, default_value = "1", value_parser = value::weight)]
    pub(crate) weight: u32,

    /// Time that the permit lasts without renewal, 100ms to 24h. run and hold renew it three times in that
    /// time; if this machine dies, it ends by itself [default: 15s; of acquire: 5m]
    #[arg(long, value_name = "TIME", allow_negative_numbers = true, value_parser = value::lease)]
    pub(crate) lease: Option<Duration>,

    /// Time for which the permit counts, from its grant on, up to 24h: if it is released earlier, its units
    /// are granted again only then
    #[arg(long, value_name = "TIME", default_value = "0s", hide_default_value = true)]
    #[arg(allow_negative_numbers = true, value_parser = value::at_least)]
    pub(crate) at_least: Duration,

    /// The longest time for which run and hold keep the permit, at least 100ms: then it is lost. run sends
    /// SIGTERM before, as for a permit that cannot be renewed [default: without limit]
    #[arg(long, value_name = "TIME", allow_negative_numbers = true, value_parser = value::max_hold)]
    pub(crate) max_hold: Option<Duration>,

    /// A lane of the line: its requests keep their order, and lanes that wait get units in proportion to
    /// their shares, 1 to 1000. Written NAME or NAME=SHARE: --lane tenant-7, --lane interactive=100 [default:
    /// the lane of all requests without one, and share 1]
    #[arg(long, value_name = "LANE", value_parser = value::lane)]
    pub(crate) lane: Option<LaneArg>,

    /// Time to wait in line, such as 500ms, 1.5s, 30s, 5m, 1h30m or a number of seconds
    /// [default: without limit]
    // The names that flock and other programs have.
    #[arg(long, alias = "timeout", short_alias = 'w', value_name = "TIME")]
    #[arg(allow_negative_numbers = true, value_parser = value::duration)]
    pub(crate) wait: Option<Duration>,

    /// Do not wait: get a permit now, or exit with code 75. Only the end of a recovery is waited for, if it
    /// is at most 5s away
    #[arg(long, aliases = ["nonblock", "nb"], short_alias = 'n', conflicts_with = "wait")]
    pub(crate) no_wait: bool,

    /// The holder's name. A holder has at most one permit of a semaphore [default: a unique name]
    #[arg(long, value_name = "H", value_parser = value::holder)]
    pub(crate) holder: Option<String>,

    /// A key, such as a branch: of the requests that wait with it the newest stays, in the place in line of
    /// the one before it, which ends with code 75. A permit with the key is held on
    #[arg(long, value_name = "KEY", value_parser = value::supersede)]
    pub(crate) supersede: Option<String>,

    /// A text shown with the holder's name; it need not be unique. It is cut after 120 bytes, with a warning.
    /// An empty one shows none
    /// [default: $PERMITS_LABEL, else the user and the name of the command]
    #[arg(long, value_name = "TEXT", value_parser = value::label)]
    pub(crate) label: Option<String>,

    /// Refuse to run, with exit code 64, if a limit other than --limit is in force
    #[arg(long, requires = "limit")]
    pub(crate) require_limit: bool,

    /// Time in which a server grants nothing after a start, since it may have forgotten holders: none with
    /// off, enough for connected holders to reconnect with interval, the longest lease with strict [default:
    /// as the URL says, else interval]
    #[arg(long, value_name = "HOW", value_enum)]
    pub(crate) recovery: Option<RecoveryArg>,

    /// Print nothing on standard error if others hold the units, or wait for them. A pause, a closed line, a
    /// revocation and a recovery are reported
    #[arg(short, long)]
    pub(crate) quiet: bool,

    /// The exit code if others hold the units, or wait for them, 0 to 255. It is 75 if an operator or a
    /// recovery stops all
    #[arg(short = 'E', long, value_name = "N", default_value_t = exit::NOT_NOW)]
    #[arg(allow_negative_numbers = true, value_parser = value::exit_code)]
    pub(crate) conflict_exit_code: u8,
}

impl Request {
    /// The options of the request for NAME, or for another semaphore.
    pub(crate) fn options(&self, also: Option<&Also>) -> AcquireOptions {
        // Each argument is named, so that a new one does not compile until it is passed on, or need not be.
        let Self {
            weight,
            lease,
            at_least,
            max_hold,
            lane,
            wait,
            no_wait,
            holder,
            supersede,
            label,
            limit: _,
            require_limit: _,
            recovery: _,
            quiet: _,
            conflict_exit_code: _,
        } = self;
        let (weight, lane, at_least) = match also {
            None => (*weight, lane, *at_least),
            Some(Also { weight, lane, name: _, limit: _ }) => (*weight, lane, Duration::ZERO),
        };
        let mut options = AcquireOptions::new().weight(weight).at_least(at_least);
        if *no_wait {
            options = options.no_wait();
        }
        if let Some(wait) = wait {
            options = options.timeout(*wait);
        }
        if let Some(holder) = holder {
            options = options.holder(holder);
        }
        if let Some(label) = label {
            options = options.label(value::cut_label(label));
        }
        if let Some(LaneArg { name, share }) = lane {
            options = options.lane(name).share(*share);
        }
        if let Some(lease) = lease {
            options = options.lease(*lease);
        }
        if let Some(time) = max_hold {
            options = options.max_hold(*time);
        }
        if let Some(key) = supersede {
            options = options.supersede(key);
        }
        options
    }
}

// The other semaphores of a request for several permits.
#[derive(Debug, clap::Args)]
pub(crate) struct Others {
    // No documentation comment: rustdoc would take the brackets for links.
    #[arg(
        long,
        value_name = "SEMAPHORE",
        value_parser = value::also,
        help = "Another semaphore to hold a permit of, written NAME[=LIMIT][:WEIGHT][@LANE[=SHARE]] \
                [default: the stored limit, 1 unit, no lane]: all are held, or none. Can be given several times"
    )]
    pub(crate) also: Vec<Also>,
}

/// [`Recovery`] as a value of `--recovery`.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum RecoveryArg {
    Off,
    Interval,
    Strict,
}

impl From<RecoveryArg> for Recovery {
    fn from(recovery: RecoveryArg) -> Self {
        match recovery {
            RecoveryArg::Off => Self::Off,
            RecoveryArg::Interval => Self::Interval,
            RecoveryArg::Strict => Self::Strict,
        }
    }
}
