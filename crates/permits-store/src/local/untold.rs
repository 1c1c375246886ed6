//! [`Untold`]: the ends of requests of which no message could tell their sessions.
//!
//! A pipe takes some hundred messages. If an operator revokes more waiters of one session while the session
//! is busy or stopped, the rest does not fit. The session then renews everything, and its renewal of a
//! revoked waiter finds nothing in the store, as after a loss of state: without more it would ask for a new
//! place, and the revocation would be undone. So the file of the semaphore keeps what did not fit. The next
//! command of that session takes it, and hears it ahead of its reply.
//!
//! A lost grant is not kept, because the renewal gets the same answer from the state.

use super::mailbox::Message;
use crate::protocol::{Event, EventKind, Holder, Name, RequestId, SessionId};

/// The most requests that are kept for a semaphore: as many as may wait.
const REQUESTS_MAX: usize = 10_000;

/// The most groups that are kept for a semaphore. An operator ends many requests for one reason, and they are
/// one group.
const GROUPS_MAX: usize = 100;

/// What sessions were not told about a semaphore, the oldest first.
#[derive(Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) struct Untold(Vec<Group>);

/// Requests of a session that have ended in the same way.
#[derive(Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
struct Group {
    session: SessionId,
    kind: EventKind,
    /// The store's time at which it is forgotten, in milliseconds.
    until_ms: u64,
    requests: Vec<(Holder, RequestId)>,
}

impl Untold {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Remembers a message until `until_ms`, if no renewal gets the same answer. Returns true if it does.
    pub(super) fn remember(&mut self, message: &Message, until_ms: u64) -> bool {
        let Message::Event(event, _) = message else { return false };
        if event.kind.is_told_by_renewal() {
            return false;
        }
        let Event { session, holder, request, kind, .. } = event.clone();
        let same = self.0.iter_mut().find(|group| group.session == session && group.kind == kind);
        match same {
            Some(group) => {
                group.until_ms = group.until_ms.max(until_ms);
                group.requests.push((holder, request));
            }
            None => self.0.push(Group { session, kind, until_ms, requests: vec![(holder, request)] }),
        }
        let count: usize = self.0.iter().map(|group| group.requests.len()).sum();
        if count > REQUESTS_MAX {
            self.0[0].requests.remove(0);
        }
        if self.0.len() > GROUPS_MAX || self.0[0].requests.is_empty() {
            self.0.remove(0);
        }
        true
    }

    /// Takes what a session was not told, and forgets what is too old.
    pub(super) fn take(&mut self, session: &SessionId, semaphore: &Name, now_ms: u64) -> Vec<Message> {
        self.0.retain(|group| now_ms < group.until_ms);
        let is_of = |group: &mut Group| group.session == *session;
        let events = self.0.extract_if(.., is_of).flat_map(|Group { session, kind, requests, .. }| {
            requests.into_iter().map(move |(holder, request)| {
                let (session, kind) = (session.clone(), kind.clone());
                Message::Event(Event { session, semaphore: semaphore.clone(), holder, request, kind }, None)
            })
        });
        events.collect()
    }
}
