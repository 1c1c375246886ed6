//! The comparison writes its pages, its plots and its record, with the figures of `permits` and of the
//! floors. It is run once a release, and would rot unnoticed: `scripts/lab compare` runs these tests before
//! it measures.
//!
//! The tests of `permits-bench` have the list of all figures in the modes quiet and awake.

use std::path::Path;
use std::process::{Command, ExitStatus};

use permits_bench::modes::{Mode, available};
use serde_json::Value;

/// The figures over a link with a delay.
const DELAYED: [&str; 5] = ["A.p50_us", "B64.per_s", "D.p50_us", "E.calls_per_min", "E.server_ms_per_min"];

fn compare(directory: &Path, arguments: &[&str]) -> ExitStatus {
    let mut command = Command::new(env!("CARGO_BIN_EXE_permits-comparison"));
    command.args(arguments).current_dir(directory).status().expect("it starts")
}

fn modes() -> Vec<Mode> {
    available(Mode::ALL.to_vec()).0
}

fn record(into: &Path) -> Value {
    let text = std::fs::read_to_string(into.join("results.json")).expect("the record was written");
    serde_json::from_str(&text).expect("it is JSON")
}

#[test]
fn the_quick_comparison_measures_every_figure() {
    let directory = tempfile::tempdir().expect("a directory");
    let own = "permits,permits-dropped,permits-kept,noop,incr,tokio";
    let all = ["compare", "--quick", "--only", own, "--into", "comparison"];
    let part = [all.as_slice(), &["--round", "0", "--modes", "quiet"]].concat();
    let into = directory.path().join("comparison");
    // The first part of several: there is no page yet.
    assert!(compare(directory.path(), &part).success());
    assert!(into.join("rounds.json").exists());
    assert!(!into.join("README.md").exists() && !into.join("results.json").exists());
    std::fs::remove_file(into.join("rounds.json")).expect("it is there");

    assert!(compare(directory.path(), &all).success());
    let first = record(&into);
    // Measure one part again: the figures of all other parts stay.
    assert!(compare(directory.path(), &part).success());
    assert!(!into.join("rounds.json").exists(), "nothing is missing");
    let record = record(&into);
    assert_ne!(record["rounds"]["quiet 0"], first["rounds"]["quiet 0"]);
    assert_eq!(record["rounds"]["quiet 1"], first["rounds"]["quiet 1"]);

    let figures = |mode: Mode, round: u8| {
        let mode = mode.name();
        &record["rounds"][format!("{mode} {round}")]["figures"][mode]
    };
    let measured = |mode: Mode, system: &str, figure: &str| {
        let is_in = |round| figures(mode, round)[system][figure][0].is_f64();
        assert!(is_in(0) || is_in(1), "{figure} of {system}, {}, was not measured", mode.name());
    };
    for mode in modes() {
        for round in [0, 1] {
            let cannot = &figures(mode, round)["permits"]["cannot"];
            assert!(cannot.is_null(), "permits can do all of it: {cannot}");
        }
        measured(mode, "noop", "D.p50_us");
        measured(mode, "permits-dropped", "A.p50_us");
        if mode == Mode::Delayed {
            DELAYED.iter().for_each(|figure| measured(mode, "permits", figure));
        } else {
            measured(mode, "permits", "C.of_ideal");
            measured(mode, "incr", "B64.per_s");
            ["A.p50_us", "C.calls", "K.p50_us"]
                .iter()
                .for_each(|figure| measured(mode, "permits-kept", figure));
        }
    }

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
fn the_quick_run_of_limits_for_a_time_measures_every_figure_of_permits() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(directory.path().join("target")).expect("it can be written");
    let status = compare(directory.path(), &["rates", "--quick"]);
    assert!(status.success(), "{status}");
    let page =
        std::fs::read_to_string(directory.path().join("target/rates.md")).expect("the table was written");
    assert!(page.contains("| bursts, 20 in 100 ms: grants/s | "), "{page}");
    assert!(page.contains("Bottleneck (Node.js) is missing: not built."), "{page}");
    let aims = std::fs::read_to_string(directory.path().join("target/rates-aims.md"));
    let aims = aims.expect("the aims were written");
    assert!(!aims.contains("not measured"), "{aims}");
    // The speed of the machine does not matter here: no window may have more grants than the limit.
    for workload in ["bursts", "smooth", "long"] {
        let row = format!("| {workload} | most grants in any window / the limit | ≤ 1 | ");
        let cell = aims.lines().find_map(|line| line.strip_prefix(&row)).expect("each has its aim");
        assert!(cell.contains(", met"), "{aims}");
    }
}
