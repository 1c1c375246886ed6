//! Ten workers, at most three at once: `cargo run --example basic -- redis://127.0.0.1/`.

use std::time::Duration;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".into());
    let client = permits::Client::connect(&url).await?;
    let exports = client.semaphore("exports", 3)?;
    let mut workers = tokio::task::JoinSet::new();
    for worker in 1..=10 {
        let exports = exports.clone();
        workers.spawn(async move {
            let permit = exports.acquire().await?;
            println!("worker {worker:2} works, slot {} token {}", permit.slot(), permit.token());
            tokio::time::sleep(Duration::from_millis(100)).await;
            permit.release().await?;
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
        });
    }
    while let Some(finished) = workers.join_next().await {
        finished??;
    }
    client.close().await?;
    Ok(())
}
