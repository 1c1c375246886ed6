//! The events on standard output.

use permits::{Permit, PermitSet};
use serde::Serialize;

use crate::clock::milliseconds;

/// A line of the protocol. Programs depend on it: events and fields may be added, never changed.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum Event<'a> {
    Waiting {
        name: &'a str,
        position: u64,
    },
    Granted {
        #[serde(flatten)]
        permit: PermitJson<'a>,
        remaining_ms: u64,
        also: Vec<PermitJson<'a>>,
    },
    Held {
        remaining_ms: u64,
    },
    Unsure {
        remaining_ms: u64,
    },
    Lost {
        name: Option<&'a str>,
        reason: &'a str,
    },
    Released {
        reason: &'a str,
    },
    Failed {
        exit_code: u8,
        reason: &'a str,
    },
}

/// A permit of [`Event::Granted`].
#[derive(Serialize)]
pub(super) struct PermitJson<'a> {
    name: &'a str,
    holder: &'a str,
    weight: u32,
    token: u64,
    slot: u32,
}

impl<'a> PermitJson<'a> {
    fn new(permit: &'a Permit) -> Self {
        Self {
            name: permit.semaphore(),
            holder: permit.holder(),
            weight: permit.weight(),
            token: permit.token(),
            slot: permit.slot(),
        }
    }
}

impl<'a> Event<'a> {
    /// The grant of all permits, that of `name` first.
    pub(super) fn granted(permits: &'a PermitSet, name: &str) -> Self {
        let (named, others): (Vec<_>, Vec<_>) =
            permits.permits().iter().partition(|permit| permit.semaphore() == name);
        Self::Granted {
            permit: PermitJson::new(named[0]),
            remaining_ms: milliseconds(permits.remaining()),
            also: others.into_iter().map(PermitJson::new).collect(),
        }
    }
}
