//! Asks the store for what the screen wants, so that the screen never waits: whatever is asked runs beside it,
//! and is heard of by [`Asking::next`].
//!
//! At most one question of a kind is under way. What the rows on the screen stand at is asked every second, and
//! at once when the screen wants something else; then the earlier question is dropped. The list of names costs
//! a walk over all keys of a Redis server, so it may take a tenth of the time and no more: after one that took
//! two seconds there is none for twenty.

use std::time::{Duration, Instant};

use permits::{AdminError, Client};
use tokio::task::{AbortHandle, JoinSet};

use super::deed::Action;
use super::model::{Counts, Detail, Looked, Wanted};

/// How much longer than a list took there is none.
const LIST_SHARE: u32 = 10;

/// What the store has said.
#[derive(Debug)]
pub(super) enum Answer {
    Listed(Result<Vec<String>, AdminError>),
    Looked(Looked),
    Acted(Action, Result<bool, AdminError>),
}

pub(super) struct Asking {
    client: Client,
    under_way: JoinSet<Answer>,
    /// What was asked for last, and the question, if it is still open.
    wanted: Option<Wanted>,
    look: Option<AbortHandle>,
    list_due: Instant,
    /// When the list that is under way was asked for.
    listing: Option<Instant>,
}

impl Asking {
    pub(super) fn new(client: Client, now: Instant) -> Self {
        let under_way = JoinSet::new();
        Self { client, under_way, wanted: None, look: None, list_due: now, listing: None }
    }

    /// Asks, if this is not what was asked last.
    pub(super) fn follow(&mut self, wanted: Wanted, now: Instant) {
        if self.wanted.as_ref() != Some(&wanted) {
            self.list_if_due(&wanted, now);
            self.look(wanted);
        }
    }

    /// Asks again, if the last answer has come.
    pub(super) fn refresh(&mut self, now: Instant) {
        let Some(wanted) = self.wanted.clone() else { return };
        self.list_if_due(&wanted, now);
        if self.look.as_ref().is_none_or(AbortHandle::is_finished) {
            self.look(wanted);
        }
    }

    /// Asks again at once: what is under way may be about how it was before.
    pub(super) fn renew(&mut self) {
        if let Some(wanted) = self.wanted.clone() {
            self.look(wanted);
        }
    }

    pub(super) fn act(&mut self, action: Action) {
        let client = self.client.clone();
        self.under_way.spawn(async move {
            let result = action.perform(&client).await;
            Answer::Acted(action, result)
        });
    }

    /// The next answer. Never ready while nothing is asked. Cancel safe.
    pub(super) async fn next(&mut self) -> Answer {
        loop {
            match self.under_way.join_next().await {
                Some(Ok(answer)) => {
                    if let Answer::Listed(_) = answer
                        && let Some(began) = self.listing.take()
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
    pub(super) async fn finish(mut self, doing: Option<Action>, timeout: Duration) -> Option<Action> {
        let action = doing?;
        let acted = async { while !matches!(self.next().await, Answer::Acted(..)) {} };
        tokio::time::timeout(timeout, acted).await.err().map(|_| action)
    }

    fn list_if_due(&mut self, wanted: &Wanted, now: Instant) {
        if !matches!(wanted, Wanted::Rows(_)) || self.listing.is_some() || now < self.list_due {
            return;
        }
        self.listing = Some(now);
        let client = self.client.clone();
        self.under_way.spawn(async move { Answer::Listed(client.list().await) });
    }

    fn look(&mut self, wanted: Wanted) {
        if let Some(earlier) = self.look.take() {
            earlier.abort();
        }
        self.wanted = Some(wanted.clone());
        let client = self.client.clone();
        let looking = async move {
            let looked = match wanted {
                Wanted::Rows(names) => rows(&client, names).await,
                Wanted::Detail(name) => match client.open(&name).inspect().await {
                    Ok(inspection) => Looked::Detail(name, Detail::from(inspection)),
                    Err(error) => Looked::Failed(error),
                },
            };
            Answer::Looked(looked)
        };
        self.look = Some(self.under_way.spawn(looking));
    }
}

/// The counts of these. That one of them cannot be had, say, because its keys are somebody else's, is no reason
/// not to show the others.
async fn rows(client: &Client, names: Vec<String>) -> Looked {
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
            Err(error) => return Looked::Failed(error),
        }
    }
    Looked::Rows(rows)
}
