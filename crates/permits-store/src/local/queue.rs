//! [`Queue`]: the tasks of a session's thread, and the order in which it handles them.
//!
//! Each command reads and writes the whole state of a semaphore. With thousands of waiters a command takes
//! milliseconds, and a session may hand over many commands at once. So the renewal of a permit goes ahead of
//! them, or the permit might be lost.

use std::collections::{BTreeSet, VecDeque};

use tokio::sync::oneshot;

use crate::clock::Moment;
use crate::error::StoreError;
use crate::protocol::{Command, Name, Operation};

/// A task of the thread, and the deadline of its waits for other processes.
pub(super) enum Task {
    /// Execute a command, and report the outcome of the request `id`.
    Execute {
        id: u64,
        command: Box<Command>,
        deadline: Moment,
        /// If the command has waited for a lock: the error of that wait.
        locked: Option<StoreError>,
    },
    List(oneshot::Sender<Result<Vec<Name>, StoreError>>),
}

impl Task {
    /// Returns true if it renews a permit that is held. The renewal of a waiter names no grant.
    pub(super) fn renews_a_permit(&self) -> bool {
        let Self::Execute { command, .. } = self else { return false };
        let Operation::Renew(requests) = &command.operation else { return false };
        requests.iter().any(|renew| renew.grant.is_some())
    }

    pub(super) fn semaphore(&self) -> Option<&Name> {
        match self {
            Self::Execute { command, .. } => Some(&command.semaphore),
            Self::List(_) => None,
        }
    }
}

/// Returns true if [`LocalStore::is_full`](super::local_store::LocalStore) counts this command.
pub(super) fn counts(command: &Command) -> bool {
    !matches!(command.operation, Operation::Renew(_))
}

/// The tasks that wait, in the order in which they were sent.
///
/// The renewal of a permit goes ahead of tasks that were sent before it. It never meets its own release or
/// its own acquisition there: a session renews neither a request that is in flight nor a permit that it has
/// released. To extend a permit does not change what others wait for. Renewals of permits keep their order
/// among themselves.
///
/// A task overtakes at most every second time. So even if there is always another renewal, the oldest task is
/// handled next, or after one other.
///
/// If another process has locked the file of a semaphore, its tasks wait, and the other semaphores go on. Its
/// tasks come again when each other semaphore has had its turn.
#[derive(Default)]
pub(super) struct Queue {
    pub(super) tasks: VecDeque<Task>,
    /// The last task overtook others.
    overtook: bool,
    /// The semaphores whose files were locked. They are tried again when the tasks of all others have been
    /// handled.
    locked: BTreeSet<Name>,
}

impl Queue {
    pub(super) fn next(&mut self) -> Option<Task> {
        let is_free =
            |locked: &BTreeSet<Name>, task: &Task| !task.semaphore().is_some_and(|of| locked.contains(of));
        if !self.tasks.iter().any(|task| is_free(&self.locked, task)) {
            self.locked.clear();
        }
        let free = |task: &Task| is_free(&self.locked, task);
        let oldest = self.tasks.iter().position(free)?;
        let renewal = self.tasks.iter().position(|task| free(task) && task.renews_a_permit());
        let ahead = renewal.filter(|position| *position > oldest && !self.overtook);
        self.overtook = ahead.is_some();
        self.tasks.remove(ahead.unwrap_or(oldest))
    }

    /// Takes back a task whose file is locked.
    pub(super) fn put_back(&mut self, task: Task) {
        self.locked.extend(task.semaphore().cloned());
        self.tasks.push_front(task);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{
        Declaration, Grant, Holder, PermitTerms, Recovery, RenewRequest, RequestId, RequestKey, SessionId,
    };

    fn execute(id: u64, operation: Operation) -> Task {
        let command = Box::new(Command {
            semaphore: Name::new("s").expect("valid"),
            session: SessionId::new("session").expect("valid"),
            lease_ms: 1000,
            recovery: Recovery::Off,
            declaration: Declaration::Declare(1),
            operation,
        });
        Task::Execute { id, command, deadline: Moment::now(), locked: None }
    }

    /// The renewal of a permit, or of a waiter.
    fn renew(id: u64, grant: Option<Grant>) -> Task {
        let (holder, request) = (Holder::new("h").expect("valid"), RequestId::new("s.1").expect("valid"));
        let renew = RenewRequest::new(holder, request, PermitTerms::new(1, 1000), grant);
        execute(id, Operation::Renew(vec![renew]))
    }

    fn release(id: u64) -> Task {
        let (holder, request) = (Holder::new("other").expect("valid"), RequestId::new("s.2").expect("valid"));
        execute(id, Operation::Release(vec![RequestKey { holder, request }.into()]))
    }

    const GRANT: Option<Grant> = Some(Grant { token: 7, slot: 0 });

    /// The ids of all messages, in the order in which they are handled.
    fn order(messages: impl IntoIterator<Item = Task>) -> Vec<u64> {
        ids(Queue { tasks: messages.into_iter().collect(), ..Queue::default() })
    }

    fn ids(mut queue: Queue) -> Vec<u64> {
        let id = |task| match task {
            Task::Execute { id, .. } => id,
            Task::List(_) => panic!("there is none"),
        };
        std::iter::from_fn(|| queue.next().map(id)).collect()
    }

    #[test]
    fn renewals_of_permits_go_ahead_in_their_order() {
        let messages = [release(1), release(2), renew(3, None), renew(4, GRANT), renew(5, GRANT), release(6)];
        assert_eq!(order(messages), [4, 1, 5, 2, 3, 6]);
        let declaration = execute(2, Operation::Renew(Vec::new()));
        assert_eq!(order([release(1), declaration, renew(3, None)]), [1, 2, 3], "nothing else does");
    }

    #[test]
    fn the_oldest_message_is_handled_although_there_is_always_a_renewal() {
        let mut queue = Queue { tasks: [release(1), release(2)].into(), ..Queue::default() };
        let mut releases = 0;
        for id in 3..7 {
            queue.tasks.push_back(renew(id, GRANT));
            let Some(message) = queue.next() else { panic!("there are some") };
            releases += usize::from(!message.renews_a_permit());
        }
        assert_eq!(releases, 2);
    }

    #[test]
    fn the_tasks_of_a_locked_file_come_again_in_their_order_behind_those_of_others() {
        let mut other = release(3);
        if let Task::Execute { command, .. } = &mut other {
            command.semaphore = Name::new("other").expect("valid");
        }
        let mut queue = Queue { tasks: [release(1), release(2), other].into(), ..Queue::default() };
        let first = queue.next().expect("there is one");
        queue.put_back(first);
        assert_eq!(ids(queue), [3, 1, 2]);
    }
}
