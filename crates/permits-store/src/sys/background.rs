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
/// `uses_sockets`. The thread then shuts the runtime down and calls the future's output. If the future
/// panics, nothing is called.
///
/// `make` gets the sender of the answer that is returned. If there can be no runtime, the answer is the
/// error.
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
        // Made by the thread: a runtime that is dropped on a thread of another one panics, as it would if
        // there can be no thread.
        let runtime = match new_runtime(uses_sockets) {
            Ok(runtime) => runtime,
            // A receiver that was dropped is ignored.
            Err(error) => return drop(answer.send(Err(error.into()))),
        };
        // A task, because waking the future passed to `block_on` costs a system call, and waking a task on
        // the same thread does not.
        let ended = runtime.block_on(async { tokio::spawn(make(answer)).await });
        drop(runtime);
        if let Ok(end) = ended {
            end();
        }
    })?;
    Ok(receiver)
}

fn new_runtime(uses_sockets: bool) -> Result<Runtime, SpawnError> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    // A runtime that polls also wakes for each signal of a program that listens to signals.
    let runtime = if uses_sockets { builder.enable_all() } else { builder.enable_time() }.build()?;
    Ok(runtime)
}
