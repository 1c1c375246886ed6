//! Arguments from JavaScript, whose numbers are all `f64`, and results for it.

use std::ops::RangeInclusive;
use std::time::Duration;

use napi::bindgen_prelude::Result;
use permits::error::InvalidInput;
use permits::{Diagnosis, PermitHandle};
use serde_json::{Value, json};

use crate::failure::{Failure, thrown};

/// A time in milliseconds.
pub(crate) fn duration(name: &str, ms: f64) -> Result<Duration> {
    Duration::try_from_secs_f64(ms / 1000.0)
        .map_err(|_| thrown(Failure::invalid(format!("{name} is a time of at least 0 ms, not {ms}"))))
}

pub(crate) fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// A number of units or another count, of at least `least`.
pub(crate) fn count(name: &str, least: u32, number: f64) -> Result<u32> {
    ranged(name, least..=u32::MAX, number, "")
}

/// A limit.
pub(crate) fn limit(number: f64) -> Result<u32> {
    ranged("the limit", 1..=u32::MAX, number, "; to stop all grants, pause the semaphore")
}

/// The share of a lane.
pub(crate) fn share(number: f64) -> Result<u32> {
    ranged("the share", 1..=1000, number, "")
}

fn ranged(name: &str, allowed: RangeInclusive<u32>, number: f64, advice: &str) -> Result<u32> {
    let (least, most) = (*allowed.start(), *allowed.end());
    if number.fract() == 0.0 && (f64::from(least)..=f64::from(most)).contains(&number) {
        return Ok(number as u32);
    }
    Err(thrown(Failure::invalid(format!(
        "{name} is a whole number from {least} to {most}, not {number}{advice}"
    ))))
}

/// A whole number of at least `least`. All of the library's are below 2^53.
pub(crate) fn whole(name: &str, least: f64, number: f64) -> Result<i64> {
    if number.fract() == 0.0 && (least..2f64.powi(53)).contains(&number) {
        return Ok(number as i64);
    }
    Err(thrown(Failure::invalid(format!("{name} is a whole number, not {number}"))))
}

pub(crate) fn handle(text: &str) -> Result<PermitHandle> {
    text.parse().map_err(|error: InvalidInput| thrown(error))
}

/// A diagnosis as JSON.
pub(crate) fn diagnosis(found: &Diagnosis) -> String {
    let findings: Vec<Value> = found
        .findings
        .iter()
        .map(|finding| {
            json!({
                "subject": finding.subject,
                "severity": finding.severity.to_string(),
                "observed": finding.observed,
                "advice": finding.advice,
            })
        })
        .collect();
    json!({ "store": found.store, "is_healthy": found.is_healthy(), "findings": findings }).to_string()
}
