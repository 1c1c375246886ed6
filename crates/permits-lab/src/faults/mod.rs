//! `permits-lab faults`: the long fault suite. Ten processes use one semaphore while a fault after the other happens
//! to them, to the network or to the servers; a row a kind of fault, a cell a row with a limit.
//!
//! Each cell has a store and processes of its own. What they saw is judged when it is over, from outside, by the one
//! clock of this host (`permits_testkit::history`), and what they wrote by a fenced resource. At the end nothing may
//! be left behind.

mod crew;
mod groups;
mod judging;
mod line;
mod rows;
mod single;
mod stage;
mod table;
pub(crate) mod worker;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::sleep;
use std::time::{Duration, Instant};

use permits::blocking::Client;
use permits::{AcquireError, AcquireOptions};
use permits_testkit::history::now;
use permits_testkit::wait;

use self::crew::TIMEOUT;
use self::judging::Verdict;
use self::line::Watch;
use self::rows::{LEFT_OUT, ROWS, Row};
use self::stage::{Place, Stage};
use self::worker::SEMAPHORE;
use crate::Failure;

const USAGE: &str = "usage: faults [--seconds 60] [--limit N]... [--seed S] [--out FILE] [--plant] [ROW...]
       faults --list";

/// The least time between two faults, so that something is done in between.
const LEAST_GAP: Duration = Duration::from_millis(500);

/// What to run.
struct Plan {
    seconds: u64,
    limits: Vec<u32>,
    seed: u64,
    out: Option<String>,
    /// Half of the workers use another semaphore: more is held than the limit, and the judge must say so.
    planted: bool,
    rows: Vec<&'static Row>,
}

impl Plan {
    fn parse(words: &[&str]) -> Result<Self, Failure> {
        let (mut seconds, mut limits, mut seed) = (60, Vec::new(), fastrand::u64(..1 << 32));
        let (mut out, mut planted, mut rows) = (None, false, Vec::new());
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value\n{USAGE}"));
            match *word {
                "--seconds" => seconds = value()?.parse()?,
                "--limit" => limits.push(value()?.parse()?),
                "--seed" => seed = value()?.parse()?,
                "--out" => out = Some((*value()?).to_owned()),
                "--plant" => planted = true,
                name => {
                    let row = ROWS.iter().find(|row| row.name == name);
                    rows.push(row.ok_or_else(|| format!("there is no row {name:?}\n{USAGE}"))?);
                }
            }
        }
        if limits.is_empty() {
            limits = vec![1, 2, 5];
        }
        if rows.is_empty() {
            rows = ROWS.iter().collect();
        }
        Ok(Self { seconds, limits, seed, out, planted, rows })
    }
}

/// Runs the rows asked for, and prints the table.
pub(crate) fn run(words: &[&str]) -> Result<(), Failure> {
    if words == ["--list"] {
        for row in &ROWS {
            println!("{:22} {}", row.name, row.what);
        }
        println!("\n{LEFT_OUT}");
        return Ok(());
    }
    let plan = Plan::parse(words)?;
    println!("{} s a cell, --seed {}", plan.seconds, plan.seed);
    let mut results = Vec::new();
    for row in &plan.rows {
        for &limit in &plan.limits {
            let verdict = run_cell(row, limit, &plan);
            println!(
                "{} --limit {limit}: {} faults, {} grants, worst recovery {}, above the limit: {}, violations: {}",
                row.name,
                verdict.faults,
                verdict.grants,
                table::seconds(verdict.recovery),
                table::above(&verdict.excess),
                verdict.violations.len(),
            );
            for violation in &verdict.violations {
                println!("  {violation}");
            }
            results.push((row.name, limit, verdict));
        }
    }
    let text = table::table(&results);
    println!("\n{text}");
    if let Some(out) = &plan.out {
        std::fs::write(out, &text)?;
    }
    let violations: usize = results.iter().map(|(_, _, verdict)| verdict.violations.len()).sum();
    if violations == 0 {
        Ok(())
    } else {
        Err(format!("{violations} violations, --seed {}", plan.seed).into())
    }
}

/// Runs a cell. What panics is a fault of the harness, or of a deployment that did not come back.
fn run_cell(row: &Row, limit: u32, plan: &Plan) -> Verdict {
    // A cell that is run alone draws the same numbers.
    let name = row.name.bytes().fold(0, |sum: u64, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    let seed = plan.seed ^ name.wrapping_add(u64::from(limit));
    catch_unwind(AssertUnwindSafe(|| attempt_cell(row, limit, seed, plan))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map_or("it panicked", String::as_str);
        Verdict { violations: vec![format!("harness: {text}")], ..Verdict::default() }
    })
}

fn attempt_cell(row: &Row, limit: u32, seed: u64, plan: &Plan) -> Verdict {
    let mut stage = Stage::start((row.place)(), limit, seed, plan.planted.then_some("planted"));
    let watch = row.promise.order.then(|| Watch::start(stage.server()));
    let mut served = stage.crew.await_served(0);
    let mut faults = Vec::new();
    let end = Instant::now() + Duration::from_secs(plan.seconds);
    while served.is_ok() && Instant::now() < end {
        // Every 5 to 10 seconds where there is a minute, and in proportion where there is not.
        let gap = stage.millis(5000..10_000).mul_f64(plan.seconds.min(60) as f64 / 60.0);
        let gap = gap.max(LEAST_GAP);
        sleep(gap);
        faults.push((row.fault)(&mut stage));
    }
    let calm = now();
    served = served.and_then(|()| stage.crew.await_served(calm));
    let all_served = now() - calm;
    let closed = stage.crew.close();
    let mut told = std::mem::take(&mut *stage.crew.told());
    told.history.events.extend(watch.into_iter().flat_map(Watch::stop));
    told.history.events.sort_by_key(|(_, event)| event.at);

    let mut verdict = Verdict::judge(&told.history, row.promise, limit, &faults);
    verdict.judge_writes(
        stage.fence.resource(),
        &told.history,
        if row.promise.bound { &told.rejected } else { &[] },
    );
    verdict.served = served.is_ok().then(|| Duration::from_micros(all_served));
    verdict.hold(served.map_err(|why| format!("liveness: {why}")));
    verdict.hold(closed.map_err(|why| format!("end: {why}")));
    verdict.hold(at_rest(&stage.place, limit).map_err(|why| format!("P10: {why}")));
    verdict
}

/// P10: nothing is held, nobody waits, and all units can be had, with all slots.
fn at_rest(place: &Place, limit: u32) -> Result<(), String> {
    let client = Client::connect(&place.url(0)).map_err(|error| error.to_string())?;
    let semaphore = client.semaphore(SEMAPHORE, limit);
    let mut left = Err("nothing was seen".to_owned());
    wait::until(TIMEOUT, || {
        left = match semaphore.inspect() {
            Ok(seen) if (seen.held, seen.waiting) == (0, 0) => Ok(()),
            Ok(seen) => Err(format!("{} held, {} waiting", seen.held, seen.waiting)),
            Err(error) => Err(error.to_string()),
        };
        left.is_ok()
    });
    left?;
    let refused = |error: AcquireError| format!("not all units can be had: {error}");
    let options = AcquireOptions::new().weight(limit).wait(TIMEOUT);
    let all = semaphore.acquire_with(options).map_err(refused)?;
    if all.slot() != 0 {
        return Err(format!("the only holder has slot {}", all.slot()));
    }
    all.release().map_err(|error| error.to_string())?;
    let each: Result<Vec<_>, _> = (0..limit).map(|_| semaphore.try_acquire()).collect();
    let mut slots: Vec<u32> = each.map_err(refused)?.iter().map(|permit| permit.slot()).collect();
    slots.sort_unstable();
    if slots != (0..limit).collect::<Vec<u32>>() {
        return Err(format!("the slots are {slots:?}"));
    }
    client.close().map_err(|error| error.to_string())
}
