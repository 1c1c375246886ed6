//! The names of the metrics, with their kinds, units and labels. `docs/reference/metrics.md` lists them.

use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

pub(super) const WAIT: &str = "permits_wait_seconds";
pub(super) const HOLD: &str = "permits_hold_seconds";
pub(super) const STORE_CALL: &str = "permits_store_call_seconds";
pub(super) const HELD: &str = "permits_held";
pub(super) const WAITING: &str = "permits_waiting";
pub(super) const GRANTS: &str = "permits_grants_total";
pub(super) const LOCAL_GRANTS: &str = "permits_local_grants_total";
pub(super) const REFUSALS: &str = "permits_refusals_total";
pub(super) const LOSSES: &str = "permits_losses_total";
pub(super) const RECONNECTS: &str = "permits_reconnects_total";
pub(super) const RETRIES: &str = "permits_retries_total";
pub(super) const BATCHES: &str = "permits_batches_total";
pub(super) const BATCHED_REQUESTS: &str = "permits_batched_requests_total";

pub(super) const SEMAPHORE: &str = "semaphore";
pub(super) const REASON: &str = "reason";
pub(super) const OPERATION: &str = "operation";

/// The label of all semaphores that have no metrics of their own.
pub(super) const OTHER: &str = "other";

/// Describes every metric to the recorder.
pub(super) fn describe() {
    describe_histogram!(WAIT, Unit::Seconds, "The time from a request to its grant");
    describe_histogram!(HOLD, Unit::Seconds, "The time from a grant to its release or loss");
    describe_histogram!(STORE_CALL, Unit::Seconds, "The time from sending a call to its outcome");
    describe_gauge!(HELD, Unit::Count, "The permits that this process holds");
    describe_gauge!(WAITING, Unit::Count, "The requests of this process that wait in the queue");
    describe_counter!(GRANTS, Unit::Count, "The acquisitions that were granted");
    describe_counter!(
        LOCAL_GRANTS,
        Unit::Count,
        "The acquisitions that were granted out of what this process keeps"
    );
    describe_counter!(REFUSALS, Unit::Count, "The acquisitions that ended without a permit, by reason");
    describe_counter!(LOSSES, Unit::Count, "The permits that were lost, by reason");
    describe_counter!(RECONNECTS, Unit::Count, "The times that the store could be reached again");
    describe_counter!(RETRIES, Unit::Count, "The calls that failed in a way that may pass");
    describe_counter!(BATCHES, Unit::Count, "The calls with several requests");
    describe_counter!(BATCHED_REQUESTS, Unit::Count, "The requests in the calls with several");
}
