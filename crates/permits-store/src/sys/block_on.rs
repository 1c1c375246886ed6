//! [`block_on`]: polls a future on a thread that has no runtime.
//!
//! A thread that waits for a single reply blocks on its channel. This function is for futures that wait for
//! several things.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::thread::{self, Thread};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::clock::Moment;

/// The longest sleep with a time limit, because the clock of a parked thread stands still while the machine
/// is suspended.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// Wakes a thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Blocks until `future` is ready, or returns `None` when `limit` has passed.
///
/// # Panics
/// Inside an async runtime, as all blocking calls do.
pub fn block_on<T>(future: impl Future<Output = T>, limit: Option<Duration>) -> Option<T> {
    let (sender, ready) = oneshot::channel();
    let _ = sender.send(());
    // Receive a value that is there already: this never blocks, but panics inside a runtime, as wanted.
    let _ = ready.blocking_recv();
    let end = limit.map(|limit| Moment::now() + limit);
    let waker = Arc::new(Unpark(thread::current())).into();
    let (mut context, mut future) = (Context::from_waker(&waker), pin!(future));
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
        match end.map(|end| end.since(Moment::now())) {
            None => thread::park(),
            Some(Duration::ZERO) => return None,
            Some(left) => thread::park_timeout(left.min(LONGEST_SLEEP)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;

    #[test]
    fn a_future_is_polled_when_another_thread_wakes_it() {
        let (sender, receiver) = oneshot::channel();
        let other = thread::spawn(move || sender.send(7));
        assert_eq!(block_on(receiver, None), Some(Ok(7)));
        assert_eq!(other.join().expect("sending does not panic"), Ok(()));
    }

    #[test]
    fn a_time_limit_ends_the_wait() {
        assert_eq!(block_on(pending::<()>(), Some(Duration::from_millis(1))), None);
        assert_eq!(block_on(async { 7 }, Some(Duration::ZERO)), Some(7), "ready is ready");
    }

    #[tokio::test]
    async fn inside_a_runtime_it_panics() {
        let blocking = std::panic::catch_unwind(|| block_on(async {}, None));
        assert!(blocking.is_err());
    }
}
