//! Calls to a store without a session, for `permits doctor` and tests. Each call waits for its outcome.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::backend::{Executed, Report, Request, Sink, Store};
use super::error::StoreError;
use crate::protocol::{Command, Reply};

/// How many reports may wait to be received. Further reports are lost.
const REPORTS: usize = 1024;

type Outcome = Result<Executed, StoreError>;

/// Stands in for a session at a store.
pub struct Direct {
    waiting: Mutex<HashMap<u64, oneshot::Sender<Outcome>>>,
    requests: AtomicU64,
    reports: mpsc::Sender<Report>,
}

impl Direct {
    /// Returns the sink to open a store with, and a receiver of all reports of that store but outcomes.
    pub fn new() -> (Arc<Self>, mpsc::Receiver<Report>) {
        let (sender, reports) = mpsc::channel(REPORTS);
        let direct = Self { waiting: Mutex::default(), requests: AtomicU64::new(0), reports: sender };
        (Arc::new(direct), reports)
    }

    /// Executes a command.
    pub async fn execute(
        &self,
        store: &dyn Store,
        command: &Command,
        timeout: Duration,
    ) -> Result<Reply, StoreError> {
        let (sender, outcome) = oneshot::channel();
        let id = self.requests.fetch_add(1, Ordering::Relaxed);
        self.lock().insert(id, sender);
        let outcome = match store.send(Request { id, command: command.clone(), timeout, replicas: 0 }) {
            Some(outcome) => outcome,
            None => outcome.await.unwrap_or_else(|_| {
                Err(StoreError::NoAnswer { reason: "the store ended without an outcome".into() })
            }),
        };
        self.lock().remove(&id);
        Ok(outcome?.reply)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, oneshot::Sender<Outcome>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sink for Direct {
    fn report(&self, reports: &mut Vec<Report>) {
        for report in reports.drain(..) {
            match report {
                Report::Outcome { id, result } => {
                    // If the caller has given up, nobody needs the result. The same holds for a report
                    // without a receiver.
                    if let Some(sender) = self.lock().remove(&id) {
                        let _ = sender.send(result);
                    }
                }
                report => drop(self.reports.try_send(report)),
            }
        }
    }
}
