//! Gathering: the requests of tasks that are ready together travel together.
//!
//! A call costs the server and the kernel far more than one more request in it (lab/performance.md,
//! "The parts of a cycle"), and tasks become ready in groups: a reply that grants eight permits readies eight
//! tasks, and each of them soon releases or acquires. So what can wait for one turn of the program's runtime
//! does, in two places:
//!
//! - **A task that asks or releases** while a call about its semaphore is in flight leaves its request with
//!   the engine ([`Sending::Gathering`]), and sends once the tasks that are ready have run: [`after_others`].
//! - **A step that answers several callers** sends nothing new before it has answered them
//!   ([`Sending::AfterAnswers`]): their next requests are taken meanwhile. One such step at a time, the
//!   first, sends for all ([`Answering`]).
//!
//! Everything else is sent in the step that asks for it ([`Sending::AtOnce`]).
//! A request never waits for a clock, nor for longer than the answers that are being delivered.

use std::task::Poll;

/// The calls that a step of the engine makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sending {
    /// All calls that there are to make.
    AtOnce,
    /// All calls that there are to make. But while several callers are being answered, the calls wait until
    /// that is done, and take the callers' next requests with them.
    AfterAnswers,
    /// All calls except those about a semaphore that has a call in flight already. These are left to the next
    /// step, which finds more requests to send together. It comes with the reply to that call at the latest.
    Gathering,
}

/// Set while several callers are being answered. The step that answers them then sends their next requests.
#[derive(Debug, Default)]
pub(super) struct Answering(bool);

impl Answering {
    /// Returns true if a step that has this many `answers` to deliver sends its requests only after them.
    pub(super) fn delays(&self, sending: Sending, answers: usize) -> bool {
        sending != Sending::AtOnce && (self.0 || answers > 1)
    }

    /// Notes that a step has this many `answers` to deliver. Returns true if that step has to
    /// [end](Self::end) this and send what is left.
    pub(super) fn begin(&mut self, sending: Sending, answers: usize) -> bool {
        let begins = sending == Sending::AfterAnswers && answers > 1 && !self.0;
        self.0 |= begins;
        begins
    }

    pub(super) fn end(&mut self) {
        self.0 = false;
    }
}

/// Calls `send` when the tasks that are ready now have run, or when this is dropped before.
pub(super) async fn after_others(send: impl FnOnce()) {
    let _last = OnDrop(Some(send));
    let mut have_run = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut have_run, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

struct OnDrop<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        if let Some(call) = self.0.take() {
            call();
        }
    }
}
