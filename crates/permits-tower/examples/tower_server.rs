//! A server with a limit of two exports at a time for each tenant, and three for all tenants, on all hosts
//! together. A request beyond that is answered with 429 and `Retry-After`. The permits are held until the
//! body of the response has been sent. The health check needs no permit.
//!
//! `cargo run -p permits-tower --example tower_server`, or with a server:
//! `… --example tower_server -- redis://127.0.0.1/`.

use std::error::Error;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::error_handling::HandleErrorLayer;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::response::Response;
use axum::routing::get;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::rt::TokioExecutor;
use permits::{AcquireError, AcquireOptions, Client};
use permits_tower::{Keyed, PermitError, PermitLayer};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tower::ServiceBuilder;

/// The path of the health check, which is answered while all exports are taken.
const HEALTH: &str = "/health";

/// The line of a request, which its tenant header names. Requests without the header share a line.
fn of_tenant(request: &Request) -> Option<String> {
    let tenant = request.headers().get("x-tenant").and_then(|tenant| tenant.to_str().ok());
    (request.uri().path() != HEALTH).then(|| format!("exports/{}", tenant.unwrap_or("anonymous")))
}

/// The line of all tenants.
fn of_all(request: &Request) -> Option<&'static str> {
    (request.uri().path() != HEALTH).then_some("exports")
}

/// The routes, behind two exports for each tenant and three for all.
pub(crate) fn limited(routes: Router, client: &Client) -> Router {
    let (tenants, all) = (Keyed::new(client, 2, of_tenant), Keyed::new(client, 3, of_all));
    let at_once = AcquireOptions::new().no_wait();
    routes.layer(
        ServiceBuilder::new()
            // Turns the errors of the layers below into responses.
            .layer(HandleErrorLayer::new(async |error| refuse(&error)))
            .layer(PermitLayer::until_body_end(tenants).options(at_once.clone()))
            .layer(PermitLayer::until_body_end(all).options(at_once)),
    )
}

/// The response to a request that gets no permit.
fn refuse(error: &PermitError) -> Response {
    let (status, retry_after) = match error {
        PermitError::Acquire { source, .. } if source.stands_still() => {
            (StatusCode::SERVICE_UNAVAILABLE, source.retry_after().map(|after| after.as_secs() + 1))
        }
        PermitError::Acquire { source: AcquireError::Invalid(_), .. } => (StatusCode::BAD_REQUEST, None),
        PermitError::Acquire { source, .. } if source.is_not_now() => {
            let seconds = source.retry_after().map_or(1, |after| after.as_secs() + 1);
            (StatusCode::TOO_MANY_REQUESTS, Some(seconds))
        }
        _ => (StatusCode::SERVICE_UNAVAILABLE, None),
    };
    let mut response = Response::builder().status(status);
    if let Some(seconds) = retry_after {
        response = response.header(header::RETRY_AFTER, seconds);
    }
    let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
    response.body(Body::from(format!("{error}{cause}\n"))).expect("the headers are valid")
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".into());
    let export = async || {
        tokio::time::sleep(Duration::from_millis(300)).await;
        "exported\n"
    };

    // Two clients stand for two hosts.
    let (mut hosts, mut clients) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let client = Client::connect(&url).await?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        hosts.push(listener.local_addr()?);
        let routes = Router::new().route("/export", get(export)).route(HEALTH, get(async || "healthy\n"));
        let app = limited(routes, &client);
        tokio::spawn(async { axum::serve(listener, app).await });
        clients.push(client);
    }

    let http = HttpClient::builder(TokioExecutor::new()).build_http();
    let mut requests = JoinSet::new();
    for (number, tenant) in ["acme", "acme", "acme", "acme", "zeta"].into_iter().enumerate() {
        let uri = format!("http://{}/export", hosts[number % 2]);
        let request = Request::get(uri).header("x-tenant", tenant).body(Body::empty())?;
        let response = http.request(request);
        requests.spawn(async move {
            let response = response.await?;
            let retry_after = response.headers().get(header::RETRY_AFTER);
            println!("{tenant}: {}, retry after: {retry_after:?}", response.status());
            Ok::<_, hyper_util::client::legacy::Error>(())
        });
    }
    while let Some(request) = requests.join_next().await {
        request??;
    }
    for client in clients {
        client.close().await?;
    }
    Ok(())
}
