//! Diagnostics: a [`Diagnosis`] lists the faults of a store, each [`Finding`] with its remedy.
//!
//! A diagnosis opens no session. It first inspects the store without changing it (configuration, access
//! rights), then, if it has a self-test, runs every operation on a scratch semaphore and deletes that. It has
//! a thread of its own, so it measures the store and not the program. An unreachable store or denied access
//! is a finding, not an error.
//!
//! - `finding`: `Finding` and `Severity`.
//! - `self_test`: every operation once, and the round-trip time; the same for all stores.
//! - `local`, `redis`: one file or directory for each store that can have faults.

mod finding;
#[cfg(all(feature = "local", unix))]
mod local;
#[cfg(feature = "redis")]
mod redis;
#[cfg(any(feature = "local", feature = "redis"))]
mod self_test;

use std::time::Duration;

use tokio::sync::oneshot;

pub use self::finding::{Finding, Severity};
use crate::store::{Address, MemoryName};
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
        let findings = diagnose(&address, &prefix, lease, self_test).await;
        // The receiver may have been dropped.
        let _ = answer.send(Ok(Diagnosis { store: address.to_string(), findings }));
        || ()
    })
}

/// The findings about a store. `lease` is the caller's usual lease.
#[cfg_attr(not(any(feature = "local", feature = "redis")), expect(unused_variables))]
async fn diagnose(address: &Address, prefix: &str, lease: Duration, self_test: bool) -> Vec<Finding> {
    #[cfg(all(feature = "local", unix))]
    if let Some(directory) = address.location() {
        return local::diagnose(address, directory, prefix, lease, self_test).await;
    }
    #[cfg(feature = "redis")]
    if let Some(servers) = address.location() {
        return redis::diagnose(address, servers, prefix, lease, self_test).await;
    }
    let observed = match address.location::<MemoryName>() {
        Some(_) => "the memory of this process, which no other process sees",
        None => "there is no diagnosis for stores of this kind",
    };
    vec![Finding::fine("store", observed)]
}
