//! The reason why a request is not granted: the pause, the recovery and the holders, by an inspection of a
//! few holders.

use std::time::Duration;

use permits::{AdminError, HolderInfo, Inspection, Semaphore};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::outer;
use crate::clock::milliseconds;
use crate::{report, text};

/// Time the store has to answer an inspection.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// The most holders that are named.
const NAMED: usize = 3;

/// The line in which a request waits.
#[derive(Clone)]
pub(super) struct Line {
    pub(super) semaphore: Semaphore,
    /// The units that it asks for.
    pub(super) weight: u32,
    /// The lane that it names.
    pub(super) lane: Option<String>,
    /// The number of waiters before it, if it is known.
    pub(super) position: Option<u64>,
    /// The time until it is granted, if it is known.
    pub(super) expected: Option<Duration>,
}

/// A reason as text, and its values.
#[derive(Debug, Default)]
pub(super) struct Reason {
    pub(super) text: String,
    pub(super) fields: Value,
    /// A `permits run` around this process holds the units.
    pub(super) is_own_parent: bool,
    /// A pause or a recovery keeps every request out.
    pub(super) stands_still: bool,
}

impl Reason {
    /// The reason in `line`, with labels of at most `columns` columns, or names if there are none. An error
    /// is the reason why it is not known.
    pub(super) async fn inspect(line: &Line, columns: usize) -> Result<Self, Self> {
        let unknown = |text: String| {
            let fields = json!({ "reason": text });
            Self { text, fields, ..Self::default() }
        };
        // All holders are listed to find some of them.
        let outer = outer::tokens(line.semaphore.name());
        let inspect = async {
            if outer.is_empty() {
                // Ask for one holder more than the text names, to learn whether there are more.
                line.semaphore.inspect_up_to(NAMED as u32 + 1).await
            } else {
                line.semaphore.inspect().await
            }
        };
        let inspected: Result<Inspection, AdminError> = timeout(ANSWER_TIMEOUT, inspect)
            .await
            .map_err(|_| unknown("the store does not answer".to_owned()))?;
        let inspection = inspected.map_err(|error| unknown(report::with_causes(&error)))?;
        let is_own_parent = outer::blocks(&inspection, &outer, line.weight);
        Ok(Self::of(&inspection, is_own_parent, columns))
    }

    /// The reason that an inspection shows.
    pub(super) fn of(inspection: &Inspection, is_own_parent: bool, columns: usize) -> Self {
        let text = match inspection.limit.filter(|_| is_own_parent) {
            Some(limit) => format!("{} of {limit} held by this command's own parent", inspection.held),
            None => inspection.why(|info| named(info, columns)),
        };
        let fields = report::joined(fields(inspection), &json!({ "reason": text }));
        Self { text, fields, is_own_parent, stands_still: inspection.stands_still() }
    }
}

/// The time until the lease of `holder` ends unless it is renewed; `None` if it is not known.
pub(super) async fn lease_of(line: &Line, holder: &str) -> Option<Duration> {
    let inspection = timeout(ANSWER_TIMEOUT, line.semaphore.inspect()).await.ok()?.ok()?;
    let info = inspection.holders.iter().find(|info| info.holder == holder && !info.cooling)?;
    Some(info.lease_remaining)
}

/// A holder: in a status line there is room for its label or its name.
fn named(info: &HolderInfo, columns: usize) -> String {
    match info.label.as_deref() {
        _ if columns == usize::MAX => info.to_string(),
        Some(label) => format!("{:?}", text::truncate(label, columns)),
        None => text::truncate(&info.holder, columns),
    }
}

fn fields(inspection: &Inspection) -> Value {
    let holder = |info: &HolderInfo| {
        let age_ms = milliseconds(info.age);
        json!({ "holder": info.holder, "label": info.label, "age_ms": age_ms, "cooling": info.cooling })
    };
    json!({
        "held": inspection.held,
        "limit": inspection.limit,
        "waiting": inspection.waiting,
        "paused": inspection.paused,
        "pause_remaining_ms": inspection.pause_remaining.map(milliseconds),
        "pause_reason": inspection.pause_reason,
        "recovering_ms": milliseconds(inspection.recovering),
        "holders": inspection.holders.iter().take(NAMED).map(holder).collect::<Vec<_>>(),
    })
}
