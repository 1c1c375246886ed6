//! [`StoreReader`]: reads all semaphores of a store, for `serve`, `top` and `watch`.
//!
//! A list of the names walks over all keys of a server, so reads take at most a tenth of the time: after a
//! read of one second the next is due ten seconds later. A read that fails delays none, because its duration
//! is the timeout of a store that does not answer.

use std::time::{Duration, Instant};

use permits::{AdminError, Client, Inspection};

use crate::each::{self, Listed};

/// The pause after a read, as a multiple of its duration.
const PAUSE: u32 = 10;

/// The most semaphores that a read inspects: those that come first, then others by name.
pub(crate) const MAX_SEMAPHORES: usize = 10_000;

/// Reads a store.
#[derive(Clone)]
pub(crate) struct StoreReader {
    pub(crate) client: Client,
    /// The shortest pause after a read.
    pub(crate) interval: Duration,
    /// Prefixes of the names that come first.
    pub(crate) under: Vec<String>,
}

/// The result of a read.
#[derive(Debug)]
pub(crate) struct Reading<T> {
    pub(crate) found: T,
    pub(crate) duration: Duration,
    /// The time at which the next read is due.
    pub(crate) next: Instant,
}

/// The shortest pause after a read of this duration.
pub(crate) fn rest(duration: Duration) -> Duration {
    duration * PAUSE
}

impl StoreReader {
    /// Awaits `read`, which asks the store for all names, and computes when the next read is due.
    pub(crate) async fn read<T>(
        &self,
        read: impl Future<Output = Result<T, AdminError>>,
    ) -> Result<Reading<T>, AdminError> {
        let began = Instant::now();
        let found = read.await?;
        let duration = began.elapsed();
        let next = Instant::now() + self.interval.max(rest(duration));
        Ok(Reading { found, duration, next })
    }

    /// True if the name has one of the prefixes.
    pub(crate) fn is_first(&self, name: &str) -> bool {
        self.under.iter().any(|prefix| name.starts_with(prefix))
    }

    /// All names, in order, and a `T` of each of [`MAX_SEMAPHORES`] that is in use or cannot be read.
    pub(crate) async fn semaphores<T, F: Future<Output = Result<Inspection, AdminError>>>(
        &self,
        inspect: impl Fn(String) -> F,
        make: impl Fn(Listed) -> T,
    ) -> Result<(Vec<String>, Vec<T>), AdminError> {
        let names = self.client.list().await?;
        let made = each::inspect_listed(self.chosen(&names), inspect, make).await?;
        Ok((names, made))
    }

    /// The names of a read, of all names in order.
    fn chosen(&self, names: &[String]) -> Vec<String> {
        let (mut chosen, others): (Vec<_>, Vec<_>) =
            names.iter().cloned().partition(|name| self.is_first(name));
        chosen.extend(others);
        chosen.truncate(MAX_SEMAPHORES);
        chosen
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn the_next_read_is_due_after_ten_times_the_duration() {
        let client = Client::builder("memory:").connect().await.expect("it needs no server");
        let interval = Duration::from_millis(30);
        let reader = StoreReader { client, interval, under: Vec::new() };
        for duration in [0, 10].map(Duration::from_millis) {
            let began = Instant::now();
            let read = async { Ok(timeout(duration, pending::<()>()).await) };
            let Reading { duration, next, .. } = reader.read(read).await.expect("it has an end");
            assert!(next >= began + duration + interval.max(duration * 10), "{duration:?}");
        }
    }

    #[tokio::test]
    async fn of_too_many_those_under_the_prefixes_are_read() {
        let client = Client::builder("memory:").connect().await.expect("it needs no server");
        let reader = StoreReader { client, interval: Duration::ZERO, under: vec!["z/".to_owned()] };
        let names: Vec<String> = (0..MAX_SEMAPHORES).map(|number| format!("{number:05}")).collect();
        let chosen = reader.chosen(&[&names[..], &["z/1".to_owned()]].concat());
        assert_eq!(chosen.len(), MAX_SEMAPHORES);
        assert_eq!((&*chosen[0], chosen.last()), ("z/1", names.get(MAX_SEMAPHORES - 2)));
    }
}
