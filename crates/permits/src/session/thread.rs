//! The session's thread: opens the store, and feeds the engine until it is finished.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::sync::{mpsc, oneshot};

use super::engine::{Call, Engine, Purpose};
use super::message::{Answer, Message};
use super::{Config, LONGEST_SLEEP, Session};
use crate::clock::Moment;
use crate::error::{AdminError, ConnectError, Ended};
use crate::events;
use crate::protocol::{Name, Reply};
use crate::store::{self, EVENT_BUFFER, Store, StoreError, StoreEvent};

/// How long one step of a list may take, and when to try again if it fails in a way that may pass.
const LIST_TIMEOUT: Duration = Duration::from_secs(3);
const LIST_AGAIN: Duration = Duration::from_millis(100);

/// How long a session that has ended waits for what its runtime still does on other threads.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(500);

/// The most messages taken before the calls that they lead to are made.
const MESSAGES_AT_ONCE: usize = 1024;

type InFlight = FuturesUnordered<Pin<Box<dyn Future<Output = (Call, Result<Reply, StoreError>)> + Send>>>;

/// Starts a session. The answer comes when the store is open, or cannot be opened.
pub(crate) fn start(
    config: Config,
    address: store::Address,
    prefix: String,
) -> Result<oneshot::Receiver<Result<Session, ConnectError>>, ConnectError> {
    let (opened, answer) = oneshot::channel();
    on_its_own(move || async {
        let engine = run(config, address, prefix, opened).await;
        || {
            events::flush();
            if let Some(mut engine) = engine {
                engine.answer_closed();
            }
        }
    })?;
    Ok(answer)
}

/// Runs a future to its end on a thread and a runtime of its own, and when the runtime has ended, its result. As a task
/// of it, for what a runtime blocks on itself is woken by a system call even by its own tasks.
pub(crate) fn on_its_own<F, E>(make: impl FnOnce() -> F + Send + 'static) -> Result<(), ConnectError>
where
    F: Future<Output = E> + Send + 'static,
    E: FnOnce() + Send + 'static,
{
    let failed = |error: std::io::Error| ConnectError::Thread { reason: error.to_string() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    std::thread::Builder::new()
        .name("permits".into())
        .spawn(move || {
            let ended = runtime.block_on(async { tokio::spawn(make()).await });
            // Not for ever: a name may be being looked up.
            runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
            if let Ok(end) = ended {
                end();
            }
        })
        .map_err(failed)?;
    Ok(())
}

async fn run(
    config: Config,
    address: store::Address,
    prefix: String,
    mut opened: oneshot::Sender<Result<Session, ConnectError>>,
) -> Option<Engine> {
    let (signals_in, signals) = mpsc::channel(EVENT_BUFFER);
    let opening = store::StoreOptions {
        session: config.session.clone(),
        prefix,
        lease: config.lease,
        events: signals_in,
    };
    let opening = tokio::select! {
        opening = store::open(&address, opening, config.store_timeout) => opening,
        // The caller has given up.
        () = opened.closed() => return None,
    };
    let store = match opening {
        Ok(store) => store,
        Err(error) => {
            // Whoever asked may be gone.
            let _ = opened.send(Err(ConnectError::Store(error)));
            return None;
        }
    };
    let (session, messages) = Session::new(config.clone());
    let mut engine = Engine::new(config, Arc::downgrade(session.shared()));
    opened.send(Ok(session)).ok()?;
    serve(&mut engine, store, messages, signals).await;
    Some(engine)
}

/// Feeds the engine until it is finished. A panic ends every permit and answers every caller.
async fn serve(
    engine: &mut Engine,
    store: Arc<dyn Store>,
    mut messages: mpsc::UnboundedReceiver<Message>,
    signals: mpsc::Receiver<StoreEvent>,
) {
    let fed = AssertUnwindSafe(feed(engine, store, &mut messages, signals)).catch_unwind().await;
    messages.close();
    let ended = match fed {
        Ok(()) => Ended::Closed,
        Err(_) => {
            engine.abandon();
            Ended::SessionFailed
        }
    };
    while let Ok(message) = messages.try_recv() {
        message.refuse(ended);
    }
}

async fn feed(
    engine: &mut Engine,
    store: Arc<dyn Store>,
    messages: &mut mpsc::UnboundedReceiver<Message>,
    mut signals: mpsc::Receiver<StoreEvent>,
) {
    let mut in_flight = InFlight::new();
    let mut open = true;
    let mut alarm = std::pin::pin!(tokio::time::sleep(Duration::ZERO));
    while !engine.is_finished() {
        let sleep = engine.next_time().map(|at| at.since(Moment::now()).min(LONGEST_SLEEP));
        if let Some(sleep) = sleep {
            let at = tokio::time::Instant::now() + sleep;
            // Too early does no harm, and is cheaper than to set it for every message.
            if alarm.is_elapsed() || at < alarm.deadline() {
                alarm.as_mut().reset(at);
            }
        }
        tokio::select! {
            biased;
            Some((call, result)) = in_flight.next() => {
                let now = Moment::now();
                engine.on_time(now);
                engine.on_return(call, result, now);
            }
            Some(signal) = signals.recv() => {
                let now = Moment::now();
                engine.on_time(now);
                engine.on_signal(signal, now);
            }
            message = messages.recv(), if open => {
                let now = Moment::now();
                engine.on_time(now);
                match message {
                    Some(message) => engine.on_message(message, now),
                    // Nobody has a client or a permit any more.
                    None => {
                        open = false;
                        engine.close(None, now);
                    }
                }
            }
            () = &mut alarm, if sleep.is_some() => {
                engine.on_time(Moment::now());
            }
        }
        take_waiting(engine, messages);
        for answer in engine.take_listings() {
            tokio::spawn(list(store.clone(), answer, engine.store_timeout()));
        }
        for (semaphore, request) in engine.take_handed_over() {
            store.forget(&semaphore, &request);
        }
        for call in engine.calls(Moment::now()) {
            in_flight.push(Box::pin(execute(store.clone(), call)));
        }
    }
}

async fn execute(store: Arc<dyn Store>, mut call: Call) -> (Call, Result<Reply, StoreError>) {
    let result = match &mut call.purpose {
        Purpose::Confirm { replicas, .. } => {
            let confirmed = store.confirm(&call.command, *replicas, call.timeout).await;
            confirmed.map(|(reply, confirmed)| {
                *replicas = confirmed;
                reply
            })
        }
        _ => store.execute(&call.command, call.timeout).await,
    };
    (call, result)
}

/// Lists the semaphores. While the store cannot be reached it is tried again, for as long as `timeout` lasts.
async fn list(store: Arc<dyn Store>, answer: Answer<Vec<Name>, AdminError>, timeout: Duration) {
    let deadline = Moment::now() + timeout;
    let result = loop {
        match store.list(LIST_TIMEOUT).await {
            Err(error) if error.is_temporary() && Moment::now() < deadline && !answer.is_closed() => {
                tokio::time::sleep(LIST_AGAIN).await;
            }
            result => break result,
        }
    };
    // Whoever asked may be gone.
    let _ = answer.send(result.map_err(AdminError::Store));
}

/// Takes what has arrived meanwhile, so that it goes out in one call.
fn take_waiting(engine: &mut Engine, messages: &mut mpsc::UnboundedReceiver<Message>) {
    let now = Moment::now();
    for _ in 0..MESSAGES_AT_ONCE {
        match messages.try_recv() {
            Ok(message) => engine.on_message(message, now),
            Err(_) => return,
        }
    }
}
