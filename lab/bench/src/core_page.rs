//! `permits-lab core`: the figures of `permits-bench core`, written into `lab/performance.md`.

use std::path::Path;

use permits_bench::Failure;
use permits_bench::aims::{figures, part};
use permits_bench::core_bench;

pub(crate) fn run() -> Result<(), Failure> {
    let aims = core_bench::run(&[])?;
    part("<!-- aims: figures of scripts/lab core -->").put(&figures(&aims), Path::new("lab/performance.md"))
}
