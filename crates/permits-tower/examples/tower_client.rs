//! A client of an API that takes three requests at once, from all hosts together: an HTTP client behind a
//! permit layer. A request waits in line for two seconds at most, and its permit is held until the response
//! is read.
//!
//! `cargo run -p permits-tower --example tower_client`, or with a server:
//! `… --example tower_client -- redis://127.0.0.1/`.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::http::Request;
use axum::routing::get;
use http_body_util::{BodyExt as _, Empty};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::rt::TokioExecutor;
use permits::{AcquireOptions, Client};
use permits_tower::PermitLayer;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tower::{ServiceBuilder, ServiceExt as _};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".into());
    let (api, most) = api().await?;

    // Two clients stand for two hosts.
    let clients = [Client::connect(&url).await?, Client::connect(&url).await?];
    let mut requests = JoinSet::new();
    for client in &clients {
        let waiting = AcquireOptions::new().timeout(Duration::from_secs(2));
        let http = ServiceBuilder::new()
            .layer(PermitLayer::until_body_end(client.semaphore("api", 3)?).options(waiting))
            .service(HttpClient::builder(TokioExecutor::new()).build_http());
        for _ in 0..6 {
            let request = Request::get(&api).body(Empty::<Bytes>::new())?;
            let response = http.clone().oneshot(request);
            requests.spawn(async move {
                Ok::<_, permits_tower::PermitError>(response.await?.collect().await?.to_bytes())
            });
        }
    }
    while let Some(response) = requests.join_next().await {
        print!("{}", String::from_utf8_lossy(&response??));
    }

    let most = most.load(Ordering::Relaxed);
    println!("at most {most} requests at once");
    assert!(most <= 3);
    for client in clients {
        client.close().await?;
    }
    Ok(())
}

/// The API: its URL, and the most requests that it has had at once.
async fn api() -> std::io::Result<(String, Arc<AtomicUsize>)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/", listener.local_addr()?);
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counted = most.clone();
    let handler = async move || {
        counted.fetch_max(now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(50)).await;
        now.fetch_sub(1, Ordering::Relaxed);
        "read\n"
    };
    tokio::spawn(async { axum::serve(listener, Router::new().route("/", get(handler))).await });
    Ok((url, most))
}
