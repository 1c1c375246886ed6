//! The session's thread: opens the store, and drives the engine until it is finished.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::sync::{mpsc, oneshot};

use super::LONGEST_SLEEP;
use super::call::{Call, Executed};
use super::config::Config;
use super::engine::Engine;
use super::inbox::{Message, Session};
use super::reply::{Answer, reply};
use crate::background::spawn_with_runtime;
use crate::clock::Moment;
use crate::error::{AdminError, ConnectError, Ended};
use crate::events;
use crate::protocol::Name;
use crate::store::{self, EVENT_BUFFER, Store, StoreError, StoreEvent};

/// The timeout of one step of a list, and the pause before a retry.
const LIST_TIMEOUT: Duration = Duration::from_secs(3);
const LIST_RETRY: Duration = Duration::from_millis(100);

/// The most messages taken before the calls that they lead to are made.
const MESSAGES_AT_ONCE: usize = 1024;

type InFlight = FuturesUnordered<Pin<Box<dyn Future<Output = (Call, Result<Executed, StoreError>)> + Send>>>;

/// Starts a session. The answer comes when the store is open, or cannot be opened.
pub(crate) fn start(
    config: Config,
    address: store::Address,
    prefix: String,
) -> Result<oneshot::Receiver<Result<Session, ConnectError>>, ConnectError> {
    let (opened, answer) = oneshot::channel();
    spawn_with_runtime(move || async {
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

async fn run(
    config: Config,
    address: store::Address,
    prefix: String,
    mut opened: oneshot::Sender<Result<Session, ConnectError>>,
) -> Option<Engine> {
    let (events_in, events) = mpsc::channel(EVENT_BUFFER);
    let options = store::StoreOptions {
        session: config.session.clone(),
        prefix,
        lease: config.lease,
        events: events_in,
    };
    let opening = tokio::select! {
        opening = store::open(&address, options, config.store_timeout) => opening,
        // The caller has given up.
        () = opened.closed() => return None,
    };
    let store = match opening {
        Ok(store) => store,
        Err(error) => {
            reply(opened, Err(ConnectError::Store(error)));
            return None;
        }
    };
    let (session, messages) = Session::new(config.clone());
    let mut engine = Engine::new(config, Arc::downgrade(session.shared()));
    opened.send(Ok(session)).ok()?;
    serve(&mut engine, store, messages, events).await;
    Some(engine)
}

/// Drives the engine until it is finished. A panic ends every permit and answers every caller.
async fn serve(
    engine: &mut Engine,
    store: Arc<dyn Store>,
    mut messages: mpsc::UnboundedReceiver<Message>,
    events: mpsc::Receiver<StoreEvent>,
) {
    let looped = AssertUnwindSafe(run_loop(engine, &store, &mut messages, events)).catch_unwind().await;
    messages.close();
    let ended = match looped {
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

async fn run_loop(
    engine: &mut Engine,
    store: &Arc<dyn Store>,
    messages: &mut mpsc::UnboundedReceiver<Message>,
    mut events: mpsc::Receiver<StoreEvent>,
) {
    let mut in_flight = InFlight::new();
    let mut open = true;
    let mut timer = std::pin::pin!(tokio::time::sleep(Duration::ZERO));
    while !engine.is_finished() {
        let sleep = engine.next_time().map(|at| at.since(Moment::now()).min(LONGEST_SLEEP));
        if let Some(sleep) = sleep {
            let at = tokio::time::Instant::now() + sleep;
            // Too early does no harm, and is cheaper than to set it for every message.
            if timer.is_elapsed() || at < timer.deadline() {
                timer.as_mut().reset(at);
            }
        }
        tokio::select! {
            biased;
            Some((call, result)) = in_flight.next() => {
                let now = Moment::now();
                engine.on_time(now);
                engine.on_return(call, result, now);
            }
            Some(event) = events.recv() => {
                let now = Moment::now();
                engine.on_time(now);
                engine.on_event(event, now);
            }
            message = messages.recv(), if open => {
                let now = Moment::now();
                engine.on_time(now);
                match message {
                    Some(message) => on_message(engine, store, message, now),
                    // The last client and the last permit were dropped.
                    None => {
                        open = false;
                        engine.close(None, now);
                    }
                }
            }
            () = &mut timer, if sleep.is_some() => {
                engine.on_time(Moment::now());
            }
        }
        drain_inbox(engine, store, messages);
        for (semaphore, request) in engine.take_handed_over() {
            store.forget(&semaphore, &request);
        }
        for call in engine.calls(Moment::now()) {
            in_flight.push(Box::pin(execute(store.clone(), call)));
        }
    }
}

fn on_message(engine: &mut Engine, store: &Arc<dyn Store>, message: Message, now: Moment) {
    match message {
        Message::List { answer } => drop(tokio::spawn(list(store.clone(), answer, engine.store_timeout()))),
        message => engine.on_message(message, now),
    }
}

/// Takes the messages that have arrived meanwhile, so that their requests go out in one call.
fn drain_inbox(engine: &mut Engine, store: &Arc<dyn Store>, messages: &mut mpsc::UnboundedReceiver<Message>) {
    let now = Moment::now();
    for _ in 0..MESSAGES_AT_ONCE {
        match messages.try_recv() {
            Ok(message) => on_message(engine, store, message, now),
            Err(_) => return,
        }
    }
}

async fn execute(store: Arc<dyn Store>, call: Call) -> (Call, Result<Executed, StoreError>) {
    let result = if call.replicas > 0 {
        let confirmed = store.confirm(&call.command, call.replicas, call.timeout).await;
        confirmed.map(|(reply, confirmed)| Executed { reply, confirmed })
    } else {
        store.execute(&call.command, call.timeout).await.map(Executed::from)
    };
    (call, result)
}

/// Lists the semaphores. While the store cannot be reached, the call is retried until `timeout` has passed.
async fn list(store: Arc<dyn Store>, answer: Answer<Vec<Name>, AdminError>, timeout: Duration) {
    let deadline = Moment::now() + timeout;
    let result = loop {
        match store.list(LIST_TIMEOUT).await {
            Err(error) if error.is_temporary() && Moment::now() < deadline && !answer.is_closed() => {
                tokio::time::sleep(LIST_RETRY).await;
            }
            result => break result,
        }
    };
    reply(answer, result.map_err(AdminError::Store));
}
