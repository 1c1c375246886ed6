//! The settings of a session.

use std::time::Duration;

use crate::observe::meters::SessionMeters;
use crate::protocol::{Label, Recovery, SessionId};

/// The settings of a session.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) session: SessionId,
    pub(crate) label: Label,
    pub(crate) lease: Duration,
    pub(crate) recovery: Recovery,
    pub(crate) queue_max: u32,
    /// The number of replicas that must have a grant before it is delivered.
    pub(crate) replicas: u32,
    pub(crate) store_timeout: Duration,
    pub(crate) meters: SessionMeters,
}
