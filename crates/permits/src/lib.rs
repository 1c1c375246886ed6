//! A distributed semaphore for Redis and Valkey.
//!
//! Many processes on many machines share a resource that takes N users at once. This crate admits at most N,
//! in the order they came, hands a permit on in one message when it is released, and takes it back when its
//! holder crashes.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let url = "memory:";
//! let client = permits::Client::connect(url).await?; // "redis://127.0.0.1/"
//! let exports = client.semaphore("exports", 4)?;
//!
//! let permit = exports.acquire().await?; // waits in line
//! // … at most 4 of these run at once, anywhere
//! permit.release().await?; // or just drop it
//! # client.close().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Promises
//!
//! 1. **Never more than N.** At most the limit's units are held at once, under crashes, pauses, skewed
//!    clocks, lost replies, retries and reconnects.
//! 2. **Nothing leaks.** A crashed holder's units are freed when its lease ends. A cancelled or dropped
//!    `acquire` leaves nothing behind. An idle semaphore leaves no keys behind, apart from what an
//!    operator has set.
//! 3. **First come, first served.** Nobody overtakes, and small requests do not starve a big one, unless you
//!    ask for it: with [lanes](AcquireOptions::lane), which share a line and are in order inside, with
//!    [`keep`](Semaphore::keep), or with [`supersede`](AcquireOptions::supersede).
//! 4. **No waste.** Acquire and release take one round trip each. With [`keep`](Semaphore::keep), a client
//!    reuses its permit without any, as long as nobody else waits. A release wakes the next in line alone:
//!    there is no polling, and no herd.
//! 5. **The holder knows.** A [`Permit`] knows until when it is certainly held, and signals before that time
//!    if it could not be renewed. It has a fencing token and a slot.
//!
//! # Limits of the promises
//!
//! - A holder whose permit was lost must stop. If it does not, only the resource itself can reject it, by the
//!   [token](Permit::token). [`Permit::run`] stops a future for you.
//! - A server that loses state (FLUSHALL, a failover while the old primary still replies) can admit too many
//!   for up to a lease; [`ClientBuilder::replicas`] and the server's `min-replicas-to-write` narrow that.
//!   After a *restart* that loses state, the store grants no free unit for some seconds, in which connected
//!   holders put their permits back: see [`Recovery`].
//! - The server's wall clock must not jump forward by more than 1 % of a lease: it would end leases early.
//! - On systems other than Linux the clock of a deadline may stand still while the machine sleeps. A permit
//!   then looks held after its lease has ended, until its client hears from the store.
//! - A client belongs to the process that connected it. In a forked child every operation fails at once, with
//!   [`Ended::Forked`], or [`Lost::Forked`] if it is one of a permit, and changes nothing for the parent:
//!   connect in the child.
//!
//! # Map
//!
//! [`Client`] connects; [`Semaphore`] acquires, with [`AcquireOptions`], and is administered; [`Permit`] is
//! the result. [`Client::acquire_all`] acquires permits of several semaphores; [`PermitSet`] is the result.
//! Operations return a [`Reply`]: a task awaits it, a thread without a runtime calls [`Reply::wait`].
//! [`error`] has the errors, one enum for each operation.
//! [`ClientBuilder::diagnose`] finds the problems of a store. [`check`] checks input before there is a
//! client.
//!
//! # Features
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `redis` | yes | Redis and Valkey: `redis://`, `redis+unix://`, `redis+sentinel://`, `redis+cluster://` |
//! | `tls` | no | `rediss://`, `rediss+sentinel://`, `rediss+cluster://`, by rustls with ring, which needs a C compiler |
//! | `local` | no | `local:`: one machine, a directory, no server; on Unix |
//! | `metrics` | no | histograms, gauges and counters, by the facade crate [`metrics`](https://docs.rs/metrics) |
//! | `serde` | no | `Serialize` for [`Inspection`], with the fields of `permits status --json` except `store`; [`AcquireOptions`] and [`Change`] as JSON |
//!
//! `memory:` is always there.
#![forbid(unsafe_code)]
// The test of threads compiles two modules once more, with the primitives of loom.
#![cfg_attr(test, allow(clippy::duplicate_mod))]

mod acquire;
pub mod check;
mod client;
mod diagnostics;
pub mod error;
mod hand_over;
mod handle;
mod inspection;
#[cfg(feature = "serde")]
mod json;
mod obstacles;
mod options;
mod permit;
mod reply;
mod requests;
mod semaphore;
mod session;
mod several;
mod store;

use permits_core::{acquisition, clock, keeping, model, protocol, timing};
use permits_store::{observe, sys};

pub use acquire::{Acquire, Canceller};
pub use client::Client;
pub use client::builder::ClientBuilder;
pub use diagnostics::{Diagnosis, Finding, Severity};
pub use error::{
    AcquireAllError, AcquireError, AdminError, AdoptError, CloseError, ConnectError, Ended, InvalidInput,
    Lost, ReleaseError, RenewError, StoreError,
};
pub use handle::PermitHandle;
pub use inspection::{ChangeInfo, HolderInfo, Inspection, LaneInfo, OperatorChange, WaiterInfo};
pub use options::{AcquireOptions, Limit};
pub use permit::Permit;
#[doc(inline)]
pub use permits_core::protocol::{Alert, Counts, Recovery, WAIT_BOUNDS, Waits};
#[doc(inline)]
pub use permits_store::credentials::Credentials;
pub use reply::Reply;
pub use semaphore::{Change, Changed, Semaphore};
pub use session::permit_state::PermitStatus;
pub use several::{AcquireAll, PermitSet};

#[cfg(feature = "redis")]
pub use permits_redis::{AclRules, acl_rules};
/// The type of [`Permit::cancellation_token`], from tokio-util 0.7. This crate keeps to that version until
/// its own next breaking release.
pub use tokio_util::sync::CancellationToken;

/// Every public type can cross threads and outlive its caller.
#[cfg(test)]
const _: () = {
    const fn crosses_threads<T: Send + Sync + 'static>() {}
    crosses_threads::<Client>();
    crosses_threads::<ClientBuilder>();
    crosses_threads::<Credentials>();
    crosses_threads::<Semaphore>();
    crosses_threads::<AcquireOptions>();
    crosses_threads::<Change>();
    crosses_threads::<Acquire>();
    crosses_threads::<AcquireAll>();
    crosses_threads::<Permit>();
    crosses_threads::<PermitHandle>();
    crosses_threads::<PermitSet>();
    crosses_threads::<Diagnosis>();
    crosses_threads::<Inspection>();
    const fn is_sent<T: Send + 'static>() {}
    is_sent::<Reply<(), AdminError>>();
    crosses_threads::<Canceller>();
    crosses_threads::<AcquireAllError>();
    crosses_threads::<AcquireError>();
    crosses_threads::<AdminError>();
    crosses_threads::<AdoptError>();
    crosses_threads::<CloseError>();
    crosses_threads::<ConnectError>();
    crosses_threads::<Lost>();
    crosses_threads::<ReleaseError>();
    crosses_threads::<RenewError>();
};

/// The pages with Rust blocks are listed here, so that the blocks are compiled and run. A test of the test
/// kit checks that no page is missing.
#[cfg(doctest)]
mod documents {
    macro_rules! pages {
        ($($name:ident = $page:literal,)*) => {
            $(#[doc = include_str!(concat!("../../../", $page))] mod $name {})*
        };
    }

    pages! {
        readme = "README.md",
        cookbook = "docs/cookbook.md",
        credentials = "docs/operate/credentials.md",
        rust = "docs/languages/rust.md",
        ending = "docs/use/ending.md",
        keep = "docs/use/keep.md",
        lanes = "docs/use/lanes.md",
        losing = "docs/use/losing.md",
        newest = "docs/use/newest.md",
        rates = "docs/use/rates.md",
        several = "docs/use/several.md",
        slots = "docs/use/slots.md",
        waiting = "docs/use/waiting.md",
    }
}
