//! Sessions without a thread. A test plays their store, or gives them one.
//!
//! - [`driver`]: the engine behind its lock, with a store that answers at once or never;
//! - [`steps`]: the engine alone, step by step;
//! - [`simulation`]: many engines and one store that runs the model, under one clock;
//! - [`shelf`], [`permit_state`]: the state that threads share without that lock; [`threads`]: under every
//!   order of their steps.

mod driver;
mod permit_state;
mod shelf;
mod simulation;
mod steps;
mod threads;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::mpsc;

use super::callers::{Message, Port, Session};
use super::engine::Engine;
use super::spec::{AcquireSpec, LimitDeclaration};
use super::{Config, Requested};
use crate::error::Ended;
use crate::protocol::{
    Answers, Declaration, Holder, Label, Name, PermitTerms, Recovery, Reply, RequestId, SessionId,
};
use permits_store::{Executed, Request, Store, StoreError};

/// The settings of a session that waits for its store for an hour.
fn config(session: &str, lease: Duration) -> Config {
    Config {
        session: SessionId::new(session).expect("valid"),
        process: "host:1".to_owned(),
        label: Label::default(),
        author: Label::default(),
        clock: Default::default(),
        lease,
        keep: Duration::ZERO,
        recovery: Recovery::Off,
        queue_max: 1000,
        replicas: 0,
        store_timeout: Duration::from_secs(3600),
        meters: Default::default(),
    }
}

/// A request of this session for the semaphore `name`.
fn spec(session: &Session, name: &str, terms: PermitTerms, declaration: Declaration) -> AcquireSpec {
    let limit = Arc::new(LimitDeclaration::new(declaration));
    AcquireSpec::new(Name::new(name).expect("valid"), session.new_names(None), terms, limit)
}

/// A request for one permit: the part that the permit keeps.
fn requested() -> Requested {
    Requested {
        semaphore: Name::new("n").expect("valid"),
        holder: Holder::new("h").expect("valid"),
        request: RequestId::new("s.1").expect("valid"),
        terms: PermitTerms::new(1, 60_000),
        max_hold: None,
        clock: Default::default(),
        meters: Default::default(),
    }
}

/// The reply of a store whose clock shows `now_us`.
fn reply(now_us: u64, answers: Answers) -> Reply {
    Reply {
        now_us,
        sequence: 1,
        recheck_ms: None,
        limit: 1,
        limit_version: 1,
        pinned: false,
        recovering_ms: 0,
        replaced_limit: None,
        replaced_bounds: None,
        keepable: false,
        answers,
    }
}

/// A store that keeps the requests for a test. The test reports the outcomes.
#[derive(Default)]
struct Silent {
    requests: Mutex<Vec<Request>>,
    reports_all: bool,
}

impl Silent {
    /// The requests since the last call.
    fn take(&self) -> Vec<Request> {
        std::mem::take(&mut *self.requests.lock().expect("no panic"))
    }
}

impl Store for Silent {
    fn send(&self, request: Request) -> Option<Result<Executed, StoreError>> {
        self.requests.lock().expect("no panic").push(request);
        None
    }

    fn reports_all(&self) -> bool {
        self.reports_all
    }

    fn list(&self, _timeout: Duration) -> BoxFuture<'_, Result<Vec<Name>, StoreError>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

/// The messages of a session wait here, until a test hands them to the engine.
struct Queue(mpsc::UnboundedSender<Message>);

impl Port for Queue {
    fn send(&self, message: Message) {
        if let Err(mpsc::error::SendError(message)) = self.0.send(message) {
            message.refuse(Ended::Closed);
        }
    }

    fn gather(&self, message: Message) -> bool {
        self.send(message);
        false
    }

    fn flush(&self) {}

    fn ended(&self) -> Ended {
        Ended::Closed
    }
}

/// A session, its engine, and the messages to the engine.
fn queued_session(config: Config) -> (Session, Engine, mpsc::UnboundedReceiver<Message>) {
    let (sender, messages) = mpsc::unbounded_channel();
    let mut engine = None;
    let session = Session::new(config.clone(), |shared| {
        engine = Some(Engine::new(config, shared.clone()));
        Arc::new(Queue(sender))
    });
    (session, engine.expect("it was just made"), messages)
}
