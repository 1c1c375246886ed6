//! A holder that was away too long, and a resource that refuses its late write:
//! `cargo run --example fencing`.
//!
//! Try it with a server: `cargo run --example fencing -- redis://127.0.0.1/`.

use std::time::Duration;

use permits::AcquireOptions;
use permits_testkit::FencedResource;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".into());
    let client = permits::Client::connect(&url).await?;
    let seat = client.semaphore("the only seat", 1)?;
    // The protected resource keeps the highest token for each slot, and refuses a lower one.
    let resource = FencedResource::new();

    // A holder without renewal behaves as if its process were suspended: the lease ends, and the holder does
    // nothing about it.
    let suspended = AcquireOptions::new().lease(Duration::from_millis(300)).auto_renew(false);
    let late = seat.acquire_with(suspended).await?;
    resource.write(late.slot(), late.token(), "in time")?;

    let next = seat.acquire().await?;
    resource.write(next.slot(), next.token(), "by the next holder")?;

    // The first one wakes up. It could know: but it does not look.
    assert!(!late.is_held());
    let refused = resource.write(late.slot(), late.token(), "too late");
    println!("the late write: {}", refused.expect_err("the resource knows better"));
    println!("what was written: {:?}", resource.writes().iter().map(|write| &write.data).collect::<Vec<_>>());

    next.release().await?;
    client.close().await?;
    Ok(())
}
