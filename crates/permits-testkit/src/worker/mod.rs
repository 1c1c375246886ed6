//! Worker processes: clients of a semaphore that a test starts, commands, pauses and kills.
//!
//! A [`WorkerPool`] starts workers and collects their records. A worker is the test's own executable, started
//! again with [`run_if_started`] as its entry point. It reads one [`WorkerCommand`] a line from standard
//! input and ends with it, so that no worker outlives its test. It writes one
//! [`ClientRecord`](crate::history::ClientRecord) a line to standard output, by the one clock of this host.
//!
//! Two kinds of use:
//!
//! - **Step by step**: the test asks for one acquisition at a time ([`Worker::ask`], [`Worker::release`]) and
//!   waits for the record that it needs.
//! - **Load**: the worker runs loops that acquire, hold and release, as a [`Work`] describes: weights,
//!   leases, timeouts, cancelled requests.
//!
//! A [driver](WorkerPool::driver) of a client in any language may be the process of a worker. Its loops run
//! in the test, and it takes no single acquisitions.
//!
//! The work that a permit protects is simulated by steps. Before each step the worker asks the permit whether
//! it is held, as a careful program would. With a [fence](WorkerSettings::fence) each step also writes to the
//! fenced resource, and after a loss the worker writes once more, as a suspended program might: the resource
//! has to refuse that write.

mod driven;
mod pool;
mod process;

use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub(crate) use self::driven::USED;
pub use self::pool::{Worker, WorkerPool, micros, test_command};
pub use self::process::{holder, parse_holder, parse_unique_holder, run_if_started};

/// The semaphore of the workers, unless their settings name others. Each test has a store of its own.
pub const SEMAPHORE: &str = "faults";

/// The environment variable with the settings of a worker, in JSON.
const SETTINGS: &str = "PERMITS_WORKER";

/// The settings that a worker starts with.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WorkerSettings {
    /// The number of this worker in its pool, from 1; the pool assigns it.
    pub number: usize,
    /// The URL by which the worker reaches the store.
    pub url: String,
    /// The prefix of the keys.
    pub prefix: String,
    /// The first part of the client's label and of the names that its requests set.
    pub label: String,
    /// The semaphores. Loops draw one of them for each turn; single acquisitions use the first.
    pub semaphores: Vec<String>,
    /// The limit that the worker declares.
    pub limit: u32,
    /// The lease of the client.
    pub lease: Duration,
    /// The time for which the client keeps a permit that it released. Then its requests name no holder.
    pub keep: Option<Duration>,
    /// The seed of the loops.
    pub seed: u64,
    /// The time between two steps of a holder. `None`: the worker reports no acquisitions, only their
    /// [`Counts`].
    pub step: Option<Duration>,
    /// The socket of the fenced resource.
    pub fence: Option<PathBuf>,
}

impl WorkerSettings {
    /// Settings for one semaphore, with steps of 20 ms, and no fence.
    pub fn new(limit: u32, lease: Duration) -> Self {
        Self {
            number: 0,
            url: String::new(),
            prefix: "permits".to_owned(),
            label: "worker".to_owned(),
            semaphores: vec![SEMAPHORE.to_owned()],
            limit,
            lease,
            keep: None,
            seed: 0,
            step: Some(Duration::from_millis(20)),
            fence: None,
        }
    }
}

/// A command to a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum WorkerCommand {
    /// Acquire a permit, hold it for `hold` or until `Release`, and release it.
    Acquire {
        /// The tag of the acquisition.
        tag: String,
        /// The time to hold the permit; `None`: until [`WorkerCommand::Release`].
        hold: Option<Duration>,
    },
    /// Release the permit of this acquisition.
    Release {
        /// The tag of the acquisition.
        tag: String,
    },
    /// Begin loops.
    Work(Work),
    /// End the loops, each after its release. The worker reports `Stopped`.
    Stop,
    /// Fork a child that tries the inherited client, which has to refuse, and takes a turn with a client of
    /// its own.
    Fork,
    /// Close the client and end. The worker reports `Closed`.
    Close,
}

/// Loops of acquire, hold, release and rest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// The loops that run at once.
    pub loops: usize,
    /// The weights of the requests.
    pub weight: Mix<u32>,
    /// The leases of the requests, if they are not the client's.
    pub lease: Option<Mix<Duration>>,
    /// The lanes that the requests are divided among, each with as great a share as its number; 0: none.
    pub lanes: u32,
    /// The limit of each lane; 0: none.
    pub lane_limit: u32,
    /// The floor of every second lane; 0: none.
    pub lane_floor: u32,
    /// Every other turn acquires all semaphores of the worker at once.
    pub sets: bool,
    /// The ways of waiting.
    pub wait: Mix<Wait>,
    /// The times for which permits are held.
    pub hold: Mix<Range<Duration>>,
    /// The times between two turns.
    pub rest: Mix<Range<Duration>>,
    /// The share of the permits that are dropped instead of released.
    pub dropped: f64,
}

impl Work {
    /// Loops with requests of weight 1 that wait, hold for at most `hold`, and rest for at most `hold`.
    pub fn brief(loops: usize, hold: Duration) -> Self {
        let times = Duration::ZERO..hold;
        Self {
            loops,
            weight: Mix::all(1),
            lease: None,
            lanes: 0,
            lane_limit: 0,
            lane_floor: 0,
            sets: false,
            wait: Mix::all(Wait::Granted),
            hold: Mix::all(times.clone()),
            rest: Mix::all(times),
            dropped: 0.0,
        }
    }
}

/// How long a request of a loop waits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Wait {
    /// The request waits until it is granted.
    Granted,
    /// The request has a timeout from this range.
    Timeout(Range<Duration>),
    /// The request's future is dropped after a time from this range.
    Cancel(Range<Duration>),
}

/// Choices with their shares: `(3, a), (1, b)` draws `a` three times as often as `b`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mix<T>(pub Vec<(u32, T)>);

impl<T> Mix<T> {
    /// All get the same choice.
    pub fn all(choice: T) -> Self {
        Self(vec![(1, choice)])
    }

    fn draw(&self, random: &mut fastrand::Rng) -> &T {
        let shares: u32 = self.0.iter().map(|(share, _)| share).sum();
        let mut left = random.u32(..shares);
        let drawn = self.0.iter().find(|(share, _)| {
            let hit = left < *share;
            left = left.saturating_sub(*share);
            hit
        });
        &drawn.expect("a number below the sum of all shares").1
    }
}

fn draw_time(random: &mut fastrand::Rng, range: &Range<Duration>) -> Duration {
    range.start + range.end.saturating_sub(range.start).mul_f64(random.f64())
}

/// The ends of a worker's acquisitions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Requests.
    pub asked: u64,
    /// Requests that were granted.
    pub granted: u64,
    /// Grants that the client made itself from permits that it kept, included in `granted`.
    pub granted_again: u64,
    /// Requests that ended by their timeout or were cancelled.
    pub given_up: u64,
    /// Requests that an operator revoked.
    pub revoked: u64,
    /// Requests that failed otherwise.
    pub failed: u64,
    /// Permits that were lost.
    pub lost: u64,
}

impl Counts {
    /// Adds the counts of another worker.
    pub fn add(&mut self, other: &Self) {
        self.asked += other.asked;
        self.granted += other.granted;
        self.granted_again += other.granted_again;
        self.given_up += other.given_up;
        self.revoked += other.revoked;
        self.failed += other.failed;
        self.lost += other.lost;
    }
}
