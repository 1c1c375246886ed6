//! Every figure is measured, in each mode that this machine has.

use permits_bench::modes::{Mode, available};
use serde_json::Value;

use crate::{bench, text};

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

/// The figures of other systems in the modes quiet and awake.
const OTHERS: [(&str, &str); 13] = [
    ("permits-dropped", "A.p50_us"),
    ("permits-dropped", "B64.per_s"),
    ("noop", "A.p50_us"),
    ("noop", "D.p50_us"),
    ("incr", "B64.per_s"),
    ("permits-kept", "A.p50_us"),
    ("permits-kept", "B64.per_s"),
    ("permits-kept", "B64.calls"),
    ("permits-kept", "C.of_ideal"),
    ("permits-kept", "C.inversions"),
    ("permits-kept", "C.calls"),
    ("permits-kept", "K.p50_us"),
    ("tokio", "A.p50_us"),
];

#[test]
fn the_quick_core_measures_every_figure() {
    let directory = tempfile::tempdir().expect("a directory");
    let into = directory.path().join("core.json");
    let output = bench(&["core", "--quick", "--into", into.to_str().expect("it is a text")]);
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("| A | cycle awaited / two no-op scripts, p50 | ≤ 1.3; ≤ 1.45 |"), "{text}");

    let record = std::fs::read_to_string(into).expect("it was written");
    let record: Value = serde_json::from_str(&record).expect("it is JSON");
    let measured = |mode: Mode, system: &str, figure: &str| {
        let value = &record[mode.name()][system][figure][0];
        assert!(value.is_f64(), "{figure} of {system}, {}, was not measured:\n{text}", mode.name());
    };
    for mode in available(vec![Mode::Quiet, Mode::Awake]).0 {
        let cannot = &record[mode.name()]["permits"]["cannot"];
        assert!(cannot.is_null(), "permits can do all of it: {cannot}");
        BOTH.iter().for_each(|figure| measured(mode, "permits", figure));
        OTHERS.iter().for_each(|(system, figure)| measured(mode, system, figure));
    }
    ONCE.iter().for_each(|figure| measured(Mode::Quiet, "permits", figure));
    measured(Mode::Delayed, "permits-kept", "A.p50_us");
}
