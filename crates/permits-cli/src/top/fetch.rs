//! Fetches the data of the screen from the store.
//!
//! The screen never waits, because each fetch is a task, and [`Fetcher::next`] returns the answers. At most
//! one fetch of a kind is in flight. The visible rows are fetched every second, and at once when the screen
//! changes; then the earlier fetch is aborted. All semaphores are read, to be sorted and hidden, when that is
//! due by the rule of [`reader`](crate::reader).

use std::collections::HashMap;
use std::time::{Duration, Instant};

use permits::{AdminError, Client, Inspection, Limit};
use tokio::task::{AbortHandle, JoinSet};

use crate::inspected::ListRow;
use crate::reader::{Reading, StoreReader};

/// The most holders and waiters of a row that are listed. The head of the line shows the longest wait. Of
/// more holders, only these are known to be kept or not.
const LISTED: u32 = 100;

/// The semaphores of a store.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// The names in the order in which they are shown.
    pub(super) names: Vec<String>,
    /// The rows by name. A semaphore that has ended since, or cannot be read, has no row.
    pub(super) rows: HashMap<String, ListRow>,
}

/// A query for what is visible.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Query {
    /// The rows of these semaphores.
    Rows(Vec<String>),
    /// The holders and waiters of this semaphore.
    Detail(String),
}

/// An answer to a query.
#[derive(Debug)]
pub(super) enum Snapshot {
    Rows(Vec<(String, Result<ListRow, AdminError>)>),
    Detail(String, Box<Inspection>),
    Failed(AdminError),
}

/// An answer of the store.
#[derive(Debug)]
pub(super) enum Answer {
    Listed(Result<Reading<Listing>, AdminError>),
    Fetched(Snapshot),
}

pub(super) struct Fetcher {
    reader: StoreReader,
    tasks: JoinSet<Answer>,
    /// The last query, and its task.
    query: Option<Query>,
    fetching: Option<AbortHandle>,
    /// `None` while a list is in flight.
    list_due: Option<Instant>,
}

impl Fetcher {
    pub(super) fn new(client: Client) -> Self {
        let reader = StoreReader { client, interval: Duration::ZERO, under: Vec::new() };
        let list_due = Some(Instant::now());
        Self { reader, tasks: JoinSet::new(), query: None, fetching: None, list_due }
    }

    /// Fetches `query`, unless it is the last query.
    pub(super) fn fetch_if_changed(&mut self, query: Query) {
        if self.query.as_ref() != Some(&query) {
            self.fetch(query);
        }
    }

    /// Fetches the last query again, unless it is in flight.
    pub(super) fn refresh(&mut self) {
        if self.fetching.as_ref().is_none_or(AbortHandle::is_finished)
            && let Some(query) = self.query.clone()
        {
            self.fetch(query);
        }
    }

    /// The next answer. Pending while no task runs. Cancel safe.
    pub(super) async fn next(&mut self) -> Answer {
        loop {
            match self.tasks.join_next().await {
                Some(Ok(answer)) => {
                    if let Answer::Listed(listed) = &answer {
                        // A read that failed is repeated with the next fetch.
                        let next = listed.as_ref().ok().map(|reading| reading.next);
                        self.list_due = Some(next.unwrap_or_else(Instant::now));
                    }
                    return answer;
                }
                // The task was aborted for a newer query.
                Some(Err(error)) if error.is_cancelled() => {}
                Some(Err(error)) => std::panic::resume_unwind(error.into_panic()),
                None => std::future::pending().await,
            }
        }
    }

    fn fetch(&mut self, query: Query) {
        if matches!(query, Query::Rows(_)) && self.list_due.take_if(|due| *due <= Instant::now()).is_some() {
            let reader = self.reader.clone();
            self.tasks.spawn(async move { Answer::Listed(reader.read(list(&reader)).await) });
        }
        if let Some(earlier) = self.fetching.take() {
            earlier.abort();
        }
        self.query = Some(query.clone());
        let client = self.reader.client.clone();
        let fetch = async move {
            Answer::Fetched(match query {
                Query::Rows(names) => rows(&client, names).await,
                Query::Detail(name) => detail(&client, name).await.unwrap_or_else(Snapshot::Failed),
            })
        };
        self.fetching = Some(self.tasks.spawn(fetch));
    }
}

/// A semaphore with at most `max` of its holders and waiters.
async fn inspect(client: &Client, name: &str, max: u32) -> Result<Inspection, AdminError> {
    client.semaphore(name, Limit::Stored)?.inspect_up_to(max).await
}

async fn list(reader: &StoreReader) -> Result<Listing, AdminError> {
    let semaphores = reader.semaphores(
        async |name| inspect(&reader.client, &name, LISTED).await,
        |listed| listed.ok().map(|inspection| (inspection.name.clone(), ListRow::from(&inspection))),
    );
    let (names, rows) = semaphores.await?;
    Ok(Listing { names, rows: rows.into_iter().flatten().collect() })
}

/// The holders are in the order of their grants. The store orders them by the end of their leases, which
/// changes with every renewal: rows would jump about.
async fn detail(client: &Client, name: String) -> Result<Snapshot, AdminError> {
    let mut inspection = inspect(client, &name, u32::MAX).await?;
    inspection.holders.sort_by_key(|info| info.token);
    Ok(Snapshot::Detail(name, inspection.into()))
}

/// The rows of `names`. An error that concerns one semaphore, say because its keys belong to another program,
/// does not hide the others.
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
