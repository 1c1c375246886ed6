//! Arguments from Python, and results for it.

use std::ops::RangeInclusive;
use std::time::Duration;

use permits::{Diagnosis, Inspection};
use pyo3::prelude::*;

use crate::failure::{Failure, Raise as _};

/// A time in seconds.
pub(crate) fn duration(name: &str, seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| Failure::invalid(format!("{name} is a time of at least 0 s, not {seconds}")).raised())
}

/// A number of units or another count, of at least `least`.
pub(crate) fn count(name: &str, least: u32, number: i64) -> PyResult<u32> {
    ranged(name, least..=u32::MAX, number, "")
}

/// A limit.
pub(crate) fn limit(number: i64) -> PyResult<u32> {
    ranged("the limit", 1..=u32::MAX, number, "; to stop all grants, pause the semaphore")
}

/// The share of a lane.
pub(crate) fn share(number: i64) -> PyResult<u32> {
    ranged("the share", 1..=1000, number, "")
}

fn ranged(name: &str, allowed: RangeInclusive<u32>, number: i64, advice: &str) -> PyResult<u32> {
    u32::try_from(number).ok().filter(|found| allowed.contains(found)).ok_or_else(|| {
        let (least, most) = (allowed.start(), allowed.end());
        Failure::invalid(format!("{name} is a number from {least} to {most}, not {number}{advice}")).raised()
    })
}

/// An inspection as JSON, of which `_types.py` makes the classes.
pub(crate) fn inspection(found: &Inspection) -> String {
    serde_json::to_string(found).expect("numbers, texts and lists of them are JSON")
}

/// A diagnosis, as the arguments of the class of that name.
#[derive(IntoPyObject)]
pub(crate) struct DiagnosisFields {
    store: String,
    findings: Vec<FindingFields>,
    is_healthy: bool,
}

#[derive(IntoPyObject)]
struct FindingFields {
    subject: &'static str,
    severity: String,
    observed: String,
    advice: String,
}

impl From<Diagnosis> for DiagnosisFields {
    fn from(diagnosis: Diagnosis) -> Self {
        let is_healthy = diagnosis.is_healthy();
        let findings = diagnosis.findings.into_iter().map(|finding| FindingFields {
            subject: finding.subject,
            severity: finding.severity.to_string(),
            observed: finding.observed,
            advice: finding.advice,
        });
        Self { store: diagnosis.store, findings: findings.collect(), is_healthy }
    }
}
