//! One program: its lines, its requests and its events.

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;

use tokio::sync::Notify;
use tokio::task::spawn_local;
use tokio::time::interval;

use super::super::ending::{CHECK_EVERY, End};
use super::super::events::Event;
use super::super::lines::{Line, Lines, MAX_LINE};
use super::acquisition::Acquisition;
use super::outbox::{Outbox, Writer};
use super::request::{Id, Invalid, Request, Wish, parse};
use super::store::{MAX_REQUESTS, Store};
use crate::exit;

/// The requests of a program, and what they share.
pub(super) struct Connection {
    store: Rc<Store>,
    outbox: Outbox,
    /// The requests that are not ended.
    acquisitions: RefCell<HashMap<Id, Rc<Acquisition>>>,
    /// Notified when the last one has ended.
    is_empty: Notify,
}

impl Connection {
    /// Serves a program until its end or `ending`. Then ends its requests, which takes no longer than their
    /// releases may take.
    pub(super) async fn run(
        store: Rc<Store>,
        lines: Lines,
        writer: Writer,
        ending: impl Future<Output = End>,
    ) -> End {
        let connection = Rc::new(Self {
            store,
            outbox: Outbox::default(),
            acquisitions: RefCell::default(),
            is_empty: Notify::new(),
        });
        let writing = spawn_local({
            let connection = connection.clone();
            async move { connection.outbox.write_all(writer).await }
        });
        let end = connection.serve(lines, ending).await;
        for acquisition in connection.acquisitions.borrow().values() {
            acquisition.end(end);
        }
        while !connection.acquisitions.borrow().is_empty() {
            connection.is_empty.notified().await;
        }
        connection.outbox.flush().await;
        writing.abort();
        end
    }

    /// Takes lines until the end of the program, or `ending`.
    async fn serve(self: &Rc<Self>, mut lines: Lines, ending: impl Future<Output = End>) -> End {
        let mut ending = pin!(ending);
        let mut check = interval(CHECK_EVERY);
        loop {
            let is_behind = self.outbox.is_behind();
            tokio::select! {
                biased;
                end = &mut ending => return end,
                () = self.outbox.changed() => {
                    if self.outbox.has_failed() {
                        return lines.output_closed();
                    }
                }
                _ = check.tick() => {
                    self.show_changes();
                    if lines.is_output_closed() {
                        return lines.output_closed();
                    }
                    if is_behind && lines.is_hung_up() {
                        return lines.closed();
                    }
                }
                line = lines.next(), if !is_behind => match line {
                    Some(line) => self.take(line),
                    None => return lines.closed(),
                },
            }
        }
    }

    /// Writes the positions and states that have changed. One pass over all requests, since a position is
    /// read and not awaited.
    fn show_changes(&self) {
        for acquisition in self.acquisitions.borrow().values() {
            if self.outbox.is_behind() {
                return;
            }
            acquisition.show(&self.outbox);
        }
    }

    fn take(self: &Rc<Self>, line: Line) {
        let parsed = if line.is_cut {
            Err(Invalid { id: None, reason: format!("the line is longer than {MAX_LINE} bytes") })
        } else {
            parse(&line.bytes)
        };
        let taken = parsed.and_then(|(id, wish)| {
            let taken = self.order(&id, wish);
            taken.map_err(|reason| Invalid { id: Some(id), reason })
        });
        if let Err(Invalid { id, reason }) = taken {
            self.outbox.put_of(id.as_ref(), Event::Invalid { line: line.number, reason: &reason });
        }
    }

    /// Does what a line asks for.
    fn order(self: &Rc<Self>, id: &Id, wish: Wish) -> Result<(), String> {
        let acquisition = self.acquisitions.borrow().get(id).cloned();
        match (wish, acquisition) {
            (Wish::Acquire(_), Some(_)) => {
                Err("the id is in use: it is free after its last event".to_owned())
            }
            (Wish::Acquire(request), None) => self.acquire(id, *request),
            (_, None) => Err("no request has this id: it has ended, or there was none".to_owned()),
            (Wish::Release { count }, Some(acquisition)) => Ok(acquisition.release(count)?),
            (Wish::Renew, Some(acquisition)) => Ok(acquisition.renew()?),
        }
    }

    /// Begins a request.
    fn acquire(self: &Rc<Self>, id: &Id, request: Request) -> Result<(), String> {
        let Some(place) = self.store.place() else {
            let reason = format!("{MAX_REQUESTS} requests wait or hold already");
            let exit_code = exit::NOT_NOW;
            self.outbox.put(id, Event::Failed { exit_code, reason: &reason, retry_after_ms: None });
            return Ok(());
        };
        let (name, counts) = (request.name.clone(), request.counts);
        let acquire = self.store.acquire(request).map_err(|error| error.to_string())?;
        let acquisition = Rc::new(Acquisition::new(id.clone(), name, counts, acquire));
        self.acquisitions.borrow_mut().insert(id.clone(), acquisition.clone());
        let connection = self.clone();
        spawn_local(async move {
            acquisition.run(&connection.outbox).await;
            let mut acquisitions = connection.acquisitions.borrow_mut();
            acquisitions.remove(&acquisition.id);
            if acquisitions.is_empty() {
                connection.is_empty.notify_one();
            }
            drop(place);
        });
        Ok(())
    }
}
