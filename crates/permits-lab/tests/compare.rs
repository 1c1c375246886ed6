//! The comparison measures every figure that its page and the regression check show, for `permits` and for
//! the floors, in each mode that this machine has; so do the programs for many processes and for limits in
//! time. They are run by hand and rarely, and would rot unnoticed.

use std::path::Path;
use std::process::{Command, ExitStatus};

use permits_lab::modes::{Mode, available};
use serde_json::Value;

/// The figures of `permits` in the modes quiet and awake.
const BOTH: [&str; 13] = [
    "A.p50_us",
    "A.p99_us",
    "B64.per_s",
    "B64.client_us",
    "B64.server_us",
    "B512.per_s",
    "B512.server_us",
    "C.of_ideal",
    "C.inversions",
    "C.calls",
    "D.p50_us",
    "F10.server_us",
    "F1000.calls",
];

/// The figures that are taken once, in the mode quiet.
const ONCE: [&str; 8] = [
    "E.calls_per_min",
    "E.client_ms_per_min",
    "G.holder_bytes",
    "G.waiter_bytes",
    "H.cycle_us",
    "I.after_ms",
    "I.beyond_lease_ms",
    "J.ms",
];

/// The figures over a link with a delay.
const DELAYED: [&str; 5] = ["A.p50_us", "B64.per_s", "D.p50_us", "E.calls_per_min", "E.server_ms_per_min"];

/// The figures of other systems in the modes quiet and awake.
const OTHERS: [(&str, &str); 5] = [
    ("permits-dropped", "A.p50_us"),
    ("permits-dropped", "B64.per_s"),
    ("noop", "A.p50_us"),
    ("noop", "D.p50_us"),
    ("incr", "B64.per_s"),
];

fn lab(directory: &Path, arguments: &[&str]) -> ExitStatus {
    let mut command = Command::new(env!("CARGO_BIN_EXE_permits-lab"));
    command.args(arguments).current_dir(directory).status().expect("it starts")
}

fn modes() -> Vec<Mode> {
    available(Mode::ALL.to_vec()).0
}

#[test]
fn the_quick_comparison_measures_every_figure() {
    let directory = tempfile::tempdir().expect("a directory");
    let status = lab(
        directory.path(),
        &["compare", "--quick", "--only", "permits,permits-dropped,noop,incr", "--into", "comparison"],
    );
    assert!(status.success(), "{status}");

    let into = directory.path().join("comparison");
    let text = std::fs::read_to_string(into.join("results.json")).expect("the record was written");
    let record: Value = serde_json::from_str(&text).expect("it is JSON");
    let measured = |mode: Mode, system: &str, figure: &str| {
        let value = &record["modes"][mode.name()][system][figure][0];
        assert!(value.is_f64(), "{figure} of {system}, {}, was not measured", mode.name());
    };
    for mode in modes() {
        let cannot = &record["modes"][mode.name()]["permits"]["cannot"];
        assert!(cannot.is_null(), "permits can do all of it: {cannot}");
        let figures: &[&str] = if mode == Mode::Delayed { &DELAYED } else { &BOTH };
        figures.iter().for_each(|figure| measured(mode, "permits", figure));
        if mode == Mode::Delayed {
            measured(mode, "noop", "D.p50_us");
            measured(mode, "permits-dropped", "A.p50_us");
        } else {
            OTHERS.iter().for_each(|(system, figure)| measured(mode, system, figure));
        }
    }
    ONCE.iter().for_each(|figure| measured(Mode::Quiet, "permits", figure));

    let page = std::fs::read_to_string(into.join("README.md")).expect("the page was written");
    assert!(page.contains("### A. One task"), "{page}");
    for mode in modes() {
        assert!(page.contains(&format!("| {} | ", mode.name())), "{page}");
    }
    let aims = record["aims"].as_array().expect("the aims were written");
    assert!(aims.iter().any(|aim| aim["what"] == "cycle awaited / two no-op scripts, p50"), "{aims:?}");
    for plot in ["a.svg", "b.svg", "c.svg", "d.svg", "f.svg"] {
        assert!(into.join(plot).exists(), "{plot} was not drawn");
    }
}

#[test]
fn the_quick_run_at_scale_measures_every_figure() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(directory.path().join("target")).expect("it can be written");
    let status = lab(directory.path(), &["scale", "--quick"]);
    assert!(status.success(), "{status}");
    let page = directory.path().join("target/scale.md");
    let table = std::fs::read_to_string(page).expect("the table was written");
    for row in ["| 10 processes, one waiter each: server µs a grant | ", "| TLS, one task: cycle p50, µs | "]
    {
        assert!(table.contains(row), "no {row} in:\n{table}");
    }
    assert!(!table.contains('–'), "a figure is missing:\n{table}");
}

#[test]
fn the_quick_run_of_limits_for_a_time_measures_every_figure_of_permits() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(directory.path().join("target")).expect("it can be written");
    let status = lab(directory.path(), &["rates", "--quick"]);
    assert!(status.success(), "{status}");
    let page =
        std::fs::read_to_string(directory.path().join("target/rates.md")).expect("the table was written");
    assert!(page.contains("| bursts, 20 in 100 ms: grants/s | "), "{page}");
    assert!(page.contains("Bottleneck (Node.js) is missing: not built."), "{page}");
    let aims = std::fs::read_to_string(directory.path().join("target/rates-aims.md"));
    let aims = aims.expect("the aims were written");
    assert!(!aims.contains("not measured"), "{aims}");
    // Not a matter of speed: no window may have more grants than the limit.
    for workload in ["bursts", "smooth", "long", "crashes"] {
        let row = format!("| {workload} | most grants in any window / the limit | ≤ 1 | ");
        let cell = aims.lines().find_map(|line| line.strip_prefix(&row)).expect("each has its aim");
        assert!(cell.contains(", met"), "{aims}");
    }
}
