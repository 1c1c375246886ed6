//! The floor of a cycle without a call: the semaphore of one process that tokio has.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::json;
use tokio::sync::Semaphore;

use super::{answer, cycles, next_command};
use crate::Failure;

pub(super) async fn serve() -> Result<(), Failure> {
    let mut semaphores: HashMap<String, Arc<Semaphore>> = HashMap::new();
    while let Some(command) = next_command()? {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let value = match *words {
            ["hello"] => json!({ "version": "tokio 1" }),
            ["cycle", name, limit, tasks, seconds] => {
                let new = || Arc::new(Semaphore::new(limit.parse().expect("a number")));
                let semaphore = semaphores.entry(name.to_owned()).or_insert_with(new).clone();
                let one = move || cycle(semaphore.clone());
                cycles(tasks.parse()?, seconds.parse()?, one).await?
            }
            _ => json!({ "cannot": "a lower bound for A and B alone" }),
        };
        answer(&value)?;
    }
    Ok(())
}

async fn cycle(semaphore: Arc<Semaphore>) -> Result<(), Failure> {
    drop(semaphore.acquire().await?);
    Ok(())
}
