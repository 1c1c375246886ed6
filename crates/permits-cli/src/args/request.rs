//! The options of a request for a permit, shared by the verbs that acquire.
//!
//! The help of an option of the library, above "Of the flag", is its documentation there: the test
//! `vocabulary` of the crate permits writes it.

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

    /// The number of units: at least 1, at most the limit. 1 unless set.
    #[arg(long, value_name = "W", default_value = "1", hide_default_value = true)]
    #[arg(allow_negative_numbers = true, value_parser = value::weight)]
    pub(crate) weight: u32,

    /// The lease: how long a permit, or a place in line, stays valid if your process dies and nothing renews
    /// it. 100ms to 1d.
    // Of the flag:
    /// run and hold renew it three times in that time [default: 15s; of acquire: 5m]
    #[arg(long, value_name = "TIME", allow_negative_numbers = true, value_parser = value::lease)]
    pub(crate) lease: Option<Duration>,

    /// The time for which the grant counts, up to 1d; 0 unless set. If the permit is released or lost
    /// earlier, its units cool: they stay taken until that time has passed since the grant. For example, a
    /// limit of 100 and one minute admit at most 100 in any minute.
    #[arg(long, value_name = "TIME", default_value = "0s", hide_default_value = true)]
    #[arg(allow_negative_numbers = true, value_parser = value::at_least)]
    pub(crate) at_least: Duration,

    /// The longest time for which the permit is held, at least 100ms; without limit unless set. The permit is
    /// lost then, even if it is renewed: for work that may hang.
    // Of the flag:
    /// run sends SIGTERM before, as for a permit that cannot be renewed
    #[arg(long, value_name = "TIME", allow_negative_numbers = true, value_parser = value::max_hold)]
    pub(crate) max_hold: Option<Duration>,

    /// A lane of the line, 1 to 120 bytes of printable UTF-8: a tenant, a user, a kind of work. Requests of
    /// one lane are granted in the order in which they came. Lanes that wait get units in proportion to their
    /// shares, so a thousand requests of one tenant do not stand before the first of another. Requests
    /// without a lane are one lane together. The share of the lane, 1 to 1,000; 1 unless set. While two lanes
    /// wait, one with the share 10 gets ten times the units of one with the share 1. Use the same share for
    /// all requests of a lane.
    // Of the flag:
    /// Written NAME or NAME=SHARE: --lane tenant-7, --lane interactive=100. The number after the last = is
    /// the share: if a name has an =, write one
    #[arg(long, value_name = "LANE", value_parser = value::lane)]
    pub(crate) lane: Option<LaneArg>,

    /// The most units that the requests of the lane hold together, at least 1; without limit unless set.
    /// While a lane is at its limit, its requests wait, and requests of other lanes pass them. Use the same
    /// limit for all requests of a lane: the latest counts.
    #[arg(long, value_name = "N", requires = "lane", allow_negative_numbers = true)]
    #[arg(value_parser = value::of_lane("lane_limit"))]
    pub(crate) lane_limit: Option<u32>,

    /// The units up to which the lane is served before others, at most the limits of the lane and of the
    /// semaphore. Unless you set it, or with 0, the request names no floor. While the lane holds fewer, it
    /// gets the next units. Use the same floor for all requests of a lane: the latest counts.
    #[arg(long, value_name = "N", requires = "lane", allow_negative_numbers = true)]
    #[arg(value_parser = value::of_lane("lane_floor"))]
    pub(crate) lane_floor: Option<u32>,

    /// The most requests of the lane that wait, this one included, at least 1; without bound unless set. The
    /// next one is refused, so one tenant cannot fill the line for all.
    #[arg(long, value_name = "N", requires = "lane", allow_negative_numbers = true)]
    #[arg(value_parser = value::of_lane("lane_waiters"))]
    pub(crate) lane_waiters: Option<u32>,

    /// The longest wait in line; without limit unless set. With 0 the request does not wait: it is granted
    /// now, or refused.
    // Of the flag:
    /// TIME is 500ms, 1.5s, 30s, 5m, 1h30m or a number of seconds, for example
    // The names that flock and other programs have.
    #[arg(long, alias = "timeout", short_alias = 'w', value_name = "TIME")]
    #[arg(allow_negative_numbers = true, value_parser = value::duration)]
    pub(crate) wait: Option<Duration>,

    /// Do not wait: get a permit now, or exit with code 75. Only the end of a recovery is waited for, if it
    /// is at most 5s away
    #[arg(long, aliases = ["nonblock", "nb"], short_alias = 'n', conflicts_with = "wait")]
    pub(crate) no_wait: bool,

    /// The name of this acquisition: 1 to 200 bytes of printable UTF-8. A holder has at most one permit of a
    /// semaphore: while it holds or waits, a second request with its name is refused. Unique unless set.
    #[arg(long, value_name = "H", value_parser = value::holder)]
    pub(crate) holder: Option<String>,

    /// A key, such as a branch: 1 to 120 bytes of printable UTF-8. At most one request waits for each key: a
    /// new request takes the place of the one that waits, which is refused. A permit with the key stays held.
    /// The request must wait: use a timeout above 0, or no timeout.
    // Of the flag:
    /// The request that is refused ends with code 75
    #[arg(long, value_name = "KEY", value_parser = value::supersede)]
    pub(crate) supersede: Option<String>,

    /// A note for operators, shown beside the holder: at most 120 bytes of printable UTF-8. Many holders may
    /// have the same label. An empty label means no label.
    // Of the flag:
    /// A longer one is cut, with a warning [default: $PERMITS_LABEL, else the user and the name of the
    /// command]
    #[arg(long, value_name = "TEXT", value_parser = value::label)]
    pub(crate) label: Option<String>,

    /// Refuse to run, with exit code 64, if a limit other than --limit is in force
    #[arg(long, requires = "limit")]
    pub(crate) require_limit: bool,

    /// How long a server grants nothing after a start, since it may have forgotten holders: not at all with
    /// off, long enough for connected holders to reconnect with interval, for the longest lease with strict
    // Of the flag:
    /// [default: as the URL says, else interval]
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
            lane_limit,
            lane_floor,
            lane_waiters,
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
        if let (Some(units), None) = (lane_limit, also) {
            options = options.lane_limit(*units);
        }
        if let (Some(units), None) = (lane_floor, also) {
            options = options.lane_floor(*units);
        }
        if let (Some(count), None) = (lane_waiters, also) {
            options = options.lane_waiters(*count);
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
    // The help is an attribute here, because rustdoc would take the brackets in a doc comment for links.
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
