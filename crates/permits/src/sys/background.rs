//! Background threads with a runtime of their own.
//!
//! A session must renew its permits while the program blocks its own runtime, and a caller may have no
//! runtime at all. So background work never runs on the caller's runtime.

use std::future::Future;
use std::time::Duration;

/// The time that the thread waits, when its future has ended, for blocking tasks of its runtime, such as a
/// name look-up.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(500);

/// The error of the operating system that kept a thread or its runtime from starting.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(crate) struct SpawnError(#[from] std::io::Error);

/// Runs the future of `make` to its end on a new thread with a current-thread runtime, which polls sockets if
/// `uses_sockets`. The thread then shuts the runtime down and calls the future's output. If the future
/// panics, nothing is called.
pub(crate) fn spawn_with_runtime<F, E>(
    uses_sockets: bool,
    make: impl FnOnce() -> F + Send + 'static,
) -> Result<(), SpawnError>
where
    F: Future<Output = E> + Send + 'static,
    E: FnOnce() + Send + 'static,
{
    let mut builder = tokio::runtime::Builder::new_current_thread();
    // A runtime that polls also wakes for each signal of a program that listens to signals.
    let runtime = if uses_sockets { builder.enable_all() } else { builder.enable_time() }.build()?;
    std::thread::Builder::new().name("permits".into()).spawn(move || {
        // A task, because waking the future passed to `block_on` costs a system call, and waking a task on
        // the same thread does not.
        let ended = runtime.block_on(async { tokio::spawn(make()).await });
        // With a timeout, because a name look-up cannot be cancelled.
        runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
        if let Ok(end) = ended {
            end();
        }
    })?;
    Ok(())
}
