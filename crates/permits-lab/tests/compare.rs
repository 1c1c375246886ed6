//! The comparison measures every figure that its page and the regression check show, for `permits` and for the floors.
//! The comparison itself is run by hand and rarely, and would rot unnoticed.

use std::process::Command;

use serde_json::Value;

#[test]
fn the_quick_comparison_measures_every_figure() {
    let directory = tempfile::tempdir().expect("a directory");
    let into = directory.path().join("comparison");
    let status = Command::new(env!("CARGO_BIN_EXE_permits-lab"))
        .args(["compare", "--quick", "--only", "permits,permits-dropped,noop,noop-worker,incr", "--into"])
        .arg(&into)
        .status()
        .expect("it starts");
    assert!(status.success(), "{status}");

    let text = std::fs::read_to_string(into.join("results.json")).expect("the record was written");
    let record: Value = serde_json::from_str(&text).expect("it is JSON");
    let permits = &record["systems"]["permits"];
    assert!(permits["cannot"].is_null(), "permits can do all of it: {}", permits["cannot"]);
    for figure in [
        "A.p50_us",
        "A.p99_us",
        "B64.per_s",
        "B64.client_us",
        "B512.server_us",
        "C.of_ideal",
        "C.inversions",
        "C.calls",
        "D.p50_us",
        "E.calls_per_min",
        "F10.server_us",
        "F1000.calls",
        "G.holder_bytes",
        "G.waiter_bytes",
        "H.cycle_us",
        "I.after_ms",
        "J.ms",
    ] {
        assert!(permits[figure][0].is_f64(), "{figure} of permits was not measured");
    }
    for (floor, figure) in [
        ("permits-dropped", "A.p50_us"),
        ("noop", "A.p50_us"),
        ("noop-worker", "A.p50_us"),
        ("noop", "D.p50_us"),
        ("incr", "B64.per_s"),
    ] {
        assert!(record["systems"][floor][figure][0].is_f64(), "{figure} of {floor} was not measured");
    }
    let page = std::fs::read_to_string(into.join("README.md")).expect("the page was written");
    assert!(page.contains("### A. One task"), "{page}");
    let aims =
        std::fs::read_to_string(directory.path().join("performance.md")).expect("the aims were written");
    assert!(aims.contains("| A | cycle / two no-op EVALSHA, p50 |"), "{aims}");
    for plot in ["a.svg", "b.svg", "c.svg", "d.svg", "f.svg"] {
        assert!(into.join(plot).exists(), "{plot} was not drawn");
    }
}
