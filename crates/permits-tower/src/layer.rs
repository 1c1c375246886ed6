//! [`PermitLayer`] and [`ReserveLayer`]: the settings of the services.

use std::time::Duration;

use permits::{AcquireOptions, Semaphore};
use tower_layer::Layer;

#[cfg(feature = "http")]
use crate::hold::UntilBodyEnd;
use crate::hold::UntilResponse;
use crate::lines::sealed::Keeps;
use crate::reserve::ReserveService;
use crate::service::PermitService;

/// A layer that holds a permit for each request.
///
/// `lines` is a [`Semaphore`] for all requests, or a [`Keyed`](crate::Keyed), which chooses a line for each.
///
/// # Examples
/// A client of an API that takes 20 requests at once, from all hosts, until their responses are read:
/// ```
/// # #[cfg(feature = "http")]
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// use http::{Request, Response};
/// use http_body_util::BodyExt as _;
/// use permits::AcquireOptions;
/// use permits_tower::PermitLayer;
/// use tower::{ServiceBuilder, ServiceExt as _};
///
/// # let client = permits::Client::connect("memory:").await?;
/// let api = client.semaphore("api", 20)?;
/// let service = ServiceBuilder::new()
///     .layer(PermitLayer::until_body_end(api.clone()).options(AcquireOptions::new().label("reports")))
///     .service_fn(|_: Request<()>| async { Ok::<_, std::io::Error>(Response::new("done".to_owned())) });
///
/// let response = service.oneshot(Request::new(())).await?;
/// assert_eq!(api.available().await?, 19);
/// assert_eq!(response.collect().await?.to_bytes(), "done");
/// assert_eq!(api.available().await?, 20);
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "http"))]
/// # fn main() {}
/// ```
#[derive(Debug, Clone)]
#[must_use = "a layer does nothing until it wraps a service"]
pub struct PermitLayer<L, H> {
    lines: L,
    options: AcquireOptions,
    hold: H,
}

impl<L> PermitLayer<L, UntilResponse> {
    /// Holds the permit until the future of the call is ready.
    ///
    /// If the response is a stream, it continues without a permit. Hold the permit [until the body has
    /// ended](PermitLayer::until_body_end) then, or by a [`Hold`](crate::Hold) of your own.
    pub fn until_response(lines: L) -> Self {
        Self::holding(lines, UntilResponse)
    }
}

#[cfg(feature = "http")]
impl<L> PermitLayer<L, UntilBodyEnd> {
    /// Holds the permit until the body of the response has ended, failed, or was dropped. The response is an
    /// [`http::Response`], and its body becomes a [`PermitBody`](crate::PermitBody).
    pub fn until_body_end(lines: L) -> Self {
        Self::holding(lines, UntilBodyEnd)
    }
}

impl<L, H> PermitLayer<L, H> {
    /// Holds the permit as `hold` says.
    pub fn holding(lines: L, hold: H) -> Self {
        Self { lines, options: AcquireOptions::new(), hold }
    }

    /// Sets the options of each acquisition, such as a wait limit, a weight or a label. Unless set, they are
    /// [`AcquireOptions::new`], which waits in line without limit.
    ///
    /// If you set a [holder](AcquireOptions::holder) here, it has one permit at a time: its next request is
    /// refused meanwhile.
    pub fn options(mut self, options: AcquireOptions) -> Self {
        self.options = options;
        self
    }
}

impl<L: Keeps, H> PermitLayer<L, H> {
    /// Keeps permits, in each line of the layer: a permit that is released while no request waits stays with
    /// the client for `idle`, at most a third of its lease, and is granted to the next request of the line
    /// without a call to the store. [`Duration::ZERO`] keeps no permits. Unless set, each line keeps permits
    /// as the semaphore or the client of the layer does.
    ///
    /// [`Semaphore::keep`] lists the conditions. For example, no permit is kept if the options have a holder
    /// or `at_least`.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    /// use std::time::Duration;
    ///
    /// use permits_tower::PermitLayer;
    /// use tower::{ServiceBuilder, ServiceExt as _};
    ///
    /// # let client = permits::Client::connect("memory:").await?;
    /// let api = client.semaphore("api", 100)?;
    /// let service = ServiceBuilder::new()
    ///     .layer(PermitLayer::until_response(api).keep(Duration::from_millis(200)))
    ///     .service_fn(|name: &'static str| async move { Ok::<_, std::io::Error>(name) });
    ///
    /// assert_eq!(service.oneshot("accounts").await?, "accounts");
    /// # Ok(())
    /// # }
    /// ```
    pub fn keep(mut self, idle: Duration) -> Self {
        self.lines = self.lines.keep(idle);
        self
    }
}

impl<H> PermitLayer<Semaphore, H> {
    /// Acquires in `poll_ready`, in place of the call: see [`ReserveService`]. A service that is ready holds
    /// a permit although it has no request yet. So use this where a service is polled only for a request that
    /// is about to come.
    pub fn reserve(self) -> ReserveLayer<H> {
        ReserveLayer { layer: self }
    }
}

impl<S, L: Clone, H: Clone> Layer<S> for PermitLayer<L, H> {
    type Service = PermitService<S, L, H>;

    fn layer(&self, inner: S) -> Self::Service {
        PermitService::new(inner, self.lines.clone(), self.options.clone(), self.hold.clone())
    }
}

/// A layer that reserves a permit when its service is polled for readiness. [`PermitLayer::reserve`] makes
/// it.
///
/// # Examples
/// The permit is reserved before there is a request:
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// use permits_tower::{PermitLayer, ReserveService};
/// use tower::{Service as _, ServiceBuilder, ServiceExt as _};
///
/// # let client = permits::Client::connect("memory:").await?;
/// let exports = client.semaphore("exports", 1)?;
/// let mut service = ServiceBuilder::new()
///     .layer(PermitLayer::until_response(exports.clone()).reserve())
///     .service_fn(|name: &'static str| async move { Ok::<_, std::io::Error>(name) });
///
/// let ready = service.ready().await?;
/// assert_eq!(exports.available().await?, 0, "it is reserved");
/// assert_eq!(ready.call("accounts").await?, "accounts");
/// assert_eq!(exports.available().await?, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a layer does nothing until it wraps a service"]
pub struct ReserveLayer<H> {
    layer: PermitLayer<Semaphore, H>,
}

impl<S, H: Clone> Layer<S> for ReserveLayer<H> {
    type Service = ReserveService<S, H>;

    fn layer(&self, inner: S) -> Self::Service {
        let PermitLayer { lines, options, hold } = self.layer.clone();
        ReserveService::new(inner, lines, options, hold)
    }
}
