//! [`Asked`]: the questions for credentials that a client asks a function of the language.
//!
//! A thread of the library may not enter an interpreter. So a question waits here until the language has
//! called its function. The language waits for questions with a [`Call`], as it does for everything else.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use permits::{ClientBuilder, Credentials};
use serde_json::Value as Json;
use tokio::sync::oneshot;

use crate::arguments::{Language, duration};
use crate::call::{Call, Value};
use crate::failure::Failure;

type Answer = Result<Credentials, String>;

/// The questions of one client, for a thread or an event loop that answers them.
#[derive(Debug)]
pub struct Asked(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    questions: Vec<oneshot::Sender<Answer>>,
    /// The client is gone.
    is_closed: bool,
    waker: Option<Waker>,
}

impl Shared {
    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        change(&mut state);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The client's end, which is dropped with the client.
struct Asking(Arc<Shared>);

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.change(|state| state.is_closed = true);
    }
}

impl Asked {
    /// The questions of a client that does not exist yet.
    #[expect(clippy::new_without_default, reason = "it belongs to one client")]
    pub fn new() -> Self {
        Self(Arc::default())
    }

    /// Has the client of this builder ask.
    pub(crate) fn by(&self, builder: ClientBuilder) -> ClientBuilder {
        let asking = Asking(self.0.clone());
        builder.named_credentials("the function for credentials", move || {
            let (sender, answer) = oneshot::channel();
            asking.0.change(|state| state.questions.push(sender));
            async move { answer.await.unwrap_or_else(|_| Err("the program is ending".to_owned())) }
        })
    }

    /// Waits for a question, and returns true. Returns false when the client is gone.
    pub fn next(&self) -> Call {
        let shared = self.0.clone();
        Call::new(poll_fn(move |context| {
            let mut state = shared.lock();
            // Drop the questions whose time is up: nobody waits for an answer to them.
            state.questions.retain(|question| !question.is_closed());
            if !state.questions.is_empty() || state.is_closed {
                return Poll::Ready(Ok::<_, Failure>(Value::Flag(!state.is_closed)));
            }
            state.waker = Some(context.waker().clone());
            Poll::Pending
        }))
    }

    /// Answers all questions with JSON: `password`, and perhaps `user` and `expires_in`; or an `error`.
    pub fn answer(&self, language: Language, answer: &str) {
        let answer = credentials(language, answer);
        for question in std::mem::take(&mut self.0.lock().questions) {
            // The client may have given up.
            let _ = question.send(answer.clone());
        }
    }
}

/// Reads the answer of the function. A failure never repeats a value, which may be a password.
fn credentials(language: Language, answer: &str) -> Answer {
    let known = ["password", "user", "expires_in_ms", "error"];
    let fields = language.fields("credentials", answer, &known).map_err(|failure| failure.message)?;
    if let Some(error) = fields.get("error").and_then(Json::as_str) {
        return Err(error.to_owned());
    }
    let text = |name: &str| match fields.get(name) {
        None => Ok(None),
        Some(Json::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(format!("{name} is no string")),
    };
    let password = text("password")?.ok_or("it has returned no password")?;
    let mut credentials = Credentials::new(password);
    if let Some(user) = text("user")? {
        credentials = credentials.user(user);
    }
    if let Some(time) = fields.get("expires_in_ms") {
        credentials = credentials.expires_in(duration(time));
    }
    Ok(credentials)
}
