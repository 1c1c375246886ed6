//! [`Hold`]: how long the permit of a request is held.

use crate::held::Held;

/// Decides how long the permit of a request is held. Your `hold` gets the response and the [`Held`]; the
/// permit lasts for as long as something keeps the [`Held`].
///
/// # Examples
/// A reader of rows that holds the permit until it is dropped:
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// use permits_tower::{Held, Hold, PermitLayer};
/// use tower::{Layer as _, ServiceExt as _};
///
/// struct Rows(Vec<u32>);
///
/// struct Guarded {
///     rows: Rows,
///     held: Held,
/// }
///
/// #[derive(Clone)]
/// struct UntilDropped;
///
/// impl Hold<Rows> for UntilDropped {
///     type Response = Guarded;
///
///     fn hold(&self, rows: Rows, held: Held) -> Guarded {
///         Guarded { rows, held }
///     }
/// }
///
/// # let client = permits::Client::connect("memory:").await?;
/// let queries = client.semaphore("queries", 2)?;
/// let database = tower::service_fn(|rows: u32| async move { Ok::<_, std::io::Error>(Rows(vec![rows])) });
/// let database = PermitLayer::holding(queries.clone(), UntilDropped).layer(database);
///
/// let read = database.oneshot(7).await?;
/// assert_eq!((read.rows.0[0], queries.available().await?), (7, 1));
/// drop(read);
/// assert_eq!(queries.available().await?, 2);
/// # Ok(())
/// # }
/// ```
pub trait Hold<Response> {
    /// The response together with its permit, or alone.
    type Response;

    /// Stores `held` with the response, or drops it.
    fn hold(&self, response: Response, held: Held) -> Self::Response;
}

/// Holds the permit until the future of the call is ready:
/// [`PermitLayer::until_response`](crate::PermitLayer::until_response).
#[derive(Debug, Clone, Copy, Default)]
pub struct UntilResponse;

impl<Response> Hold<Response> for UntilResponse {
    type Response = Response;

    fn hold(&self, response: Response, held: Held) -> Response {
        drop(held);
        response
    }
}

/// Holds the permit until the body of the response has ended, failed, or was dropped:
/// [`PermitLayer::until_body_end`](crate::PermitLayer::until_body_end).
#[cfg(feature = "http")]
#[derive(Debug, Clone, Copy, Default)]
pub struct UntilBodyEnd;

#[cfg(feature = "http")]
impl<B: http_body::Body> Hold<http::Response<B>> for UntilBodyEnd {
    type Response = http::Response<crate::PermitBody<B>>;

    fn hold(&self, response: http::Response<B>, held: Held) -> Self::Response {
        response.map(|body| crate::PermitBody::new(body, held))
    }
}
