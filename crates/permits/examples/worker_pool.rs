//! Two pools of four workers each, and three permits for both: workers take jobs from a queue and hold a
//! permit for each job. The slot of a permit numbers the seat, so no two jobs that run at once use the same
//! scratch directory.
//!
//! `cargo run --example worker_pool`, or with a server:
//! `cargo run --example worker_pool -- redis://127.0.0.1/`.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use permits::{Client, Semaphore};
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;

type Jobs = Arc<Mutex<mpsc::Receiver<u32>>>;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".into());
    let (sender, receiver) = mpsc::channel(16);
    let jobs: Jobs = Arc::new(Mutex::new(receiver));

    // Two clients stand for two processes.
    let clients = [Client::connect(&url).await?, Client::connect(&url).await?];
    let mut workers = JoinSet::new();
    for client in &clients {
        for _ in 0..4 {
            workers.spawn(work(client.semaphore("scratch disks", 3)?, jobs.clone()));
        }
    }
    for job in 1..=12 {
        sender.send(job).await?;
    }
    drop(sender); // The workers end when the queue is empty.
    while let Some(worker) = workers.join_next().await {
        worker??;
    }
    for client in clients {
        client.close().await?;
    }
    Ok(())
}

async fn work(disks: Semaphore, jobs: Jobs) -> Result<(), Box<dyn Error + Send + Sync>> {
    loop {
        let Some(job) = jobs.lock().await.recv().await else { return Ok(()) };
        let permit = disks.acquire().await?;
        // A job whose permit is lost stops: `run` drops its future.
        permit.run(transform(job, permit.slot())).await?;
        permit.release().await?;
    }
}

async fn transform(job: u32, disk: u32) {
    println!("job {job:2} uses /scratch/{disk}");
    tokio::time::sleep(Duration::from_millis(30)).await;
}
