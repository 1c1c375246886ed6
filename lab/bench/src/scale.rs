//! `permits-lab scale`: `permits` with many processes on a semaphore, with several semaphores, and over
//! TLS.
//!
//! - **Measures**: the cost of a grant to 10, 100 and 1,000 processes of one waiter each, which should stay
//!   the same; the cycles of 64 tasks that share one semaphore, and eight; cycles over TCP and over TLS.
//! - **Run**: `scripts/lab scale`, which takes 3 minutes; `--quick` for a little of everything.
//! - **Result**: a table in `lab/performance.md`.

use std::fmt::Write as _;
use std::path::Path;

use permits_testkit::{Certificates, ClientCertificates, Server};

use permits_bench::Failure;
use permits_bench::modes::{Mode, available};
use permits_bench::page::Part;
use permits_bench::results::Results;
use permits_bench::system::PERMITS;
use permits_bench::workloads::{Bench, Scale};

/// The place of the table, in the page on performance.
const TABLE: Part<'_> =
    Part { begin: "<!-- figures: written by scripts/lab scale -->", end: "<!-- end of figures -->" };

/// The tasks of one process, and the semaphores that they share.
const TASKS: usize = 64;
const SEMAPHORES: [usize; 2] = [1, 8];

/// The names under which figures are kept.
const TCP: &str = "TCP";
const TLS: &str = "TLS";

/// `[--quick]`
pub(crate) fn run(arguments: &[&str]) -> Result<(), Failure> {
    let (scale, processes, page): (_, &[usize], _) = match arguments {
        [] => {
            let scale = Scale { warm_up: 1.0, seconds: 1.0, ..Scale::FULL };
            (scale, &[10, 100, 1000], "lab/performance.md")
        }
        ["--quick"] => (Scale::QUICK, &[10, 40], "target/scale.md"),
        _ => return Err(format!("no such options: {arguments:?}").into()),
    };
    let certificates = Certificates::new();
    let tls = Server::builder().tls(&certificates, ClientCertificates::Ignored).start();
    let tls_url = format!("{}?tls_ca={}", tls.url(), certificates.authority().path().display());
    let mut tcp = Bench::new(scale, Server::start())?;
    let mut tls = Bench::new(scale, tls)?;
    let tcp_url = tcp.server.url();
    let (modes, not_awake) = available(vec![Mode::Quiet, Mode::Awake]);
    for round in 1..=scale.rounds {
        for &mode in &modes {
            eprintln!("round {round}, {}", mode.name());
            tcp.enter(mode)?;
            for &count in processes {
                tcp.queue(PERMITS, &format!("{count}"), count, count)?;
            }
            several_semaphores(&mut tcp)?;
            cycles(&mut tcp, TCP, &tcp_url)?;
            tcp.enter(Mode::Quiet)?;
            tls.enter(mode)?;
            cycles(&mut tls, TLS, &tls_url)?;
            tls.enter(Mode::Quiet)?;
        }
    }
    let mut text = table(&tcp.results, &tls.results, processes, &modes);
    if let Some(reason) = not_awake {
        writeln!(text, "\nThe mode awake is missing: {reason}.")?;
    }
    println!("{text}");
    TABLE.put(&text, Path::new(page))
}

/// Sixty-four tasks on one semaphore, and on several.
fn several_semaphores(bench: &mut Bench) -> Result<(), Failure> {
    let Scale { warm_up, seconds, .. } = bench.scale;
    let mut process = bench.start(PERMITS)?;
    for count in SEMAPHORES {
        process.ask(&format!("spread warm-up {count} {TASKS} {warm_up}"))?;
        let command = format!("spread several {count} {TASKS} {seconds}");
        bench.rate(PERMITS.name, &mut process, &format!("spread {count}"), &command)?;
    }
    Ok(())
}

/// A and B of the comparison, with a server by its URL.
fn cycles(bench: &mut Bench, name: &str, url: &str) -> Result<(), Failure> {
    let mut processes = bench.start_at(PERMITS, 1, url, bench.scale.lease)?;
    for process in &mut processes {
        bench.one_task(name, process)?;
        bench.many_tasks(name, process, TASKS)?;
    }
    Ok(())
}

/// A row for each figure, a column for each mode.
fn table(tcp: &Results, tls: &Results, processes: &[usize], modes: &[Mode]) -> String {
    let mut rows = Vec::new();
    let mut row = |results: &Results, name: &str, figure: String, by: f64, what: String| {
        let cell = |mode: &Mode| {
            let spread = results.get(*mode, name, &figure);
            spread.map_or_else(|| "–".to_owned(), |spread| spread.shown(by))
        };
        let cells: Vec<_> = modes.iter().map(cell).collect();
        rows.push(format!("| {what} | {} |", cells.join(" | ")));
    };
    let ours = PERMITS.name;
    for count in processes {
        for (figure, what) in
            [("server_us", "server µs a grant"), ("calls", "server calls a grant"), ("per_s", "grants/s")]
        {
            let what = format!("{count} processes, one waiter each: {what}");
            row(tcp, ours, format!("{count}.{figure}"), 1.0, what);
        }
    }
    let rate = [
        ("per_s", "1,000 cycles/s", 1e3),
        ("server_us", "server µs a cycle", 1.0),
        ("client_us", "client µs a cycle", 1.0),
    ];
    for count in SEMAPHORES {
        for (figure, what, by) in rate {
            let semaphores = if count == 1 { "semaphore" } else { "semaphores" };
            let what = format!("{TASKS} tasks on {count} {semaphores}: {what}");
            row(tcp, ours, format!("spread {count}.{figure}"), by, what);
        }
    }
    for (name, results) in [(TCP, tcp), (TLS, tls)] {
        row(results, name, "A.p50_us".to_owned(), 1.0, format!("{name}, one task: cycle p50, µs"));
        for (figure, what, by) in rate {
            let what = format!("{name}, {TASKS} tasks: {what}");
            row(results, name, format!("B{TASKS}.{figure}"), by, what);
        }
    }
    let names: Vec<_> = modes.iter().map(|mode| mode.name()).collect();
    format!("| | {} |\n|---|{}\n{}\n", names.join(" | "), "---:|".repeat(names.len()), rows.join("\n"))
}
