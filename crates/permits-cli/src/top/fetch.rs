//! Fetches the data of the screen from the store.
//!
//! The screen never waits, because each fetch is a task, and [`Fetcher::next`] returns the answers. At most
//! one fetch of a kind is in flight. The visible rows are fetched every second, and at once when the screen
//! changes; then the earlier fetch is aborted. A list of names is fetched when it is due by the rule of
//! [`reader`](crate::reader). If rows are sorted by their counts, or hidden, the list has the counts of all
//! semaphores.
//!
//! The settings of the store are diagnosed once a minute, by a connection and a thread of the library's own,
//! while the store answers.

use std::time::{Duration, Instant};

use permits::{AdminError, Client, ClientBuilder, ConnectError, Diagnosis, Inspection, Limit};
use tokio::task::{AbortHandle, JoinSet};

use super::detail;
use super::snapshot::{Listing, Query, Snapshot};
use crate::inspected::ListRow;
use crate::reader::{Reading, StoreReader};

/// The most holders and waiters of a row that are listed. The head of the line shows the longest wait. Of
/// more holders, only these are known to be kept or not.
const LISTED: u32 = 100;

/// The interval of diagnoses.
const DIAGNOSIS_INTERVAL: Duration = Duration::from_secs(60);

/// An answer of the store.
#[derive(Debug)]
pub(super) enum Answer {
    Listed(Result<Reading<Listing>, AdminError>),
    Fetched(Snapshot),
    Diagnosed(Result<Diagnosis, ConnectError>),
}

pub(super) struct Fetcher {
    reader: StoreReader,
    /// Of diagnoses.
    builder: ClientBuilder,
    tasks: JoinSet<Answer>,
    /// The last query, and its task.
    query: Option<Query>,
    fetching: Option<AbortHandle>,
    /// `None` while a list is in flight.
    list_due: Option<Instant>,
    /// Lists need the counts of all semaphores.
    counting: bool,
    /// `None` while a diagnosis is in flight.
    diagnosis_due: Option<Instant>,
    /// The last fetch was answered.
    is_answered: bool,
}

impl Fetcher {
    pub(super) fn new(client: Client, builder: ClientBuilder, now: Instant) -> Self {
        Self {
            reader: StoreReader { client, interval: Duration::ZERO, under: Vec::new() },
            builder,
            tasks: JoinSet::new(),
            query: None,
            fetching: None,
            list_due: Some(now),
            counting: false,
            diagnosis_due: Some(now),
            is_answered: false,
        }
    }

    /// Counts all semaphores with each list from now on, or no longer.
    pub(super) fn count(&mut self, counting: bool, now: Instant) {
        if counting && !self.counting && self.list_due.is_some() {
            self.list_due = Some(now);
        }
        if counting != self.counting {
            self.counting = counting;
            self.query.clone().into_iter().for_each(|query| self.list_if_due(&query, now));
        }
    }

    /// Fetches `query`, unless it is the last query.
    pub(super) fn fetch_if_changed(&mut self, query: Query, now: Instant) {
        if self.query.as_ref() != Some(&query) {
            self.list_if_due(&query, now);
            self.fetch(query);
        }
    }

    /// Fetches the last query again, unless it is in flight.
    pub(super) fn refresh(&mut self, now: Instant) {
        let Some(query) = self.query.clone() else { return };
        self.list_if_due(&query, now);
        self.diagnose_if_due(now);
        if self.fetching.as_ref().is_none_or(AbortHandle::is_finished) {
            self.fetch(query);
        }
    }

    /// The next answer. Pending while no task runs. Cancel safe.
    pub(super) async fn next(&mut self) -> Answer {
        loop {
            match self.tasks.join_next().await {
                Some(Ok(answer)) => {
                    self.on_answer(&answer, Instant::now());
                    return answer;
                }
                // The task was aborted for a newer query.
                Some(Err(error)) if error.is_cancelled() => {}
                Some(Err(error)) => std::panic::resume_unwind(error.into_panic()),
                None => std::future::pending().await,
            }
        }
    }

    fn on_answer(&mut self, answer: &Answer, now: Instant) {
        match answer {
            Answer::Listed(listed) => {
                self.list_due = Some(match listed {
                    Ok(reading) if reading.found.counts.is_some() || !self.counting => reading.next,
                    // It has failed, or was begun before counts were needed.
                    _ => now,
                });
            }
            Answer::Fetched(snapshot) => {
                let was_answered = self.is_answered;
                self.is_answered = !matches!(snapshot, Snapshot::Failed(_));
                // A store that answers again may have other problems than before.
                if self.is_answered && !was_answered && self.diagnosis_due.is_some() {
                    self.diagnosis_due = Some(now);
                }
            }
            Answer::Diagnosed(_) => self.diagnosis_due = Some(now + DIAGNOSIS_INTERVAL),
        }
    }

    fn diagnose_if_due(&mut self, now: Instant) {
        if !self.is_answered || self.diagnosis_due.is_none_or(|due| now < due) {
            return;
        }
        self.diagnosis_due = None;
        let builder = self.builder.clone();
        self.tasks.spawn(async move { Answer::Diagnosed(builder.diagnose_settings().await) });
    }

    fn list_if_due(&mut self, query: &Query, now: Instant) {
        if !matches!(query, Query::Rows(_)) || self.list_due.is_none_or(|due| now < due) {
            return;
        }
        self.list_due = None;
        let (reader, counting) = (self.reader.clone(), self.counting);
        self.tasks.spawn(async move { Answer::Listed(reader.read(listing(&reader, counting)).await) });
    }

    fn fetch(&mut self, query: Query) {
        if let Some(earlier) = self.fetching.take() {
            earlier.abort();
        }
        self.query = Some(query.clone());
        let client = self.reader.client.clone();
        let fetch = async move {
            let snapshot = match query {
                Query::Rows(names) => rows(&client, names).await,
                Query::Detail(name) => match inspect(&client, &name, u32::MAX).await {
                    Ok(inspection) => Snapshot::Detail(name, detail::ordered(inspection).into()),
                    Err(error) => Snapshot::Failed(error),
                },
            };
            Answer::Fetched(snapshot)
        };
        self.fetching = Some(self.tasks.spawn(fetch));
    }
}

/// The names, and their counts if they are wanted.
async fn listing(reader: &StoreReader, counting: bool) -> Result<Listing, AdminError> {
    if !counting {
        return Ok(Listing { names: reader.client.list().await?, counts: None });
    }
    let semaphores = reader.semaphores(
        async |name| inspect(&reader.client, &name, LISTED).await,
        |listed| listed.ok().map(|inspection| (inspection.name.clone(), ListRow::from(&inspection))),
    );
    let (names, counts) = semaphores.await?;
    Ok(Listing { names, counts: Some(counts.into_iter().flatten().collect()) })
}

/// A semaphore with at most `max` of its holders and waiters.
async fn inspect(client: &Client, name: &str, max: u32) -> Result<Inspection, AdminError> {
    client.semaphore(name, Limit::Stored)?.inspect_up_to(max).await
}

/// The counts of `names`. An error that concerns one semaphore, say because its keys belong to another
/// program, does not hide the others.
async fn rows(client: &Client, names: Vec<String>) -> Snapshot {
    let mut inspections = JoinSet::new();
    for name in names {
        let client = client.clone();
        inspections.spawn(async move {
            let inspected = inspect(&client, &name, LISTED).await;
            (name, inspected)
        });
    }
    let mut rows = Vec::new();
    for (name, inspected) in inspections.join_all().await {
        match inspected {
            Ok(inspection) => rows.push((name, Ok(ListRow::from(&inspection)))),
            Err(AdminError::Store(error)) if !error.is_temporary() => {
                rows.push((name, Err(AdminError::Store(error))));
            }
            Err(error) => return Snapshot::Failed(error),
        }
    }
    Snapshot::Rows(rows)
}
