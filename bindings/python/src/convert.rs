//! Arguments from Python, and results for it.

use std::time::{Duration, SystemTime};

use permits::{Diagnosis, Inspection};
use pyo3::prelude::*;

use crate::failure::Failure;

/// A time in seconds.
pub(crate) fn duration(name: &str, seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| Failure::invalid(format!("{name} is a time of at least 0 s, not {seconds}")).raised())
}

/// A number of units or another count, of at least `least`.
pub(crate) fn count(name: &str, least: u32, number: i64) -> PyResult<u32> {
    ranged(name, least, number, "")
}

/// A limit.
pub(crate) fn limit(number: i64) -> PyResult<u32> {
    ranged("the limit", 1, number, "; to stop all grants, pause the semaphore")
}

fn ranged(name: &str, least: u32, number: i64, advice: &str) -> PyResult<u32> {
    u32::try_from(number).ok().filter(|found| *found >= least).ok_or_else(|| {
        let most = u32::MAX;
        Failure::invalid(format!("{name} is a number from {least} to {most}, not {number}{advice}")).raised()
    })
}

/// An inspection, as the arguments of the class of that name.
#[derive(IntoPyObject)]
pub(crate) struct InspectionFields {
    name: String,
    limit: Option<u32>,
    limit_version: u64,
    pinned: bool,
    paused: bool,
    closed: Option<String>,
    held: u64,
    waiting: u64,
    recovering: f64,
    grants: u64,
    refused: u64,
    expired: u64,
    revoked: u64,
    holders: Vec<HolderFields>,
    waiters: Vec<WaiterFields>,
    changes: Vec<ChangeFields>,
}

#[derive(IntoPyObject)]
struct ChangeFields {
    change: &'static str,
    by: String,
    at: f64,
    age: f64,
    limit: Option<u32>,
    holder: Option<String>,
    reason: Option<String>,
}

#[derive(IntoPyObject)]
struct HolderFields {
    holder: String,
    weight: u32,
    slot: u32,
    token: u64,
    lease_remaining: f64,
    cooling: bool,
    age: f64,
    label: Option<String>,
}

#[derive(IntoPyObject)]
struct WaiterFields {
    holder: String,
    weight: u32,
    position: u64,
    age: f64,
    label: Option<String>,
}

impl From<Inspection> for InspectionFields {
    fn from(found: Inspection) -> Self {
        let holders = found.holders.into_iter().map(|holder| HolderFields {
            holder: holder.holder,
            weight: holder.weight,
            slot: holder.slot,
            token: holder.token,
            lease_remaining: holder.lease_remaining.as_secs_f64(),
            cooling: holder.cooling,
            age: holder.age.as_secs_f64(),
            label: holder.label,
        });
        let waiters = found.waiters.into_iter().map(|waiter| WaiterFields {
            holder: waiter.holder,
            weight: waiter.weight,
            position: waiter.position,
            age: waiter.age.as_secs_f64(),
            label: waiter.label,
        });
        let changes = found.changes.into_iter().map(|info| ChangeFields {
            change: info.change.keyword(),
            at: info.at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64(),
            age: info.age.as_secs_f64(),
            limit: info.change.limit(),
            holder: info.change.holder().map(str::to_owned),
            reason: info.change.reason().map(str::to_owned),
            by: info.by,
        });
        Self {
            name: found.name,
            limit: found.limit,
            limit_version: found.limit_version,
            pinned: found.pinned,
            paused: found.paused,
            closed: found.closed,
            held: found.held,
            waiting: found.waiting,
            recovering: found.recovering.as_secs_f64(),
            grants: found.counts.grants,
            refused: found.counts.refused,
            expired: found.counts.expired,
            revoked: found.counts.revoked,
            holders: holders.collect(),
            waiters: waiters.collect(),
            changes: changes.collect(),
        }
    }
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
