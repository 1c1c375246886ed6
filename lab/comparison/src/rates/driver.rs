//! The driver of `permits` for the comparison of rates: grants that count for some time.

use std::time::Duration;

use permits::{AcquireOptions, Client, Semaphore};
use permits_bench::Failure;
use permits_bench::driver::{answer, default_runtime, next_command};
use permits_bench::stats::shared_clock_us;
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// Serves until standard input ends.
pub(crate) fn drive(url: &str) -> Result<(), Failure> {
    let mut clients = Clients { url: url.to_owned(), connected: Vec::new() };
    default_runtime()?.block_on(async {
        while let Some(command) = next_command()? {
            let words: Vec<&str> = command.iter().map(String::as_str).collect();
            let ["admit", name, limit, window_ms, count, seconds] = *words else {
                return Err(format!("no such command: {words:?}").into());
            };
            let window = Duration::from_millis(window_ms.parse()?);
            let (limit, count) = (limit.parse()?, count.parse()?);
            answer(&clients.admit(name, limit, window, count, seconds.parse()?).await?)?;
        }
        Ok(())
    })
}

/// The clients of this process, each with a connection of its own.
struct Clients {
    url: String,
    connected: Vec<Client>,
}

impl Clients {
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
    async fn admit(
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
}
