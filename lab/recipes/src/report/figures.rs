//! The figures that are measured, recipe by recipe in turn, so that other load on the machine meets all of
//! them.

use std::process::id;
use std::time::Duration;

use permits_bench::Failure;
use permits_bench::modes::{Awake, Mode};

use crate::Kind;
use crate::experiments::Fixture;
use crate::experiments::cost::{self, Crowd, Cycle};
use crate::experiments::herd::{self, Herd};

/// The numbers of waiters.
pub(super) const HERDS: [usize; 3] = [10, 100, 1000];

/// The herds of each recipe, in the order of [`HERDS`].
pub(super) type Herds = Vec<Vec<Herd>>;

/// The repetitions of each measurement. The best is kept, because other load only takes away, and takes more
/// from recipes that use several threads.
const ROUNDS: usize = 9;

/// The time of one measurement.
const DURING: Duration = Duration::from_millis(250);

pub(super) async fn herds() -> Result<Herds, Failure> {
    let mut herds = Vec::new();
    for kind in Kind::ALL {
        eprintln!("herd of {kind}");
        let mut row = Vec::new();
        for waiters in HERDS {
            row.push(herd::waiters(&Fixture::start(), kind, waiters, 6 * DURING).await?);
        }
        herds.push(row);
    }
    Ok(herds)
}

/// A cycle or a refusal, as often as possible.
#[derive(Clone, Copy)]
pub(super) struct Workload {
    pub(super) name: &'static str,
    /// A shorter name, for a plot.
    pub(super) label: &'static str,
    work: Work,
}

#[derive(Clone, Copy)]
enum Work {
    Cycles(Crowd),
    Refusals,
}

const fn cycles(
    [name, label]: [&'static str; 2],
    [processes, tasks, limit]: [u32; 3],
    poll_ms: u64,
) -> Workload {
    let poll = Duration::from_millis(poll_ms);
    Workload { name, label, work: Work::Cycles(Crowd { processes, tasks, limit, poll, keeps: false }) }
}

/// All workloads.
pub(super) const WORKLOADS: [Workload; 6] = [
    cycles(["one task", "one task"], [1, 1, 5], 10),
    cycles(["64 tasks, room for all", "64 tasks"], [1, 64, 64], 10),
    cycles(["16 processes, room for all", "16 processes"], [16, 1, 16], 10),
    Workload { name: "64 tasks, all refused", label: "refused", work: Work::Refusals },
    cycles(["64 tasks for 4, trying every 10 ms", "64 for 4"], [1, 64, 4], 10),
    cycles(["64 tasks for 4, trying without a pause", "64 for 4, no pause"], [1, 64, 4], 0),
];

/// Indices of workloads: one task, many tasks, which stand for speed in the summary, and many processes.
pub(super) const ONE: usize = 0;
pub(super) const MANY: usize = 1;
pub(super) const PROCESSES: usize = 2;

/// Cost and speed, in the order of [`Kind::ALL`].
pub(super) struct Cost {
    /// The mode in which it was measured.
    pub(super) mode: Mode,
    pub(super) cycles: Vec<Cycle>,
    /// The speed of the recipes against `permits`: above 1 the recipe is faster.
    pub(super) ratios: Vec<Vec<f64>>,
    /// The speed of `permits`, a second.
    pub(super) ours: Vec<f64>,
    /// The speed of `permits` where it keeps permits, against its speed without; `None` for refusals.
    pub(super) kept: Vec<Option<f64>>,
}

pub(super) async fn cost(mode: Mode) -> Result<Cost, Failure> {
    let awake = if mode == Mode::Awake { Some(Awake::start()?) } else { None };
    if let Some(awake) = &awake {
        // The recipes are tasks of this process.
        awake.pin_client(id())?;
    }
    let cost = cost_in(mode, awake.as_ref()).await;
    if let Some(awake) = &awake {
        awake.free(id())?;
    }
    cost
}

async fn cost_in(mode: Mode, awake: Option<&Awake>) -> Result<Cost, Failure> {
    let fixture = || {
        let fixture = Fixture::start();
        awake.map_or(Ok(()), |awake| awake.pin_server(fixture.server.pid()))?;
        Ok::<_, Failure>(fixture)
    };
    eprintln!("cycles, {}", mode.name());
    let mut cycles = Vec::new();
    for round in 0..ROUNDS {
        for (row, kind) in Kind::ALL.into_iter().enumerate() {
            let cycle = cost::alone(&fixture()?, kind, 2000).await?;
            if round == 0 {
                cycles.push(cycle);
            }
            let best: &mut Cycle = &mut cycles[row];
            best.us = best.us.min(cycle.us);
            best.server_us = best.server_us.min(cycle.server_us);
        }
    }
    let (mut ratios, mut ours, mut kept) = (vec![Vec::new(); Kind::ALL.len()], Vec::new(), Vec::new());
    for workload in WORKLOADS {
        eprintln!("speed, {}: {}", mode.name(), workload.name);
        let (mut best, mut best_kept) = ([0.0_f64; Kind::ALL.len()], None);
        for _ in 0..ROUNDS {
            for (best, kind) in best.iter_mut().zip(Kind::ALL) {
                let fixture = fixture()?;
                let rate = match workload.work {
                    Work::Cycles(crowd) => cost::throughput(&fixture, kind, crowd, DURING).await?,
                    Work::Refusals => cost::refusals(&fixture, kind, DURING).await?,
                };
                *best = best.max(rate);
            }
            if let Work::Cycles(crowd) = workload.work {
                let crowd = Crowd { keeps: true, ..crowd };
                let rate = cost::throughput(&fixture()?, Kind::Permits, crowd, DURING).await?;
                best_kept = Some(rate.max(best_kept.unwrap_or_default()));
            }
        }
        let reference = best[Kind::ALL.len() - 1];
        for (row, rate) in ratios.iter_mut().zip(best) {
            row.push(rate / reference);
        }
        ours.push(reference);
        kept.push(best_kept.map(|rate| rate / reference));
    }
    Ok(Cost { mode, cycles, ratios, ours, kept })
}
