//! A session whose messages wait in a queue, until a test hands them to the engine.

use tokio::sync::mpsc;

use super::callers::{Message, Port, Session};
use super::config::Config;
use super::engine::Engine;
use crate::error::Ended;

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
pub(super) fn session(config: Config) -> (Session, Engine, mpsc::UnboundedReceiver<Message>) {
    let (sender, messages) = mpsc::unbounded_channel();
    let mut engine = None;
    let session = Session::new(config.clone(), |shared| {
        engine = Some(Engine::new(config, shared.clone()));
        std::sync::Arc::new(Queue(sender))
    });
    (session, engine.expect("it was just made"), messages)
}
