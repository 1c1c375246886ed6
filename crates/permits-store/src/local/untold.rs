//! [`Untold`]: requests that have ended without a message that could tell their sessions.
//!
//! A pipe takes some hundred messages. If an operator revokes more waiters of one session while the session
//! is busy or stopped, the rest does not fit. The session then renews everything, and its renewal of a
//! revoked waiter finds nothing in the store, as after a loss of state. Without more, the session would ask
//! for a new place, and the revocation would be undone. So the file of the semaphore keeps the messages that
//! did not fit. The next command of that session takes them out, and the session hears them ahead of its
//! reply.
//!
//! A lost grant is not kept, because the session learns of it by its renewal.

use super::mailbox::Message;
use crate::protocol::{Event, EventKind, Holder, Name, RequestId, SessionId};

/// How many requests are kept for a semaphore: as many as may wait.
const REQUESTS_MAX: usize = 10_000;

/// How many groups are kept for a semaphore. If an operator ends many requests for one reason, they are one
/// group.
const GROUPS_MAX: usize = 100;

/// The news about a semaphore that sessions were not told, the oldest first.
#[derive(Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) struct Untold(Vec<Group>);

/// Requests of a session that have ended in the same way.
#[derive(Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
struct Group {
    session: SessionId,
    kind: EventKind,
    /// The store's time at which the group is forgotten, in milliseconds.
    until_ms: u64,
    requests: Vec<(Holder, RequestId)>,
}

impl Untold {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Remembers a message until `until_ms`, unless a renewal tells the same. Returns true if it is
    /// remembered.
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

    /// Takes out what a session was not told, and forgets what is too old.
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
