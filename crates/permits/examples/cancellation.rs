//! Cancellation in both directions: a program that stops waiting, and a permit that ends while work runs.
//!
//! `cargo run --example cancellation`, or with a server:
//! `cargo run --example cancellation -- redis://127.0.0.1/`.

use std::time::Duration;

use permits::Lost;
use tokio::time::sleep;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".into());
    let client = permits::Client::connect(&url).await?;
    let press = client.semaphore("press", 1)?;
    let permit = press.acquire().await?;

    // `select!` drops the branch that is not ready. The dropped acquisition leaves the queue; if it was
    // granted at that moment, the permit is released.
    tokio::select! {
        _ = press.acquire() => unreachable!("the press is taken"),
        () = sleep(Duration::from_millis(50)) => println!("select!: the other branch was ready first"),
    }

    // So does the acquisition of a task that is aborted.
    let waiting = tokio::spawn({
        let press = press.clone();
        async move { press.acquire().await }
    });
    sleep(Duration::from_millis(50)).await;
    waiting.abort();
    println!("abort: {}", waiting.await.unwrap_err());

    // An operator revokes the permit. `run` drops the work and returns the reason.
    let work = permit.run(sleep(Duration::from_secs(60)));
    let (result, revoked) = tokio::join!(work, press.revoke(permit.holder(), "maintenance"));
    assert!(revoked?, "the permit was held");
    assert!(matches!(result, Err(Lost::Revoked { .. })));
    println!("run: {}", result.unwrap_err());

    // Work that has to clean up takes a token instead, and ends by itself.
    let permit = press.acquire().await?;
    let lost = permit.cancellation_token();
    let pages = async {
        let mut pages = 0;
        while !lost.is_cancelled() && pages < 3 {
            sleep(Duration::from_millis(10)).await;
            pages += 1;
        }
        pages
    };
    println!("cancellation_token: {} pages", pages.await);
    permit.release().await?;
    client.close().await?;
    Ok(())
}
