//! The commands of the driver of `permits` for `scripts/bench rates`: grants that count for some time.

use std::time::Duration;

use permits::{AcquireError, AcquireOptions, Client, Semaphore};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::answer;
use crate::Failure;
use crate::stats::shared_clock_us;

/// The clients of this process, each with a connection of its own.
pub(super) struct Clients {
    url: String,
    connected: Vec<Client>,
}

impl Clients {
    pub(super) fn new(url: &str) -> Self {
        Self { url: url.to_owned(), connected: Vec::new() }
    }

    /// A semaphore for each of `count` clients, which connect now if they have not yet.
    async fn semaphores(&mut self, count: usize, name: &str, limit: u32) -> Result<Vec<Semaphore>, Failure> {
        while self.connected.len() < count {
            self.connected.push(Client::connect(&self.url).await?);
        }
        let semaphores = self.connected[..count].iter().map(|client| client.semaphore(name, limit));
        Ok(semaphores.collect::<Result<_, _>>()?)
    }

    /// Clients that always wait and release at once. Returns their grants: the request, the permit and its
    /// release by the clock of this machine's processes, and the token.
    pub(super) async fn admit(
        &mut self,
        name: &str,
        limit: u32,
        window: Duration,
        count: usize,
        seconds: f64,
    ) -> Result<Value, Failure> {
        let semaphores = self.semaphores(count, name, limit).await?;
        let until = shared_clock_us() + seconds * 1e6;
        let mut running = JoinSet::new();
        for semaphore in semaphores {
            running.spawn(async move {
                let options = AcquireOptions::new().at_least(window);
                let mut events = Vec::new();
                loop {
                    let asked = shared_clock_us();
                    if asked >= until {
                        return Ok::<_, Failure>(events);
                    }
                    let permit = semaphore.acquire_with(options.clone()).await?;
                    let got = shared_clock_us();
                    let token = permit.token();
                    permit.release().await?;
                    events.push((asked, got, got, token));
                }
            });
        }
        let mut events = Vec::new();
        while let Some(finished) = running.join_next().await {
            events.extend(finished??);
        }
        Ok(json!({ "events": events }))
    }

    /// Clients that end their permits in every way, until this process is killed. Answers with the token of
    /// each grant.
    pub(super) async fn mix(
        &mut self,
        name: &str,
        limit: u32,
        window: Duration,
        lease: Duration,
        count: usize,
    ) -> Result<Value, Failure> {
        let mut running = JoinSet::new();
        for semaphore in self.semaphores(count, name, limit).await? {
            running.spawn(async move {
                loop {
                    one_of_a_mix(&semaphore, window, lease).await?;
                }
            });
        }
        // A task ends by an error alone.
        running.join_next().await.ok_or("no clients")??
    }
}

/// A request that ends in one of the ways in which requests and permits end.
async fn one_of_a_mix(semaphore: &Semaphore, window: Duration, lease: Duration) -> Result<(), Failure> {
    let way = fastrand::u8(0..10);
    let options = AcquireOptions::new().at_least(window).lease(lease);
    let options = match way {
        0 => options.timeout(window / 4),
        1 => options.auto_renew(false),
        _ => options,
    };
    let permit = match semaphore.acquire_with(options).await {
        Ok(permit) => permit,
        Err(AcquireError::TimedOut { .. }) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    answer(&json!({ "granted": permit.token() }))?;
    match way {
        // Longer than its lease, which nothing renews: the store ends it.
        1 => tokio::time::sleep(lease + lease / 4).await,
        2 => tokio::time::sleep(window + window / 2).await,
        3 | 4 => drop(permit),
        _ => permit.release().await?,
    }
    Ok(())
}
