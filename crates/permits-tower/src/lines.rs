//! [`Lines`]: the semaphore of each request.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use permits::{Acquire, AcquireError, AcquireOptions, Client, InvalidInput, Limit, Semaphore};

/// How many handles of semaphores a [`Keyed`] keeps.
const HANDLES: usize = 1024;

/// Chooses the line in which a request waits: a [`Semaphore`] for all requests, or a [`Keyed`] by request.
pub trait Lines<Request>: sealed::Acquires<Request> {}

impl<Request, L: sealed::Acquires<Request>> Lines<Request> for L {}

pub(crate) mod sealed {
    use std::time::Duration;

    use permits::AcquireOptions;

    use super::Started;

    /// Starts the acquisition of a request.
    pub trait Acquires<Request> {
        /// Returns `None` if the request needs no permit. `options` are the options of the layer.
        fn acquire(&self, request: &Request, options: &AcquireOptions) -> Option<Started>;
    }

    /// Keeps permits in every line.
    pub trait Keeps {
        /// See [`PermitLayer::keep`](crate::PermitLayer::keep).
        #[must_use]
        fn keep(self, idle: Duration) -> Self;
    }
}

/// An acquisition, with the name of its semaphore.
#[derive(Debug)]
pub struct Started {
    pub(crate) semaphore: String,
    pub(crate) acquire: Result<Acquire, AcquireError>,
}

impl<Request> sealed::Acquires<Request> for Semaphore {
    fn acquire(&self, _: &Request, options: &AcquireOptions) -> Option<Started> {
        let acquire = Ok(self.acquire_with(options.clone()));
        Some(Started { semaphore: self.name().into(), acquire })
    }
}

impl sealed::Keeps for Semaphore {
    fn keep(self, idle: Duration) -> Self {
        Self::keep(self, idle)
    }
}

/// The line of a request: the name of its semaphore, and what differs from the other lines. `From` makes it
/// from a name.
#[derive(Debug, Clone)]
pub struct Line {
    name: String,
    limit: Option<Limit>,
    options: Option<AcquireOptions>,
    lane: Option<(String, u32)>,
}

impl Line {
    /// Names the line (1–200 bytes of printable UTF-8). It has the limit of the [`Keyed`] and the options of
    /// the layer.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), limit: None, options: None, lane: None }
    }

    /// Sets a limit that differs from the limit of the [`Keyed`].
    #[must_use]
    pub fn limit(mut self, limit: impl Into<Limit>) -> Self {
        self.limit = Some(limit.into());
        self
    }

    /// Sets the options of this request, in place of the options of the layer: for example another weight,
    /// another wait limit, or a label.
    #[must_use]
    pub fn options(mut self, options: AcquireOptions) -> Self {
        self.options = Some(options);
        self
    }

    /// Sets the [lane](AcquireOptions::lane) of this request in the line, and its share, 1 to 1,000. So one
    /// semaphore serves all tenants: while several of them wait, each gets units in proportion to its share.
    ///
    /// # Examples
    /// 20 requests at once, of all tenants together. A tenant that has paid gets three times the units of
    /// another one while both wait:
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    /// use permits_tower::{Keyed, Line, PermitLayer};
    /// use tower::{ServiceBuilder, ServiceExt as _};
    ///
    /// struct Request {
    ///     tenant: String,
    /// }
    ///
    /// # let client = permits::Client::connect("memory:").await?;
    /// let api = Keyed::new(&client, 20, |request: &Request| {
    ///     let share = if request.tenant == "acme" { 3 } else { 1 };
    ///     Some(Line::new("api").lane(&request.tenant, share))
    /// });
    /// let service = ServiceBuilder::new()
    ///     .layer(PermitLayer::until_response(api))
    ///     .service_fn(|request: Request| async move { Ok::<_, std::io::Error>(request.tenant) });
    ///
    /// assert_eq!(service.oneshot(Request { tenant: "acme".into() }).await?, "acme");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn lane(mut self, lane: impl Into<String>, share: u32) -> Self {
        self.lane = Some((lane.into(), share));
        self
    }
}

impl From<String> for Line {
    fn from(name: String) -> Self {
        Self::new(name)
    }
}

impl From<&str> for Line {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}

/// Chooses a line for each request, for example one line for each tenant.
///
/// Your function returns the name of the semaphore, or a [`Line`] with more. If it returns `None`, the
/// request needs no permit. So if a request does not say who sent it, return a name for such requests, or
/// they pass any limit. If a name is not valid, the request fails with [`AcquireError::Invalid`].
///
/// The handles of up to 1,024 semaphores stay in memory. If senders choose their own names, they can make as
/// many semaphores as they send requests. The store forgets each soon after its last use.
///
/// # Examples
/// At most 10 requests of a tenant, 20 of a tenant that has paid for them, and 100 of all:
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// use permits_tower::{Keyed, Line, PermitLayer};
/// use tower::{ServiceBuilder, ServiceExt as _};
///
/// struct Request {
///     tenant: String,
/// }
///
/// # let client = permits::Client::connect("memory:").await?;
/// let tenants = Keyed::new(&client, 10, |request: &Request| {
///     let line = Line::new(format!("api/{}", request.tenant));
///     Some(if request.tenant == "acme" { line.limit(20) } else { line })
/// });
/// // The tenant's line is first: a request that waits in it holds nothing of the line of all.
/// let service = ServiceBuilder::new()
///     .layer(PermitLayer::until_response(tenants))
///     .layer(PermitLayer::until_response(client.semaphore("api", 100)?))
///     .service_fn(|request: Request| async move { Ok::<_, std::io::Error>(request.tenant) });
///
/// assert_eq!(service.oneshot(Request { tenant: "acme".into() }).await?, "acme");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Keyed<F> {
    client: Client,
    limit: Limit,
    line: F,
    /// How long to keep permits; as the client does unless set.
    keep: Option<Duration>,
    semaphores: Arc<Mutex<HashMap<(String, Limit), Semaphore>>>,
}

impl<F> Keyed<F> {
    /// Makes lines of `client`, each with `limit` unless its [`Line`] has another. If a limit is not valid,
    /// each request fails.
    pub fn new<Request, L>(client: &Client, limit: impl Into<Limit>, line: F) -> Self
    where
        F: Fn(&Request) -> Option<L>,
        L: Into<Line>,
    {
        Self { client: client.clone(), limit: limit.into(), line, keep: None, semaphores: Arc::default() }
    }

    fn semaphore(&self, name: &str, limit: Limit) -> Result<Semaphore, InvalidInput> {
        let mut semaphores = self.semaphores.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (name.to_owned(), limit);
        if let Some(semaphore) = semaphores.get(&key) {
            return Ok(semaphore.clone());
        }
        let mut semaphore = self.client.semaphore(name, limit)?;
        if let Some(idle) = self.keep {
            semaphore = semaphore.keep(idle);
        }
        if semaphores.len() >= HANDLES {
            // Those that are still in use are made again, with the declaration that the session has.
            semaphores.clear();
        }
        semaphores.insert(key, semaphore.clone());
        Ok(semaphore)
    }
}

impl<Request, F, L> sealed::Acquires<Request> for Keyed<F>
where
    F: Fn(&Request) -> Option<L>,
    L: Into<Line>,
{
    fn acquire(&self, request: &Request, options: &AcquireOptions) -> Option<Started> {
        let Line { name, limit, options: own, lane } = (self.line)(request)?.into();
        let mut options = own.unwrap_or_else(|| options.clone());
        if let Some((lane, share)) = lane {
            options = options.lane(lane).share(share);
        }
        let semaphore = self.semaphore(&name, limit.unwrap_or(self.limit));
        let acquire = semaphore.map(|semaphore| semaphore.acquire_with(options)).map_err(AcquireError::from);
        Some(Started { semaphore: name, acquire })
    }
}

impl<F> sealed::Keeps for Keyed<F> {
    fn keep(self, idle: Duration) -> Self {
        // The clones share the handles, and these keep as they did. So begin with new ones.
        Self { keep: Some(idle), semaphores: Arc::default(), ..self }
    }
}

impl<F> fmt::Debug for Keyed<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyed").field("limit", &self.limit).finish_non_exhaustive()
    }
}
