//! Diagnostics: a [`Diagnosis`] lists the faults of a store, each [`Finding`] with its remedy.
//!
//! A diagnosis opens no session. It first inspects the store without changing it (configuration, access
//! rights), then, if it has a self-test, runs every operation on a scratch semaphore and deletes that. It has
//! a thread of its own, so it measures the store and not the program. An unreachable store or denied access
//! is a finding, not an error.

use std::time::Duration;

use tokio::sync::oneshot;

use permits_store::DiagnoseOptions;
pub use permits_store::{Finding, Severity};

use crate::store::Address;
use crate::sys::background::{SpawnError, spawn_with_runtime};

/// The result of [`ClientBuilder::diagnose`](crate::ClientBuilder::diagnose).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Diagnosis {
    /// The store's address, without any password.
    pub store: String,
    /// The findings, in the order of the inspection.
    pub findings: Vec<Finding>,
}

impl Diagnosis {
    /// Returns true if no finding is a [`Severity::Problem`].
    pub fn is_healthy(&self) -> bool {
        !self.findings.iter().any(Finding::is_problem)
    }
}

/// Starts a diagnosis. It runs to its end and deletes its scratch data even if the receiver is dropped.
pub(crate) fn start(
    address: Address,
    prefix: String,
    lease: Duration,
    self_test: bool,
) -> Result<oneshot::Receiver<Result<Diagnosis, SpawnError>>, SpawnError> {
    spawn_with_runtime(address.uses_sockets(), move |answer| async move {
        let options = DiagnoseOptions { prefix: &prefix, lease, self_test };
        let findings = address.location().diagnose(options).await;
        // The receiver may have been dropped.
        let _ = answer.send(Ok(Diagnosis { store: address.to_string(), findings }));
        || ()
    })
}
