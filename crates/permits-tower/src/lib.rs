//! A [tower](https://github.com/tower-rs/tower) layer that holds a permit of a distributed semaphore for each
//! request.
//!
//! A [`PermitLayer`] waits for a permit before it calls the service behind it, and holds the permit until the
//! response, or the body of the response, has ended. The limit counts over all hosts that use the semaphore.
//! So an API that takes 20 calls at once gets 20, from however many clients; and a tenant has 10 requests in
//! work, on however many servers.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! use std::time::Duration;
//!
//! use permits::AcquireOptions;
//! use permits_tower::PermitLayer;
//! use tower::{ServiceBuilder, ServiceExt as _};
//!
//! # let url = "memory:";
//! let client = permits::Client::connect(url).await?; // "redis://127.0.0.1/"
//! let exports = client.semaphore("exports", 4)?;
//!
//! let waiting = AcquireOptions::new().timeout(Duration::from_secs(2));
//! let service = ServiceBuilder::new()
//!     .layer(PermitLayer::until_response(exports).options(waiting))
//!     .service_fn(|name: &'static str| async move { Ok::<_, std::io::Error>(format!("exported {name}")) });
//!
//! assert_eq!(service.oneshot("accounts").await?, "exported accounts");
//! # Ok(())
//! # }
//! ```
//!
//! # When it waits
//!
//! [`PermitService`] acquires in the future of the call. Before that, a service that is ready holds nothing.
//! This matters more than with a limit of one process, because a permit that is reserved for a request to
//! come is missing on all hosts. The request can choose its line, with [`Keyed`].
//!
//! [`ReserveService`], which [`PermitLayer::reserve`] makes, acquires in `poll_ready`. So a balancer or a
//! load shedder sees that the service is not ready. From the moment at which it is ready until the call, it
//! holds a permit that no other request can use. All requests share one line.
//!
//! # How long it holds
//!
//! | constructor | the permit is released when |
//! |---|---|
//! | [`PermitLayer::until_response`] | the future of the call is ready |
//! | [`PermitLayer::until_body_end`] | the body of the response has ended, failed, or was dropped |
//! | [`PermitLayer::holding`] | the caller's [`Hold`] says so |
//!
//! # If the permit is lost
//!
//! Another request may then be granted its units, so the work ends: the future of the call is dropped at its
//! current await, and the call fails with [`PermitError::Lost`]. A body that has begun ends with this error,
//! so that the receiver sees that it is not complete. A permit is lost if the store cannot be reached for
//! most of a lease, if an operator revokes it, if its `max_hold` has passed, or if the client is closed. So
//! close the client after the server has ended.
//!
//! # Features
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `http` | yes | [`PermitBody`], and [`PermitLayer::until_body_end`] |
//! | `load` | no | `tower::load::Load` for the services: the requests in progress |
#![forbid(unsafe_code)]

#[cfg(feature = "http")]
mod body;
mod error;
mod future;
mod held;
mod hold;
mod layer;
mod lines;
mod load;
mod reserve;
mod service;

#[cfg(feature = "http")]
pub use body::PermitBody;
pub use error::{BoxError, PermitError};
pub use future::{ReserveFuture, ResponseFuture};
pub use held::Held;
#[cfg(feature = "http")]
pub use hold::UntilBodyEnd;
pub use hold::{Hold, UntilResponse};
pub use layer::{PermitLayer, ReserveLayer};
pub use lines::{Keyed, Line, Lines};
pub use reserve::ReserveService;
pub use service::PermitService;

/// Servers and balancers move services, futures and bodies between threads.
#[cfg(test)]
const _: () = {
    const fn crosses_threads<T: Send + Sync + 'static>() {}
    crosses_threads::<Held>();
    crosses_threads::<PermitError>();
    crosses_threads::<PermitLayer<permits::Semaphore, UntilResponse>>();
    crosses_threads::<PermitService<(), Keyed<()>, UntilResponse>>();
    crosses_threads::<ReserveLayer<UntilResponse>>();
    crosses_threads::<ReserveService<(), UntilResponse>>();
    crosses_threads::<ReserveFuture<(), UntilResponse>>();
    #[cfg(feature = "http")]
    crosses_threads::<PermitBody<()>>();
};

/// The page with examples, so that these are compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/languages/tower.md")]
struct Page;
