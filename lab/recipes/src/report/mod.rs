//! `scripts/lab recipes`: runs every experiment on every recipe, prints the outcomes, and writes them into
//! lab/recipes/README.md, with plots. It prints the aims, too.
//!
//! The document is written by hand, except the parts between `<!-- measured: NAME -->` and `<!-- end -->`,
//! which are replaced. Forced outcomes are the same each time; measured figures are for comparing within the
//! run.

mod figures;
mod plots;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use permits_bench::Failure;
use permits_bench::aims::{self, Aim, Bound};
use permits_bench::modes::{Mode, available};
use permits_bench::page::Part;

use crate::Kind;
use crate::experiments::clocks::{mixed_leases, over_admission};
use crate::experiments::crash::{self, Fate};
use crate::experiments::initialise::{Cleared, Crowd, cleared, crowd, first_client_dies};
use crate::experiments::order::{LINE, Order};
use crate::experiments::race::{Race, stalled_in_the_lock, two_for_one_place};
use crate::experiments::{Capacity, Fixture, LIMIT, NEVER, SHORT_LEASE, lost, on_each, order};

use self::figures::{Cost, HERDS, Herds};

/// The skews of the table, in milliseconds, and their names.
const SKEWS: [(i64, &str); 3] = [(10, "10 ms"), (1000, "1 s"), (60_000, "1 min")];

/// Runs all experiments, and writes the results into `lab/recipes/README.md`.
///
/// # Errors
///
/// If a server or a recipe fails, or the document lacks a marker.
pub fn run() -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (modes, not_awake) = available(vec![Mode::Quiet, Mode::Awake]);
    let (outcomes, skews, herds, costs) = runtime.block_on(async {
        eprintln!("experiments");
        let outcomes = Outcomes::collect().await?;
        let skews = skew_curve().await?;
        let herds = figures::herds().await?;
        let mut costs = Vec::new();
        for mode in modes {
            costs.push(figures::cost(mode).await?);
        }
        Ok::<_, Failure>((outcomes, skews, herds, costs))
    })?;
    let sections = [
        ("claims", claims(&outcomes, &costs[0])),
        ("initialisation", initialisation(&outcomes)),
        ("clocks", clocks(&outcomes)),
        ("race", race(&outcomes)),
        ("crashes", crashes(&outcomes)),
        ("lost", lost_replies(&outcomes)),
        ("order", orders(&outcomes)),
        ("herd", herd(&herds)),
        ("cycle", each_mode(&costs, not_awake.as_deref(), cycle)),
        ("speed", each_mode(&costs, not_awake.as_deref(), speed)),
    ];
    let page = here.join("README.md");
    for (name, text) in &sections {
        println!("{name}\n\n{text}");
        let begin = format!("<!-- measured: {name} -->");
        Part { begin: &begin, end: "<!-- end -->" }.put(text, &page)?;
    }
    println!("{}", aims::table(&aims(&costs)));
    let plots: PathBuf = here.join("plots");
    std::fs::create_dir_all(&plots)?;
    plots::skews(&plots.join("clocks.svg"), &skews)?;
    plots::herds(&plots.join("herd-requests.svg"), &herds, plots::Herding::Requests)?;
    plots::herds(&plots.join("herd-grants.svg"), &herds, plots::Herding::Grants)?;
    plots::speed(&plots.join("speed.svg"), &costs[0])
}

/// The aims for the rates of the recipes against those of `permits`: of the fastest recipe.
fn aims(costs: &[Cost]) -> Vec<Aim> {
    let fastest = |cost: &Cost, workload: usize| {
        let recipes = cost.ratios.iter().zip(Kind::ALL).filter(|(_, kind)| *kind != Kind::Permits);
        recipes.map(|(ratios, _)| ratios[workload]).reduce(f64::max)
    };
    let aim = |what: &str, workload: usize, cost: &Cost, value, bound| Aim {
        workload: "recipes",
        what: format!("{what}, {}", figures::WORKLOADS[workload].name),
        mode: cost.mode,
        value,
        bound,
    };
    let mut aims = Vec::new();
    for (workload, bound) in [(figures::ONE, 1.5), (figures::PROCESSES, 2.5), (figures::MANY, 1.2)] {
        aims.extend(costs.iter().map(|cost| {
            let value = fastest(cost, workload);
            aim("rate of the fastest recipe / ours", workload, cost, value, Bound::AtMost(bound))
        }));
    }
    aims.extend(costs.iter().map(|cost| {
        let workload = figures::PROCESSES;
        let value = cost.kept[workload].zip(fastest(cost, workload)).map(|(kept, fastest)| kept / fastest);
        aim("kept: our rate / the fastest recipe's", workload, cost, value, Bound::AtLeast(20.0))
    }));
    aims
}

/// A table for each mode, under its name.
fn each_mode(costs: &[Cost], not_awake: Option<&str>, one: impl Fn(&Cost) -> String) -> String {
    let tables = costs.iter().map(|cost| format!("In the mode {}:\n\n{}", cost.mode.name(), one(cost)));
    let lacking = not_awake.map(|reason| format!("The mode awake is missing: {reason}.\n"));
    tables.chain(lacking).collect::<Vec<_>>().join("\n")
}

/// The outcomes of the experiments, in the order of [`Kind::ALL`].
struct Outcomes {
    skews: [Vec<u32>; 3],
    mixed: Vec<u32>,
    races: Vec<Race>,
    stalled: bool,
    holder: Vec<Option<Duration>>,
    left_alone: Vec<u32>,
    waiter_dies: Vec<Option<Duration>>,
    waiter_vanishes: Vec<Option<Duration>>,
    long_work: Vec<u32>,
    crowds: Vec<Crowd>,
    first_dies: Vec<u32>,
    cleared: Vec<Cleared>,
    release: Vec<Capacity>,
    acquisition: Vec<Capacity>,
    newcomer: Vec<bool>,
    lines: Vec<Order>,
}

impl Outcomes {
    async fn collect() -> Result<Self, Failure> {
        let skewed = |skew_ms| {
            on_each(move |fixture, kind| async move { over_admission(&fixture, kind, skew_ms).await })
        };
        Ok(Self {
            skews: [skewed(SKEWS[0].0).await?, skewed(SKEWS[1].0).await?, skewed(SKEWS[2].0).await?],
            mixed: on_each(|fixture, kind| async move { mixed_leases(&fixture, kind).await }).await?,
            races: on_each(|fixture, kind| async move { two_for_one_place(&fixture, kind).await }).await?,
            stalled: stalled_in_the_lock(&Fixture::start()).await?,
            holder: on_each(|fixture, kind| async move { crash::holder(&fixture, kind).await }).await?,
            left_alone: on_each(
                |fixture, kind| async move { crash::holder_left_alone(&fixture, kind).await },
            )
            .await?,
            waiter_dies: on_each(
                |fixture, kind| async move { crash::waiter(&fixture, kind, Fate::Dies).await },
            )
            .await?,
            waiter_vanishes: on_each(|fixture, kind| async move {
                crash::waiter(&fixture, kind, Fate::Vanishes).await
            })
            .await?,
            long_work: on_each(|fixture, kind| async move { crash::long_work(&fixture, kind).await }).await?,
            crowds: on_each(|fixture, kind| async move { crowd(&fixture, kind).await }).await?,
            first_dies: on_each(|fixture, kind| async move { first_client_dies(&fixture, kind).await })
                .await?,
            cleared: on_each(|fixture, kind| async move { cleared(&fixture, kind).await }).await?,
            release: on_each(|fixture, kind| async move { lost::release(&fixture, kind).await }).await?,
            acquisition: on_each(|fixture, kind| async move { lost::acquisition(&fixture, kind).await })
                .await?,
            newcomer: on_each(|fixture, kind| async move { order::newcomer_overtakes(&fixture, kind).await })
                .await?,
            lines: on_each(|fixture, kind| async move { order::line(&fixture, kind).await }).await?,
        })
    }
}

/// The number admitted beyond the limit, for skews from a millisecond to 17 minutes.
async fn skew_curve() -> Result<Vec<(i64, Vec<u32>)>, Failure> {
    let mut curve = Vec::new();
    for power in 0..=20 {
        let skew_ms = 1 << power;
        let extra =
            on_each(move |fixture, kind| async move { over_admission(&fixture, kind, skew_ms).await })
                .await?;
        curve.push((skew_ms, extra));
    }
    Ok(curve)
}

/// A table with a row for each recipe.
fn table(columns: &[&str], row: impl Fn(usize, Kind) -> Vec<String>) -> String {
    let mut text = format!("| recipe | {} |\n|---|{}\n", columns.join(" | "), "---|".repeat(columns.len()));
    for (number, kind) in Kind::ALL.into_iter().enumerate() {
        let name = if kind == Kind::Permits { "**permits**".to_owned() } else { kind.to_string() };
        writeln!(text, "| {name} | {} |", row(number, kind).join(" | ")).expect("a string takes any text");
    }
    text
}

fn number(count: impl ToString) -> String {
    count.to_string()
}

/// Bold where more than the limit were admitted.
fn extra(count: u32) -> String {
    if count == 0 { "0".into() } else { format!("**{count}**") }
}

fn room(capacity: Capacity) -> String {
    let Capacity { admitted, slots } = capacity;
    let count = if admitted == LIMIT { admitted.to_string() } else { format!("**{admitted}**") };
    if slots > 0 && slots < admitted.min(LIMIT) {
        format!("{count}, **{slots} different numbers**")
    } else {
        count
    }
}

fn took(time: Option<Duration>) -> String {
    match time {
        Some(time) if time < Duration::from_millis(100) => "at once".into(),
        Some(time) => format!("{:.1} s", time.as_secs_f64()),
        None => format!("**not in {} s**", NEVER.as_secs()),
    }
}

fn claims(outcomes: &Outcomes, cost: &Cost) -> String {
    let columns = ["initialisation", "consistency", "timeouts", "fairness", "speed"];
    table(&columns, |number, kind| {
        let first = outcomes.first_dies[number];
        let begin = match outcomes.cleared[number].afterwards.admitted {
            LIMIT => format!("{first} of {LIMIT} places"),
            places => format!("{first} of {LIMIT} places; {places} after a second beginning"),
        };
        let worst = SKEWS.iter().zip(&outcomes.skews).find(|(_, extra)| extra[number] > 0);
        let clocks = match worst {
            Some(((_, skew), extra)) => format!("+{} with clocks {skew} apart", extra[number]),
            None => "no clock".into(),
        };
        let race = outcomes.races[number];
        let consistency = format!("{clocks}; {} of {} interleavings", race.both, race.schedules);
        let crash = match outcomes.holder[number] {
            Some(time) => {
                format!("place back after {:.1} leases", time.as_secs_f64() / SHORT_LEASE.as_secs_f64())
            }
            None => "place never back".into(),
        };
        let overtaking = if outcomes.newcomer[number] { "newcomers overtake" } else { "in order" };
        let fairness = format!("{overtaking}; {} inversions", outcomes.lines[number].inversions);
        let speed = match kind {
            Kind::Permits => format!("{:.0}k cycles/s", cost.ours[figures::MANY] / 1e3),
            _ => format!("{:.2} ×", cost.ratios[number][figures::MANY]),
        };
        vec![begin, consistency, crash, fairness, speed]
    })
}

fn initialisation(outcomes: &Outcomes) -> String {
    let columns = [
        "admitted of 50 at once",
        "room then",
        "room after the first died",
        "admitted beside the holders when cleared",
        "room then",
    ];
    table(&columns, |row, _| {
        let (crowd, cleared) = (outcomes.crowds[row], outcomes.cleared[row]);
        let first = outcomes.first_dies[row];
        let first = if first == LIMIT { number(first) } else { format!("**{first}**") };
        let got_in = crowd.admitted;
        let got_in = if got_in == LIMIT { number(got_in) } else { format!("**{got_in}**") };
        vec![got_in, room(crowd.afterwards), first, extra(cleared.beside), room(cleared.afterwards)]
    })
}

fn clocks(outcomes: &Outcomes) -> String {
    table(&["10 ms apart", "1 s", "1 min", "mixed leases"], |row, _| {
        let mut cells: Vec<_> = outcomes.skews.iter().map(|skew| extra(skew[row])).collect();
        cells.push(extra(outcomes.mixed[row]));
        cells
    })
}

fn race(outcomes: &Outcomes) -> String {
    let columns = ["schedules", "both admitted", "neither", "held up inside for longer than the lock"];
    table(&columns, |row, kind| {
        let race = outcomes.races[row];
        let stalled = match (kind, outcomes.stalled) {
            (Kind::LockedFairZset, true) => "**both admitted**",
            (Kind::LockedFairZset, false) => "one admitted",
            _ => "",
        };
        vec![number(race.schedules), extra(race.both), extra(race.neither), stalled.into()]
    })
}

fn crashes(outcomes: &Outcomes) -> String {
    let columns = [
        "holder crashed: a waiter has the place after",
        "room after two leases without a request",
        "waiter's process dies: the next waiter has the place after",
        "waiter's machine vanishes: the same",
        "work for two leases: others admitted",
    ];
    table(&columns, |row, _| {
        let left_alone = outcomes.left_alone[row];
        let left_alone = if left_alone == LIMIT { number(left_alone) } else { format!("**{left_alone}**") };
        vec![
            took(outcomes.holder[row]),
            left_alone,
            took(outcomes.waiter_dies[row]),
            took(outcomes.waiter_vanishes[row]),
            extra(outcomes.long_work[row]),
        ]
    })
}

fn lost_replies(outcomes: &Outcomes) -> String {
    table(&["room after 5 releases sent twice", "room after 5 acquisitions sent twice"], |row, _| {
        vec![room(outcomes.release[row]), room(outcomes.acquisition[row])]
    })
}

fn orders(outcomes: &Outcomes) -> String {
    let inversions = format!("inversions, of {} pairs", LINE * (LINE - 1) / 2);
    let newcomers = format!("newcomers that were admitted first, of {LINE}");
    table(&["a faster newcomer", &inversions, &newcomers], |row, _| {
        let overtakes = if outcomes.newcomer[row] { "**overtakes**" } else { "is refused" };
        let line = outcomes.lines[row];
        vec![overtakes.into(), number(line.inversions), number(line.overtaken)]
    })
}

fn herd(herds: &Herds) -> String {
    let mut columns: Vec<String> = Vec::new();
    for what in ["requests a grant", "server µs a grant", "grants/s"] {
        columns.extend(HERDS.map(|waiters| format!("{what}, {waiters}")));
    }
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    table(&columns, |row, _| {
        let herds = &herds[row];
        let requests = herds.iter().map(|herd| each(herd.requests_per_grant, 1));
        let server = herds.iter().map(|herd| each(herd.server_us_per_grant, 0));
        let grants = herds.iter().map(|herd| format!("{:.0}", herd.grants_per_second));
        requests.chain(server).chain(grants).collect()
    })
}

/// Formats a cost with this many decimals.
fn each(value: f64, decimals: usize) -> String {
    if value.is_finite() { format!("{value:.decimals$}") } else { "**no grant**".into() }
}

fn cycle(cost: &Cost) -> String {
    table(&["round trips", "server µs", "µs from start to end"], |row, _| {
        let cycle = cost.cycles[row];
        vec![
            format!("{:.1}", cycle.round_trips),
            format!("{:.1}", cycle.server_us),
            format!("{:.0}", cycle.us),
        ]
    })
}

fn speed(cost: &Cost) -> String {
    let mut text = table(&figures::WORKLOADS.map(|workload| workload.name), |row, kind| {
        let cell = |workload: usize| match (kind, cost.ratios[row][workload]) {
            (Kind::Permits, _) => format!("{:.1}k/s", cost.ours[workload] / 1e3),
            (_, ratio) if ratio > 1.3 => format!("**{ratio:.2}**"),
            (_, ratio) => format!("{ratio:.2}"),
        };
        (0..figures::WORKLOADS.len()).map(cell).collect()
    });
    let kept =
        cost.kept.iter().map(|ratio| ratio.map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.2}")));
    let kept: Vec<_> = kept.collect();
    writeln!(text, "| **permits**, kept | {} |", kept.join(" | ")).expect("a string takes any text");
    text
}
