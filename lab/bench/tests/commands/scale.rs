//! Every figure of the run at scale is measured.

use crate::{lab, text};

#[test]
fn the_quick_run_at_scale_measures_every_figure() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(directory.path().join("target")).expect("it can be written");
    let output = lab(Some(directory.path()), &["scale", "--quick"]);
    assert!(output.status.success(), "{}", text(&output));
    let page = directory.path().join("target/scale.md");
    let table = std::fs::read_to_string(page).expect("the table was written");
    for row in ["| 10 processes, one waiter each: server µs a grant | ", "| TLS, one task: cycle p50, µs | "]
    {
        assert!(table.contains(row), "no {row} in:\n{table}");
    }
    assert!(!table.contains('–'), "a figure is missing:\n{table}");
}
