//! Three bounds on waiting: not at all, at most a duration, and a timeout around the future.
//!
//! `cargo run --example timeout`, or with a server: `cargo run --example timeout -- redis://127.0.0.1/`.

use std::time::Duration;

use permits::{AcquireError, AcquireOptions};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".into());
    let client = permits::Client::connect(&url).await?;
    let printer = client.semaphore("printer", 1)?;
    let printing = printer.acquire().await?;

    // A try is refused at once. It never overtakes a waiter.
    let refused = printer.try_acquire().await.unwrap_err();
    assert_eq!(refused, AcquireError::NoPermits);
    println!("try_acquire: {refused}");

    // The session gives up its place in the queue after 50 ms. The timeout is an error of the acquisition.
    let options = AcquireOptions::new().timeout(Duration::from_millis(50));
    let timed_out = printer.acquire_with(options).await.unwrap_err();
    assert!(matches!(timed_out, AcquireError::TimedOut { .. }));
    println!("wait(50 ms): {timed_out}");

    // A timeout of the program drops the future, which leaves the queue, too.
    let dropped = tokio::time::timeout(Duration::from_millis(50), printer.acquire()).await;
    println!("tokio::time::timeout: {}", dropped.unwrap_err());

    // The three attempts left no waiter behind, so the next acquisition is granted as soon as the permit is
    // back.
    printing.release().await?;
    let permit = printer.acquire().await?;
    assert_eq!(printer.inspect_up_to(0).await?.waiting, 0);
    permit.release().await?;
    client.close().await?;
    Ok(())
}
