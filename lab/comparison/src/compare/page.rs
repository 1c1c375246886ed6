//! The figures as a page: the machine and the versions, and a table for each workload and mode.

use std::fmt::Write as _;

use permits_bench::modes::Mode;
use permits_bench::page::Part;
use permits_bench::results::Results;
use permits_bench::system::System;
use permits_bench::workloads::Scale;
use serde_json::Value;

/// The tables of the comparison.
pub(crate) const FIGURES: Part<'_> =
    Part { begin: "<!-- figures: written by scripts/lab compare -->", end: "<!-- end of figures -->" };

/// The tables of a workload, one for each mode in which it is run.
struct Table {
    title: &'static str,
    /// The workload, which decides the systems with a row.
    workload: &'static str,
    /// The workloads in whose course the figures are taken, under which reasons are kept.
    taken_in: &'static [&'static str],
    modes: &'static [Mode],
    plot: Option<&'static str>,
    columns: &'static [Column],
}

/// Figure, heading, divisor.
type Column = (&'static str, &'static str, f64);

const BOTH: &[Mode] = &[Mode::Quiet, Mode::Awake];
const ONCE: &[Mode] = &[Mode::Quiet];

const TABLES: &[Table] = &[
    Table {
        title: "A. One task, uncontended: a cycle of acquire and release",
        workload: "A",
        taken_in: &["A"],
        modes: BOTH,
        plot: Some("a.svg"),
        columns: &[
            ("A.p50_us", "p50, µs", 1.0),
            ("A.p99_us", "p99, µs", 1.0),
            ("A.cycle_us", "mean, µs", 1.0),
        ],
    },
    Table {
        title: "B. 64 tasks of one process, within the limit",
        workload: "B",
        taken_in: &["A"],
        modes: BOTH,
        plot: Some("b.svg"),
        columns: &[
            ("B64.per_s", "1,000 cycles/s", 1e3),
            ("B64.client_us", "client µs/cycle", 1.0),
            ("B64.server_us", "server µs/cycle", 1.0),
            ("B64.commands", "commands/cycle, in scripts too", 1.0),
        ],
    },
    Table {
        title: "B. 512 tasks of one process, within the limit",
        workload: "B",
        taken_in: &["A"],
        modes: BOTH,
        plot: None,
        columns: &[
            ("B512.per_s", "1,000 cycles/s", 1e3),
            ("B512.client_us", "client µs/cycle", 1.0),
            ("B512.server_us", "server µs/cycle", 1.0),
        ],
    },
    Table {
        title: "C. 4 processes of 16 tasks, limit 4, held for 1 ms",
        workload: "C",
        taken_in: &["C"],
        modes: BOTH,
        plot: Some("c.svg"),
        columns: &[
            ("C.of_ideal", "of the ideal", 1.0),
            ("C.per_s", "grants/s", 1.0),
            ("C.wait_p50_ms", "wait p50, ms", 1.0),
            ("C.wait_p99_ms", "p99", 1.0),
            ("C.wait_max_ms", "max", 1.0),
            ("C.inversions", "inversions", 1.0),
            ("C.calls", "calls/grant", 1.0),
            ("C.server_us", "server µs/grant", 1.0),
        ],
    },
    Table {
        title: "D. Hand-off: from the release call to the acquire of another process returning",
        workload: "D",
        taken_in: &["D"],
        modes: BOTH,
        plot: Some("d.svg"),
        columns: &[("D.p50_us", "p50, µs", 1.0), ("D.p99_us", "p99, µs", 1.0)],
    },
    Table {
        title: "E. 10,000 permits held idle by one process",
        workload: "E",
        taken_in: &["E"],
        modes: ONCE,
        plot: None,
        columns: &[
            ("E.calls_per_min", "calls/min", 1.0),
            ("E.server_ms_per_min", "server ms/min", 1.0),
            ("E.client_ms_per_min", "client ms/min", 1.0),
        ],
    },
    Table {
        title: "F. A grant out of a line of 10",
        workload: "F",
        taken_in: &["F10"],
        modes: BOTH,
        plot: Some("f.svg"),
        columns: &[
            ("F10.server_us", "server µs/grant", 1.0),
            ("F10.calls", "calls/grant", 1.0),
            ("F10.per_s", "grants/s", 1.0),
        ],
    },
    Table {
        title: "F. A grant out of a line of 1,000",
        workload: "F",
        taken_in: &["F1000"],
        modes: BOTH,
        plot: None,
        columns: &[
            ("F1000.server_us", "server µs/grant", 1.0),
            ("F1000.calls", "calls/grant", 1.0),
            ("F1000.per_s", "grants/s", 1.0),
        ],
    },
    Table {
        title: "F. A grant out of a line of 100,000",
        workload: "F",
        taken_in: &["F100000"],
        modes: BOTH,
        plot: None,
        columns: &[
            ("F100000.server_us", "server µs/grant", 1.0),
            ("F100000.calls", "calls/grant", 1.0),
            ("F100000.per_s", "grants/s", 1.0),
        ],
    },
    Table {
        title: "G. Bytes in the server, of each holder",
        workload: "G",
        taken_in: &["E"],
        modes: ONCE,
        plot: None,
        columns: &[("G.holder_bytes", "bytes/holder", 1.0)],
    },
    Table {
        title: "G. Bytes in the server, of each waiter",
        workload: "G",
        taken_in: &["G"],
        modes: ONCE,
        plot: None,
        columns: &[("G.waiter_bytes", "bytes/waiter", 1.0)],
    },
    Table {
        title: "H. 10,000 semaphores in turn",
        workload: "H",
        taken_in: &["A"],
        modes: ONCE,
        plot: None,
        columns: &[("H.cycle_us", "µs/cycle", 1.0), ("H.left_bytes", "bytes left of each", 1.0)],
    },
    Table {
        title: "I. A holder is killed: until the waiter has the permit",
        workload: "I",
        taken_in: &["I"],
        modes: ONCE,
        plot: None,
        columns: &[
            ("I.after_ms", "after the kill, ms", 1.0),
            ("I.beyond_lease_ms", "beyond the lease, ms", 1.0),
        ],
    },
    Table {
        title: "J. Start: from connect to the first permit, in a process that runs already",
        workload: "J",
        taken_in: &["A"],
        modes: ONCE,
        plot: None,
        columns: &[("J.ms", "ms", 1.0)],
    },
    Table {
        title: "K. A unit that another process keeps: from the request to the permit",
        workload: "K",
        taken_in: &["K"],
        modes: BOTH,
        plot: None,
        columns: &[("K.p50_us", "p50, µs", 1.0), ("K.p99_us", "p99, µs", 1.0)],
    },
    Table {
        title: "A, B, D and E over a link with a delay of 0.5 ms each way",
        workload: "A",
        taken_in: &["A", "D", "E"],
        modes: &[Mode::Delayed],
        plot: None,
        columns: &[
            ("A.p50_us", "A: cycle p50, µs", 1.0),
            ("B64.per_s", "B: 64 tasks, 1,000 cycles/s", 1e3),
            ("D.p50_us", "D: hand-off p50, µs", 1.0),
            ("D.p99_us", "p99", 1.0),
            ("E.calls_per_min", "E: 10,000 idle permits, calls/min", 1.0),
            ("E.server_ms_per_min", "server ms/min", 1.0),
            ("E.client_ms_per_min", "client ms/min", 1.0),
        ],
    },
];

/// The page, without its markers.
pub(crate) fn page(about: &Value, systems: &[System], results: &Results, scale: Scale) -> String {
    let mut page = String::new();
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let _ = writeln!(
        page,
        "Measured on {} processors ({}), Linux {}, redis-server {}, which keeps nothing on disk, all on one machine \
         over TCP. Median of {} rounds (least–most), E once; {} s of warm-up in each process. A dash: the system cannot run \
         the workload, or was not installed; the reason is below the table.\n",
        about["processors"],
        text(&about["processor"]),
        text(&about["kernel"]),
        text(&about["server"]),
        about["rounds"],
        scale.warm_up,
    );
    if let Some(reason) = about["not awake"].as_str() {
        let _ = writeln!(page, "The mode awake is missing: {reason}.\n");
    }
    page += &super::glance::section(systems, results);
    let _ = writeln!(page, "\n### Versions\n\n| system | version |\n|---|---|");
    for system in systems {
        let _ = writeln!(page, "| {} | {} |", system.title, text(&about["versions"][system.name]));
    }
    let has = |mode: Mode| systems.iter().any(|system| results.get(mode, system.name, "A.p50_us").is_some());
    for table in TABLES {
        let _ = writeln!(page, "\n### {}", table.title);
        if let Some(plot) = table.plot {
            let _ = writeln!(page, "\n![{}]({plot})", table.title);
        }
        for &mode in table.modes.iter().filter(|mode| has(**mode)) {
            one_table(&mut page, table, mode, systems, results);
        }
    }
    page
}

fn one_table(page: &mut String, table: &Table, mode: Mode, systems: &[System], results: &Results) {
    let (mut rows, mut reasons) = (String::new(), String::new());
    for system in systems.iter().filter(|system| system.takes_part(table.workload)) {
        let cell = |column: &Column| {
            let spread = results.get(mode, system.name, column.0);
            spread.map_or_else(|| "–".to_owned(), |spread| spread.shown(column.2))
        };
        let cells: Vec<_> = table.columns.iter().map(cell).collect();
        let _ = writeln!(rows, "| {} | {} |", system.title, cells.join(" | "));
        for reason in
            table.taken_in.iter().filter_map(|workload| results.why_not(mode, system.name, workload))
        {
            let _ = writeln!(reasons, "- {}: {reason}.", system.title);
        }
    }
    let headings: Vec<_> = table.columns.iter().map(|(_, heading, _)| *heading).collect();
    let _ = writeln!(page, "\n| {} | {} |", mode.name(), headings.join(" | "));
    let _ = writeln!(page, "|---|{}\n{}", "---:|".repeat(headings.len()), rows.trim_end());
    if !reasons.is_empty() {
        let _ = writeln!(page, "\n{}", reasons.trim_end());
    }
}
