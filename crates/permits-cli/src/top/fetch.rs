//! Asks the store for what the screen wants, so that the screen never waits: whatever is asked runs beside it,
//! and is heard of by [`Fetcher::next`].
//!
//! At most one question of a kind is under way. What the rows on the screen stand at is asked every second, and
//! at once when the screen wants something else; then the earlier question is dropped. The list of names costs
//! a walk over all keys of a Redis server, so it may take a tenth of the time and no more: after one that took
//! two seconds there is none for twenty.

use std::time::{Duration, Instant};

use permits::{AdminError, Client};
use tokio::task::{AbortHandle, JoinSet};

use super::action::Action;
use super::snapshot::{Counts, Detail, Query, Snapshot};

/// How much longer than a list took there is none.
const LIST_SHARE: u32 = 10;

/// What the store has said.
#[derive(Debug)]
pub(super) enum Answer {
    Listed(Result<Vec<String>, AdminError>),
    Fetched(Snapshot),
    Acted(Action, Result<bool, AdminError>),
}

pub(super) struct Fetcher {
    client: Client,
    tasks: JoinSet<Answer>,
    /// What was asked for last, and the question, if it is still open.
    query: Option<Query>,
    fetching: Option<AbortHandle>,
    list_due: Instant,
    /// When the list that is under way was asked for.
    listing_since: Option<Instant>,
}

impl Fetcher {
    pub(super) fn new(client: Client, now: Instant) -> Self {
        let tasks = JoinSet::new();
        Self { client, tasks, query: None, fetching: None, list_due: now, listing_since: None }
    }

    /// Asks, if this is not what was asked last.
    pub(super) fn fetch_if_changed(&mut self, query: Query, now: Instant) {
        if self.query.as_ref() != Some(&query) {
            self.list_if_due(&query, now);
            self.fetch(query);
        }
    }

    /// Asks again, if the last answer has come.
    pub(super) fn refresh(&mut self, now: Instant) {
        let Some(query) = self.query.clone() else { return };
        self.list_if_due(&query, now);
        if self.fetching.as_ref().is_none_or(AbortHandle::is_finished) {
            self.fetch(query);
        }
    }

    /// Asks again at once: what is under way may be about how it was before.
    pub(super) fn refetch(&mut self) {
        if let Some(query) = self.query.clone() {
            self.fetch(query);
        }
    }

    pub(super) fn act(&mut self, action: Action) {
        let client = self.client.clone();
        self.tasks.spawn(async move {
            let result = action.perform(&client).await;
            Answer::Acted(action, result)
        });
    }

    /// The next answer. Never ready while nothing is asked. Cancel safe.
    pub(super) async fn next(&mut self) -> Answer {
        loop {
            match self.tasks.join_next().await {
                Some(Ok(answer)) => {
                    if let Answer::Listed(_) = answer
                        && let Some(began) = self.listing_since.take()
                    {
                        self.list_due = Instant::now() + began.elapsed() * LIST_SHARE;
                    }
                    return answer;
                }
                // It was dropped for another.
                Some(Err(error)) if error.is_cancelled() => {}
                Some(Err(error)) => std::panic::resume_unwind(error.into_panic()),
                None => std::future::pending().await,
            }
        }
    }

    /// Gives an action that is under way a moment to be done. Returns it if it was not.
    pub(super) async fn finish(mut self, pending: Option<Action>, timeout: Duration) -> Option<Action> {
        let action = pending?;
        let acted = async { while !matches!(self.next().await, Answer::Acted(..)) {} };
        tokio::time::timeout(timeout, acted).await.err().map(|_| action)
    }

    fn list_if_due(&mut self, query: &Query, now: Instant) {
        if !matches!(query, Query::Rows(_)) || self.listing_since.is_some() || now < self.list_due {
            return;
        }
        self.listing_since = Some(now);
        let client = self.client.clone();
        self.tasks.spawn(async move { Answer::Listed(client.list().await) });
    }

    fn fetch(&mut self, query: Query) {
        if let Some(earlier) = self.fetching.take() {
            earlier.abort();
        }
        self.query = Some(query.clone());
        let client = self.client.clone();
        let fetch = async move {
            let snapshot = match query {
                Query::Rows(names) => rows(&client, names).await,
                Query::Detail(name) => match client.open(&name).inspect().await {
                    Ok(inspection) => Snapshot::Detail(name, Detail::from(inspection)),
                    Err(error) => Snapshot::Failed(error),
                },
            };
            Answer::Fetched(snapshot)
        };
        self.fetching = Some(self.tasks.spawn(fetch));
    }
}

/// The counts of these. That one of them cannot be had, say, because its keys are somebody else's, is no reason
/// not to show the others.
async fn rows(client: &Client, names: Vec<String>) -> Snapshot {
    let mut asked = JoinSet::new();
    for name in names {
        let semaphore = client.open(&name);
        asked.spawn(async move { (name, semaphore.inspect_up_to(0).await) });
    }
    let mut rows = Vec::new();
    for (name, inspected) in asked.join_all().await {
        match inspected {
            Ok(inspection) => rows.push((name, Ok(Counts::from(&inspection)))),
            Err(AdminError::Store(error)) if !error.is_temporary() => {
                rows.push((name, Err(AdminError::Store(error))));
            }
            Err(error) => return Snapshot::Failed(error),
        }
    }
    Snapshot::Rows(rows)
}
