//! A service that ends in order on SIGTERM or Ctrl-C: it stops waiting for permits, finishes the job at hand,
//! gives the permit back, and closes its client, so that the next process is granted at once and not after a
//! lease.
//!
//! `cargo run --example graceful_shutdown`, then Ctrl-C.

use std::error::Error;
use std::time::Duration;

use permits::{Client, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".into());
    let client = Client::connect(&url).await?;
    let shutdown = CancellationToken::new();
    let service = tokio::spawn(serve(client.semaphore("exports", 4)?, shutdown.clone()));

    stop_signal().await?;
    println!("stopping");
    shutdown.cancel();
    // The job at hand has 5 s. One that takes longer loses its permit when the client closes.
    match timeout(Duration::from_secs(5), service).await {
        Ok(ended) => ended??,
        Err(_) => println!("the job was not finished in time"),
    }
    client.close().await?;
    println!("closed");
    Ok(())
}

async fn serve(exports: Semaphore, shutdown: CancellationToken) -> Result<(), permits::AcquireError> {
    loop {
        let permit = tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            permit = exports.acquire() => permit?,
        };
        println!("exporting");
        if let Err(lost) = permit.run(sleep(Duration::from_millis(200))).await {
            println!("the job was dropped: {lost}");
        }
        // Dropping the permit releases it in the background; `close` waits for that.
    }
}

#[cfg(unix)]
async fn stop_signal() -> std::io::Result<()> {
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! { _ = terminate.recv() => Ok(()), interrupted = tokio::signal::ctrl_c() => interrupted }
}

#[cfg(not(unix))]
async fn stop_signal() -> std::io::Result<()> {
    tokio::signal::ctrl_c().await
}
