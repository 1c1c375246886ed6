//! Random tests: the number of their cases, and their seed.
//!
//! The environment sets both, so that every random test is multiplied and repeated in one way.

use std::collections::hash_map::RandomState;
use std::env;
use std::hash::{BuildHasher, Hasher};

/// The environment variable that multiplies the cases of every random test.
const CASES: &str = "PERMITS_CASES";

/// The environment variable that gives the seed.
const SEED: &str = "PERMITS_TEST_SEED";

/// The factor by which a random test multiplies its cases: `PERMITS_CASES`, 1 if that is not set.
#[track_caller]
pub fn cases() -> u32 {
    match given::<u32>(CASES) {
        Some(0) => panic!("{CASES} is 0: a test without a case shows nothing"),
        cases => cases.unwrap_or(1),
    }
}

/// The seed of a random test: `PERMITS_TEST_SEED`; a new one in each call if that is not set.
///
/// Printed as the assignment that repeats the test, which the test harness shows when the test fails.
#[track_caller]
pub fn seed() -> u64 {
    let seed = given(SEED).unwrap_or_else(|| RandomState::new().build_hasher().finish());
    println!("{SEED}={seed}");
    seed
}

/// Random numbers from such a [`seed`].
#[track_caller]
pub fn rng() -> fastrand::Rng {
    fastrand::Rng::with_seed(seed())
}

#[track_caller]
fn given<T: std::str::FromStr>(variable: &str) -> Option<T> {
    let value = env::var_os(variable)?;
    let number = value.to_str().and_then(|text| text.parse().ok());
    Some(number.unwrap_or_else(|| panic!("{variable} is {value:?}, and must be a whole number")))
}
