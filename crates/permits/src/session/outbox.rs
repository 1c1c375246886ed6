//! The answers of the engine on their way to callers: replies, each through a channel, and losses of permits.
//!
//! A reply wakes a waker, and a loss cancels a token: both run code of the program, which may use permits of
//! this session. So the engine, which works under the lock of the session, only collects them. The thread
//! that held the lock delivers them once it is free.
//!
//! **Several replies to callers of one runtime** are delivered by a task of that runtime. To wake tasks of
//! another thread one by one costs a system call and two switches of threads each; within a runtime it costs
//! neither. A program may keep its runtime from running tasks, and wait with another executor meanwhile. So
//! the replies do not wait for that task for longer than [`TASK_TIMEOUT`].

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::locked::assert_unlocked;
use super::permit_state::{HeldPermit, PermitState};
use crate::error::Lost;
use crate::observe::meters::Tally;

/// The longest time that replies wait for a task of the program's runtime.
const TASK_TIMEOUT: Duration = Duration::from_millis(2);

/// The channel for a reply, and the runtime of the caller, if it has one.
pub(crate) struct Answer<T, E> {
    sender: oneshot::Sender<Result<T, E>>,
    runtime: Option<Handle>,
}

/// A channel for the reply to a caller, which is the calling task or thread.
pub(crate) fn channel<T, E>() -> (Answer<T, E>, oneshot::Receiver<Result<T, E>>) {
    let (sender, receiver) = oneshot::channel();
    (Answer { sender, runtime: Handle::try_current().ok() }, receiver)
}

/// Replies to a caller. If the caller has dropped its receiver, nothing happens.
pub(crate) fn reply<T, E>(answer: Answer<T, E>, result: Result<T, E>) {
    let _ = answer.sender.send(result);
}

impl<T, E> Answer<T, E> {
    /// Returns true if the caller no longer waits.
    pub(super) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Returns the runtime on which the caller waits, if it is known.
    pub(super) fn take_runtime(&mut self) -> Option<Handle> {
        self.runtime.take()
    }
}

type Deliver = Box<dyn FnOnce() + Send>;

/// The deliveries, in order, each with the runtime of its caller.
#[derive(Default)]
pub(super) struct Outbox {
    deliveries: Vec<(Option<Handle>, Deliver)>,
    /// Measurements, for the recorder of metrics.
    pub(super) tally: Tally,
}

impl Outbox {
    /// The number of deliveries.
    pub(super) fn len(&self) -> usize {
        self.deliveries.len()
    }

    /// Replies to a caller.
    pub(super) fn reply<T: Send + 'static, E: Send + 'static>(
        &mut self,
        mut answer: Answer<T, E>,
        result: Result<T, E>,
    ) {
        let runtime = answer.take_runtime();
        self.deliveries.push((runtime, Box::new(move || reply(answer, result))));
    }

    /// Drops a value that a caller may be waiting for.
    pub(super) fn discard(&mut self, value: impl Send + 'static) {
        self.deliveries.push((None, Box::new(move || drop(value))));
    }

    /// Ends a permit as lost, if it has not ended. The loss is signalled later.
    pub(super) fn lose(&mut self, permit: &Arc<PermitState>, reason: Lost) {
        if permit.end_as_lost(reason) {
            self.signal_loss(permit);
        }
    }

    /// Signals the loss of a permit.
    pub(super) fn signal_loss(&mut self, permit: &Arc<PermitState>) {
        let permit = HeldPermit::from(permit.clone());
        self.deliveries.push((None, Box::new(move || permit.signal_loss())));
    }

    /// Delivers everything. Call this under no lock. `session` is the session's own runtime. Returns what was
    /// measured, which the caller records next.
    pub(super) fn deliver(self, session: Option<&Handle>) -> Tally {
        assert_unlocked();
        deliver_all(self.deliveries, session);
        self.tally
    }
}

fn deliver_all(all: Vec<(Option<Handle>, Deliver)>, session: Option<&Handle>) {
    let (Some(session), true) = (session, all.len() > 1) else {
        return all.into_iter().for_each(|(_, deliver)| run(deliver));
    };
    let mut by_runtime: Vec<(Handle, Vec<Deliver>)> = Vec::new();
    for (runtime, deliver) in all {
        let Some(runtime) = runtime else {
            run(deliver);
            continue;
        };
        match by_runtime.iter_mut().find(|(known, _)| known.id() == runtime.id()) {
            Some((_, deliveries)) => deliveries.push(deliver),
            None => by_runtime.push((runtime, vec![deliver])),
        }
    }
    for (runtime, deliveries) in by_runtime {
        if deliveries.len() == 1 {
            deliveries.into_iter().for_each(run);
        } else {
            deliver_on(&runtime, deliveries, session);
        }
    }
}

/// Makes a delivery. A waker that panics harms no other caller.
fn run(deliver: Deliver) {
    // The panic hook has reported it.
    let _ = catch_unwind(AssertUnwindSafe(deliver));
}

/// Makes deliveries on `runtime`, or on the session's runtime if `runtime` runs no tasks.
fn deliver_on(runtime: &Handle, deliveries: Vec<Deliver>, session: &Handle) {
    let batch = Batch(Arc::new(Mutex::new(deliveries)));
    let late = Batch(batch.0.clone());
    drop(runtime.spawn(async move { drop(batch) }));
    drop(session.spawn(async move {
        tokio::time::sleep(TASK_TIMEOUT).await;
        drop(late);
    }));
}

/// Deliveries that two tasks share. The first task that ends makes them, even if it ends because its runtime
/// shuts down.
struct Batch(Arc<Mutex<Vec<Deliver>>>);

impl Drop for Batch {
    fn drop(&mut self) {
        let deliveries = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        deliveries.into_iter().for_each(run);
    }
}
