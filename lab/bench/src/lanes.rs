//! `permits-lab lanes`: what bounds of lanes cost. One unit goes round among 5,000 lanes with a waiter each,
//! beside 5,000 lanes that hold a unit and have a waiter, too: with and without a limit, and with a floor.
//! The figures are the work of the server for a grant, and in `memory:` that of the process. They go to
//! `lab/performance.md`.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use permits::{AcquireOptions, Client, Recovery};
use permits_testkit::Server;
use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio::time::sleep;

use permits_bench::Failure;
use permits_bench::meter::Meter;
use permits_bench::page::{Part, digits};
use permits_bench::stats::median;

/// The place of the table, in the page on performance.
const TABLE: Part<'_> =
    Part { begin: "<!-- figures: written by scripts/lab lanes -->", end: "<!-- end of figures -->" };

const ROUNDS: usize = 5;

/// The lanes whose waiters get the unit that goes round, and those that hold a unit each.
const OPEN: u32 = 5_000;
const HOLDING: u32 = 5_000;

/// The grants before the measured ones, and these.
const WARM_UP: u64 = 2_000;
const GRANTS: u64 = 20_000;

/// The bounds of lanes that the requests name.
#[derive(Clone, Copy)]
enum Bounds {
    None,
    /// Each lane has a limit, and lanes that hold a unit are at theirs.
    Limit,
    /// Each lane has a floor that it has not reached.
    Floor,
}

impl Bounds {
    fn of(self, lane: &str, is_open: bool) -> AcquireOptions {
        let options = AcquireOptions::new().lane(lane);
        match self {
            Self::None => options,
            Self::Limit => options.lane_limit(if is_open { 2 } else { 1 }),
            Self::Floor => options.lane_floor(2),
        }
    }
}

pub(crate) fn run(is_quick: bool) -> Result<(), Failure> {
    let runtime = Runtime::new()?;
    let scale = if is_quick { 50 } else { 1 };
    let mut rows = String::from("| 10,000 lanes | Redis | `memory:` |\n|---|---:|---:|\n");
    let mut cases =
        [Bounds::None, Bounds::Limit, Bounds::Floor].map(|bounds| (bounds, Vec::new(), Vec::new()));
    for _ in 0..if is_quick { 1 } else { ROUNDS } {
        for (bounds, redis, memory) in &mut cases {
            let server = Server::start();
            let mut meter = Meter::new(&server)?;
            let (url, mut before) = (server.url(), None);
            let of_server = grant_us(&url, *bounds, scale, || match before {
                None => {
                    before = Some(meter.read()?);
                    Ok(0.0)
                }
                Some(before) => Ok(meter.since(before)?.processor_us),
            });
            redis.push(runtime.block_on(of_server)?);
            memory.push(runtime.block_on(grant_us("memory:", *bounds, scale, || Ok(process_us())))?);
        }
    }
    let medians = cases.map(|(_, redis, memory)| [median(redis), median(memory)]);
    let [none, limit, floor] = medians;
    rows += &format!("| µs a grant, without bounds | {} | {} |\n", digits(none[0]), digits(none[1]));
    for (what, [redis, memory]) in
        [("every lane has a limit, 5,000 are at theirs", limit), ("every lane is below its floor", floor)]
    {
        let row = format!(
            "| {what} / without bounds | {} | {} |\n",
            digits(redis / none[0]),
            digits(memory / none[1])
        );
        rows += &row;
    }
    println!("{rows}");
    if is_quick { Ok(()) } else { TABLE.put(&rows, Path::new("lab/performance.md")) }
}

/// The processor time of this process, in microseconds.
fn process_us() -> f64 {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    now.tv_sec as f64 * 1e6 + now.tv_nsec as f64 / 1e3
}

/// The work for a grant, by a counter of microseconds that is read before and after.
async fn grant_us(
    url: &str,
    bounds: Bounds,
    scale: u32,
    mut work_us: impl FnMut() -> Result<f64, Failure>,
) -> Result<f64, Failure> {
    let (open, holding) = (OPEN / scale, HOLDING / scale);
    let client =
        Client::builder(url).recovery(Recovery::Off).lease(Duration::from_secs(600)).connect().await?;
    let semaphore = client.semaphore("lanes", holding + 1)?;
    let mut held = Vec::new();
    for lane in 0..holding {
        held.push(semaphore.acquire_with(bounds.of(&format!("holds-{lane}"), false)).await?);
    }
    // The last unit waits for all.
    let first = semaphore.acquire_with(bounds.of("first", true)).await?;
    let grants = Arc::new(AtomicU64::new(0));
    let mut waiting = JoinSet::new();
    for number in 0..open + holding {
        let (lane, is_open) = if number < open { (number, true) } else { (number - open, false) };
        let lane = format!("{}-{lane}", if is_open { "open" } else { "holds" });
        let (semaphore, grants) = (semaphore.clone(), Arc::clone(&grants));
        waiting.spawn(async move {
            loop {
                let permit = semaphore.acquire_with(bounds.of(&lane, is_open)).await?;
                grants.fetch_add(1, Ordering::Relaxed);
                permit.release().await?;
            }
            #[expect(unreachable_code, reason = "the type of the loop's errors")]
            Ok::<(), Failure>(())
        });
    }
    while semaphore.inspect().await?.waiting < u64::from(open + holding) {
        sleep(Duration::from_millis(50)).await;
    }
    first.release().await?;
    let after = async |count: u64| {
        while grants.load(Ordering::Relaxed) < count {
            sleep(Duration::from_millis(5)).await;
        }
        grants.load(Ordering::Relaxed)
    };
    let at_first = after(WARM_UP / u64::from(scale)).await;
    let before = work_us()?;
    let at_last = after(at_first + GRANTS / u64::from(scale)).await;
    let spent = work_us()? - before;
    waiting.shutdown().await;
    Ok(spent / (at_last - at_first) as f64)
}
