//! Background threads with a runtime of their own.
//!
//! A session must renew its permits while the program blocks its own runtime, and a caller may have no
//! runtime at all. So background work never runs on the caller's runtime.

use std::future::Future;

use tokio::runtime::Runtime;
use tokio::sync::oneshot;

/// The error of the operating system that kept a thread or its runtime from starting.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct SpawnError(#[from] std::io::Error);

/// Runs the future of `make` to its end on a new thread with a current-thread runtime, which polls sockets if
/// `uses_sockets`. Then the thread shuts the runtime down, and calls what the future has returned. If the
/// future panics, nothing is called.
///
/// `make` gets the sender of the answer, and this returns the receiver. If the runtime cannot be made, the
/// answer is the error.
pub fn spawn_with_runtime<T, E, F, L>(
    uses_sockets: bool,
    make: impl FnOnce(oneshot::Sender<Result<T, E>>) -> F + Send + 'static,
) -> Result<oneshot::Receiver<Result<T, E>>, SpawnError>
where
    T: Send + 'static,
    E: From<SpawnError> + Send + 'static,
    F: Future<Output = L> + Send + 'static,
    L: FnOnce() + Send + 'static,
{
    let (answer, receiver) = oneshot::channel();
    std::thread::Builder::new().name("permits".into()).spawn(move || {
        // The thread makes the runtime itself. If it were made here and no thread could be started, the
        // runtime would be dropped on the caller's thread, which panics inside another runtime.
        let runtime = match new_runtime(uses_sockets) {
            Ok(runtime) => runtime,
            // The receiver may have been dropped: then nobody needs the error.
            Err(error) => return drop(answer.send(Err(error.into()))),
        };
        // Run the future as a task: waking a task on the same thread costs nothing, and waking the future
        // that is passed to `block_on` costs a system call.
        let ended = runtime.block_on(async { tokio::spawn(make(answer)).await });
        drop(runtime);
        if let Ok(end) = ended {
            end();
        }
    })?;
    Ok(receiver)
}

/// A runtime for the calling thread alone.
pub(crate) fn new_runtime(uses_sockets: bool) -> Result<Runtime, SpawnError> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    // A runtime that polls sockets also wakes for each signal, if the program listens to signals. So poll
    // only if needed.
    let runtime = if uses_sockets { builder.enable_all() } else { builder.enable_time() }.build()?;
    Ok(runtime)
}
