//! Connecting, and what is found of a store.

use permits::Diagnosis;
use serde_json::{Value, json};

/// A diagnosis as JSON, for a class of that name.
pub fn diagnosis(found: &Diagnosis) -> String {
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
