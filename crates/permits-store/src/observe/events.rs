//! The table of events: a function for each, with its level, its fields and its message.
//!
//! The target of an event is `permits::` and the name of its function. So each event has a target of its own,
//! by which a filter can select it. Targets and names of fields are an interface of the library:
//! `docs/reference/metrics.md` lists them.
//!
//! An event about an acquisition has the span of the acquisition as its parent. An outcome keeps the span
//! open until it is emitted.

use std::fmt::Display;

use tracing::field::{DisplayValue, display};
use tracing::span::Id;
use tracing::{Level, Value};

use super::queue::{is_on, queue};
use super::span::AcquireSpan;

/// A value that is shown as its `Display` does.
type Text<'a> = &'a dyn Display;

/// A value of a field, for the thread that emits the event.
trait Queued {
    type Field: Field;

    fn queued(self) -> Self::Field;
}

/// A value in the queue.
trait Field: Send + 'static {
    fn value(&self) -> impl Value;
}

impl Queued for Text<'_> {
    type Field = String;

    fn queued(self) -> String {
        self.to_string()
    }
}

impl Field for String {
    fn value(&self) -> impl Value {
        let shown: DisplayValue<&str> = display(self.as_str());
        shown
    }
}

impl Queued for u64 {
    type Field = Self;

    fn queued(self) -> Self {
        self
    }
}

impl Field for u64 {
    /// The integers of OpenTelemetry are signed.
    fn value(&self) -> impl Value {
        i64::try_from(*self).unwrap_or(i64::MAX)
    }
}

/// The parent of an event, which is kept until the event is emitted.
trait Parent: Sized {
    fn id(&self) -> Option<Id>;

    fn emitted(self) {}
}

impl Parent for Option<Id> {
    fn id(&self) -> Option<Id> {
        self.clone()
    }
}

impl Parent for AcquireSpan {
    fn id(&self) -> Option<Id> {
        AcquireSpan::id(self)
    }
}

/// Makes a function for each event, which queues the event if the level is on.
macro_rules! events {
    ($($(#[$attribute:meta])* $level:ident $name:ident $(in $parent:ty)? { $($field:ident: $type:ty),* $(,)? } $message:literal;)*) => {$(
        $(#[$attribute])*
        #[doc = concat!("Emits the event `", stringify!($name), "`: ", $message, ".")]
        pub fn $name($(parent: $parent,)? $($field: $type),*) {
            if !is_on(Level::$level) {
                return;
            }
            $(let $field = Queued::queued($field);)*
            queue(Level::$level, move || {
                let id: Option<Id> = None $(.or_else(|| <$parent as Parent>::id(&parent)))?;
                tracing::event!(
                    target: concat!("permits::", stringify!($name)),
                    parent: id,
                    Level::$level,
                    $($field = Field::value(&$field),)*
                    $message
                );
                $(<$parent as Parent>::emitted(parent);)?
            });
        }
    )*};
}

events! {
    // Acquisitions.
    DEBUG waiting in Option<Id> { semaphore: Text<'_>, holder: Text<'_>, position: u64 } "waiting";
    DEBUG granted in AcquireSpan {
        semaphore: Text<'_>, holder: Text<'_>, token: u64, slot: u64, waited_ms: u64
    } "granted";
    DEBUG granted_again { semaphore: Text<'_>, holder: Text<'_>, token: u64, slot: u64 } "granted again";
    DEBUG refused in AcquireSpan { semaphore: Text<'_>, holder: Text<'_>, reason: Text<'_>, error: Text<'_> } "refused";
    DEBUG timed_out in AcquireSpan { semaphore: Text<'_>, holder: Text<'_>, waited_ms: u64 } "no permit in time";
    DEBUG cancelled in AcquireSpan { semaphore: Text<'_>, holder: Text<'_> } "cancelled";
    DEBUG adopted { semaphore: Text<'_>, holder: Text<'_>, token: u64, slot: u64 } "adopted";

    // Permits.
    WARN unsure { semaphore: Text<'_>, holder: Text<'_>, remaining_ms: u64, reason: Text<'_> } "a renewal has failed";
    WARN renewal_late { semaphore: Text<'_>, late_ms: u64 } "a renewal is late";
    WARN lost { semaphore: Text<'_>, holder: Text<'_>, reason: Text<'_> } "a permit was lost";
    WARN revoked { semaphore: Text<'_>, holder: Text<'_>, reason: Text<'_> } "a permit was revoked";
    WARN not_released { semaphore: Text<'_>, holder: Text<'_>, error: Text<'_> }
        "not released: it ends with its lease";

    // Semaphores.
    INFO limit_changed { semaphore: Text<'_>, from: u64, to: u64 } "the limit has changed";
    WARN limit_replaced { semaphore: Text<'_>, from: u64, to: u64 }
        "the limit declared here has replaced the stored one";
    WARN lane_bounds_replaced { semaphore: Text<'_>, lane: Text<'_>, limit: u64, floor: u64 }
        "a request has replaced the limit or the floor of its lane";
    WARN limit_differs { semaphore: Text<'_>, declared: u64, limit: u64 }
        "another limit is in force than the one declared";
    INFO limit_pinned { semaphore: Text<'_>, limit: u64 } "the limit is pinned";
    INFO limit_unpinned { semaphore: Text<'_>, limit: u64 } "the limit is no longer pinned";
    INFO paused { semaphore: Text<'_>, reason: Text<'_>, for_ms: u64 } "paused";
    INFO resumed { semaphore: Text<'_> } "resumed";
    INFO recovery_begun { semaphore: Text<'_>, remaining_ms: u64 }
        "the store recovers: it grants nothing out of free capacity";
    INFO recovery_ended { semaphore: Text<'_> } "the store has recovered";

    // Connections.
    DEBUG connected { server: Text<'_> } "connected";
    INFO reconnected { server: Text<'_> } "connected again";
    WARN connection_lost { server: Text<'_>, reason: Text<'_> } "connecting again";
    WARN not_connected { server: Text<'_>, reason: Text<'_> } "not connected yet";
    WARN store_unreachable { store: Text<'_>, error: Text<'_>, within: Text<'_> } "not connected yet: retrying";
    DEBUG logged_in_again { server: Text<'_> } "logged in again";
    WARN not_logged_in_again { server: Text<'_>, reason: Text<'_> }
        "the connection stays as it is: logging in again has failed";
    WARN may_evict { server: Text<'_>, policy: Text<'_> }
        "this server may evict live semaphores when its memory is full: set maxmemory-policy noeviction";
    WARN malformed_message { reason: Text<'_> } "a malformed message";
    INFO primary_moved { service: Text<'_> } "the sentinels have chosen another server";
    DEBUG hash_slot_moved { hash_slot: u64, node: Text<'_>, port: u64 } "the hash slot has moved";
    DEBUG no_slot_map { error: Text<'_> } "no map of the cluster";
}
