//! Arguments from JavaScript, whose numbers are all `f64`, and results for it.

use std::time::Duration;

use napi::bindgen_prelude::Result;
use napi_derive::napi;
use permits::error::InvalidInput;
use permits::{AcquireOptions, PermitHandle, check};
use permits_bindings::Language;

use crate::failure::{Failure, thrown};

/// A time in milliseconds.
pub(crate) fn duration(name: &str, ms: f64) -> Result<Duration> {
    Language::JavaScript.duration(name, ms).map_err(thrown)
}

/// A request of the options as JSON.
pub(crate) fn request(options: Option<&str>) -> Result<AcquireOptions> {
    Language::JavaScript.request(options).map_err(thrown)
}

pub(crate) fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// A number of units or another count, of at least `least`.
pub(crate) fn count(name: &str, least: u32, number: f64) -> Result<u32> {
    permits_bindings::count(name, least, number).map_err(thrown)
}

/// A limit.
pub(crate) fn limit(number: f64) -> Result<u32> {
    permits_bindings::limit(number).map_err(thrown)
}

/// A whole number of at least `least`. All of the library's are below 2^53.
pub(crate) fn whole(name: &str, least: f64, number: f64) -> Result<i64> {
    if number.fract() == 0.0 && (least..2f64.powi(53)).contains(&number) {
        return Ok(number as i64);
    }
    Err(thrown(Failure::invalid(format!("{name} is a whole number, not {number}"))))
}

/// Refuses the name of an option that is none of those that are known.
#[napi]
pub(crate) fn check_field(name: String, known: Vec<String>) -> Result<()> {
    let known: Vec<_> = known.iter().map(String::as_str).collect();
    check::field(&name, &known).map_err(thrown)
}

pub(crate) fn handle(text: &str) -> Result<PermitHandle> {
    text.parse().map_err(|error: InvalidInput| thrown(error))
}
