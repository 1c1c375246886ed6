//! The events of the protocol.

use std::time::Duration;

use permits::{Inspection, Permit};
use serde::Serialize;
use serde_json::Value;

use crate::acquire::PermitJson;
use crate::clock::milliseconds;
use crate::exit::Failure;

/// A line of the protocol. Programs depend on it: events and fields may be added, never changed.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum Event<'a> {
    /// The first event for a program that may make many requests. From now on its lines are read.
    Hello {
        /// The version of the lines. It changes only if a program that exists could misread an event.
        lines: u32,
        /// The version of the command.
        permits: &'static str,
        /// The kinds of lines, and the options of a request.
        has: Vec<&'static str>,
    },
    Waiting {
        name: &'a str,
        position: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        expected_ms: Option<u64>,
    },
    Granted {
        #[serde(flatten)]
        permit: PermitJson,
        remaining_ms: u64,
        also: Vec<PermitJson>,
    },
    Held {
        remaining_ms: u64,
        /// The kind of line that it answers.
        #[serde(skip_serializing_if = "Option::is_none")]
        answers: Option<&'static str>,
    },
    Unsure {
        remaining_ms: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        answers: Option<&'static str>,
    },
    Lost {
        name: Option<&'a str>,
        reason: &'a str,
    },
    Released {
        reason: &'a str,
    },
    HandedOver {
        handle: String,
    },
    Inspected {
        inspection: Box<Inspection>,
    },
    Listed {
        names: Vec<String>,
    },
    Changed {
        found: bool,
        limit: Option<u32>,
        limit_version: Option<u64>,
    },
    Failed {
        exit_code: u8,
        reason: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        retry_after_ms: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        stands_still: Option<bool>,
        #[serde(skip_serializing_if = "Option::is_none")]
        inspection: Option<&'a Value>,
    },
    /// A line of the program that has no effect.
    Invalid {
        line: u64,
        reason: &'a str,
    },
}

impl<'a> Event<'a> {
    pub(super) fn hello(has: Vec<&'static str>) -> Self {
        Self::Hello { lines: 1, permits: env!("CARGO_PKG_VERSION"), has }
    }

    pub(super) fn failed(failure: &'a Failure) -> Self {
        let fields = &failure.fields;
        Self::Failed {
            exit_code: failure.code,
            reason: &failure.message,
            retry_after_ms: fields["retry_after_ms"].as_u64(),
            stands_still: fields["stands_still"].as_bool(),
            inspection: fields.get("inspection"),
        }
    }

    /// The grant of all permits, with the permit of `name` first.
    pub(super) fn granted(permits: &[Permit], name: &str, remaining: Duration) -> Self {
        let (named, others): (Vec<_>, Vec<_>) = permits.iter().partition(|permit| permit.semaphore() == name);
        Self::Granted {
            permit: PermitJson::new(named[0]),
            remaining_ms: milliseconds(remaining),
            also: others.into_iter().map(PermitJson::new).collect(),
        }
    }
}
