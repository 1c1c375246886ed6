//! Tests of a program that uses semaphores, without a server: each test has a store of its own, `memory:` and
//! a name.
//!
//! `cargo test --example testing_with_memory`. Stores of different names share nothing, so the tests run in
//! parallel.

use permits::{AcquireError, Client, Semaphore};

/// The function under test: an export that is refused while all permits are held.
async fn export(exports: &Semaphore) -> Result<String, AcquireError> {
    let permit = exports.try_acquire().await?;
    let exported = format!("exported in slot {}", permit.slot());
    drop(permit);
    Ok(exported)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = Client::connect("memory:").await?;
    println!("{}", export(&client.semaphore("exports", 2)?).await?);
    client.close().await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_export_takes_the_lowest_free_slot() {
        let client = Client::connect("memory:lowest-slot").await.unwrap();
        let exports = client.semaphore("exports", 2).unwrap();
        let first = exports.acquire().await.unwrap();
        assert_eq!(export(&exports).await.unwrap(), "exported in slot 1");
        first.release().await.unwrap();
        client.close().await.unwrap();
    }

    #[tokio::test]
    async fn an_export_is_refused_while_another_process_holds_all_permits() {
        // A second client of the same name stands for the other process.
        let (ours, other) = (
            Client::connect("memory:all-held").await.unwrap(),
            Client::connect("memory:all-held").await.unwrap(),
        );
        let held = other.semaphore("exports", 1).unwrap().acquire().await.unwrap();
        let exports = ours.semaphore("exports", 1).unwrap();
        assert_eq!(export(&exports).await, Err(AcquireError::NoPermits));

        held.release().await.unwrap();
        assert!(export(&exports).await.is_ok());
        ours.close().await.unwrap();
        other.close().await.unwrap();
    }
}
