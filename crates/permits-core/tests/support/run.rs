//! The runs of random histories: their number, their seed, and the files of failed ones.

use std::cell::Cell;
use std::fmt::Debug;
use std::io::{self, Write as _};

use permits_testkit::random;
use proptest::prelude::*;
use proptest::test_runner::{Config, FileFailurePersistence, RngSeed, TestCaseError, TestError, TestRunner};

/// The time for which a history that fails is made shorter, in milliseconds, unless proptest's variable sets
/// another one: other suites run meanwhile.
const SHRINKS_FOR: u32 = 60_000;

thread_local! {
    /// The number of runs of this test. With one seed for all, each has histories of its own.
    static RUN: Cell<u64> = const { Cell::new(0) };
}

/// The runs after which [`cases_until`] gives up.
const RUNS: usize = 40;

/// Runs [`cases`] until `met`, because rare events do not come in every run.
pub(crate) fn cases_until<S>(
    count: u32,
    regressions: &'static str,
    strategy: &S,
    check: impl Fn(&S::Value) -> Result<(), String>,
    met: impl Fn() -> bool,
) where
    S: Strategy,
    S::Value: Debug,
{
    for _ in 0..RUNS {
        cases(count, regressions, strategy, &check);
        if met() {
            return;
        }
    }
}

/// Runs `check` on the histories in the file `regressions`, and then on `count` others, times
/// `PERMITS_CASES`.
///
/// # Panics
///
/// If one fails, with the shortest one found; its seed goes into the file.
pub(crate) fn cases<S>(
    count: u32,
    regressions: &'static str,
    strategy: &S,
    check: impl Fn(&S::Value) -> Result<(), String>,
) where
    S: Strategy,
    S::Value: Debug,
{
    let by_default = Config::default();
    let number = RUN.replace(RUN.get() + 1);
    let config = Config {
        rng_seed: match by_default.rng_seed {
            RngSeed::Fixed(seed) => RngSeed::Fixed(seed.wrapping_add(number)),
            RngSeed::Random => RngSeed::Random,
        },
        cases: count * random::cases(),
        max_shrink_iters: 4_000,
        max_shrink_time: if by_default.max_shrink_time == 0 {
            SHRINKS_FOR
        } else {
            by_default.max_shrink_time
        },
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(regressions))),
        ..by_default
    };
    let has_failed = Cell::new(false);
    let result = TestRunner::new(config).run(strategy, |history| {
        check(&history).map_err(|reason| {
            if !has_failed.replace(true) {
                // Shown at once, unlike what is printed.
                let _ = writeln!(io::stderr(), "a history fails, and shorter ones are tried: {reason}");
            }
            TestCaseError::fail(reason)
        })
    });
    match result {
        Ok(()) => {}
        Err(TestError::Fail(reason, history)) => {
            panic!("{reason}\nof the history: {history:#?}\nits seed is in {regressions}")
        }
        Err(TestError::Abort(reason)) => panic!("{reason}"),
    }
}
