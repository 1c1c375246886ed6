//! `permits-lab faults`: the fault matrix of the testkit at length, and a table of its results.

mod record;
mod table;

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use permits_testkit::driver::Subject;
use permits_testkit::faults::{Cell, LEFT_OUT, ROWS, Row};
use permits_testkit::mutants::Split;
use permits_testkit::{Server, own_program};

use crate::startup::permits;
use permits_bench::Failure;

const USAGE: &str =
    "usage: faults [--seconds 60] [--limit N]... [--seed S] [--out FILE] [--record DIRECTORY] [--mutant]
              [--driver 'PROGRAM ARGUMENT…'] [ROW...]
       faults --list";

/// The cells to run.
struct Plan {
    seconds: u64,
    limits: Vec<u32>,
    seed: u64,
    out: Option<String>,
    /// Every other worker uses another semaphore, which the verdict has to find.
    mutant: Option<Split>,
    /// The driver, of a client in any language, that takes the place of the library.
    driver: Option<Subject>,
    /// The directory for the histories of the cells. Holds are brief then, so that much is recorded.
    record: Option<PathBuf>,
    rows: Vec<&'static Row>,
}

impl Plan {
    fn parse(words: &[&str]) -> Result<Self, Failure> {
        let (mut seconds, mut limits, mut seed) = (60, Vec::new(), fastrand::u64(..1 << 32));
        let (mut out, mut mutant, mut record, mut driver, mut rows) = (None, None, None, None, Vec::new());
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value\n{USAGE}"));
            match *word {
                "--seconds" => seconds = value()?.parse()?,
                "--limit" => limits.push(value()?.parse()?),
                "--seed" => seed = value()?.parse()?,
                "--out" => out = Some((*value()?).to_owned()),
                "--record" => record = Some(PathBuf::from(*value()?)),
                "--driver" => driver = Some(subject(value()?)?),
                "--mutant" => mutant = Some(Split),
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
        Ok(Self { seconds, limits, seed, out, mutant, driver, record, rows })
    }

    fn cell(&self, row: &'static Row, limit: u32) -> Cell {
        let time = Duration::from_secs(self.seconds);
        let (driver, mutant, brief) = (self.driver.clone(), self.mutant, self.record.is_some());
        Cell { row, limit, time, seed: self.seed, worker, driver, mutant, brief }
    }

    /// Drops the rows that the driver cannot run, and prints why.
    fn leave_out(&mut self) -> Result<(), Failure> {
        let Some(driver) = &self.driver else { return Ok(()) };
        let server = Server::start();
        let has = Subject { url: server.url(), ..driver.clone() }.has()?;
        self.rows.retain(|row| match row.outside(&has) {
            None => true,
            Some(why) => {
                println!("not run: {}: {why}", row.name);
                false
            }
        });
        Ok(())
    }
}

/// The subject of the program and arguments in `words`. Its command is the one that `scripts/lab faults` has
/// built.
fn subject(words: &str) -> Result<Subject, Failure> {
    let driver: Vec<PathBuf> = words.split_whitespace().map(PathBuf::from).collect();
    if driver.is_empty() {
        return Err("--driver needs a program".into());
    }
    Ok(Subject { driver, ..Subject::command(&permits()?, String::new()) })
}

/// The command that starts this program as a worker.
pub(crate) fn worker() -> Command {
    let mut command = Command::new(own_program());
    command.arg("worker");
    command
}

/// Runs the rows that were asked for, and prints the table.
pub(crate) fn run(words: &[&str]) -> Result<(), Failure> {
    if words == ["--list"] {
        for row in &ROWS {
            println!("{:22} {}", row.name, row.fault);
        }
        println!("\n{LEFT_OUT}");
        return Ok(());
    }
    let mut plan = Plan::parse(words)?;
    plan.leave_out()?;
    println!("{} s a cell, --seed {}", plan.seconds, plan.seed);
    let mut results = Vec::new();
    for row in &plan.rows {
        for &limit in &plan.limits {
            let cell = plan.cell(row, limit);
            let (verdict, history) = cell.run_with_history();
            if let Some(directory) = &plan.record {
                record::write(&cell, &history, directory)?;
            }
            println!(
                "{} --limit {limit}: {} faults, {} grants, {} of kept permits, worst recovery {}, longest wait {}, above the \
                 limit: {}, violations: {}",
                row.name,
                verdict.faults,
                verdict.grants,
                verdict.granted_again,
                table::seconds(verdict.recovery),
                table::seconds(verdict.waited),
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
