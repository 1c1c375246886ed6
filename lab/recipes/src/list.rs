//! Recipe 1: a list of tokens.
//!
//! The client that wins SETNX puts N tokens into a list. RPOP takes one, BRPOP waits for one, LPUSH puts it
//! back.
//!
//! **Right**: never more tokens out than were put in; the server serves waiters in the order in which they
//! came, and a newcomer cannot overtake them.
//!
//! **Breaks**: a crashed holder's token is lost without a trace. A client that crashes between SETNX and
//! LPUSH leaves no tokens at all. A token that the server hands to a waiter whose machine has vanished is
//! lost, too. A release that is sent twice, or a list that is cleared and filled again while tokens are out,
//! makes more than N tokens for good. The limit cannot be changed.

use permits_bench::Failure;
use redis::aio::MultiplexedConnection;

use super::session::Session;
use super::{Client, Doing, Semaphore};

pub(super) struct List {
    semaphore: Semaphore,
    session: Session,
    line: Option<MultiplexedConnection>,
    initialised: bool,
    token: Option<String>,
}

impl List {
    pub(super) fn new(semaphore: Semaphore, session: Session) -> Self {
        Self { semaphore, session, line: None, initialised: false, token: None }
    }

    async fn initialise(&mut self) -> Result<(), Failure> {
        if self.initialised {
            return Ok(());
        }
        let first: bool =
            self.session.ask(redis::cmd("SETNX").arg(self.semaphore.key("guard")).arg(1)).await?;
        if first {
            let mut fill = redis::cmd("LPUSH");
            fill.arg(self.semaphore.key("tokens"));
            (0..self.semaphore.limit).for_each(|token| {
                fill.arg(token);
            });
            self.session.ask::<()>(&fill).await?;
        }
        self.initialised = true;
        Ok(())
    }
}

impl Client for List {
    fn try_acquire(&mut self) -> Doing<'_, bool> {
        Box::pin(async move {
            self.initialise().await?;
            self.token = self.session.ask(redis::cmd("RPOP").arg(self.semaphore.key("tokens"))).await?;
            Ok(self.token.is_some())
        })
    }

    fn acquire(&mut self) -> Doing<'_, ()> {
        Box::pin(async move {
            self.initialise().await?;
            let mut pop = redis::cmd("BRPOP");
            pop.arg(self.semaphore.key("tokens")).arg(0);
            let (_, token): (String, String) = self.session.block(&mut self.line, &pop).await?;
            self.token = Some(token);
            Ok(())
        })
    }

    fn release(&mut self) -> Doing<'_, ()> {
        Box::pin(async move {
            let Some(token) = self.token.take() else { return Ok(()) };
            self.session.ask(redis::cmd("LPUSH").arg(self.semaphore.key("tokens")).arg(token)).await
        })
    }

    fn slot(&self) -> Option<u32> {
        self.token.as_ref()?.parse().ok()
    }
}
