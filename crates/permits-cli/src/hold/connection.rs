//! One program: its lines, its requests and its events.

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;

use permits::Client;
use tokio::sync::Notify;
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::interval;

use super::acquisition::{Acquisition, Stage};
use super::ending::{CHECK_EVERY, End};
use super::events::Event;
use super::lines::{Line, Lines};
use super::outbox::{Outbox, Writer};
use super::request::{Id, Invalid, Request, Wish, parse, parse_word};
use crate::exit::{self, Failure};
use crate::report;

/// The most requests at once, waiting or held, of all programs.
pub(super) const MAX_REQUESTS: usize = 100_000;

/// The form of a program's lines and events.
#[derive(Clone)]
pub(super) enum Form {
    /// Words for the only request, whose events have no id. A line without an effect is reported on standard
    /// error.
    One,
    /// JSON with ids, for requests by this client. The place has a reference for each of them beside its own.
    Many(Client, Rc<Place>),
}

/// One of the requests of all programs, until it is dropped.
pub(super) type Place = Rc<()>;

/// The requests of a program, and what they share.
pub(super) struct Connection {
    form: Form,
    outbox: Rc<Outbox>,
    /// The requests that are not ended.
    acquisitions: RefCell<HashMap<Id, Rc<Acquisition>>>,
    /// Notified when the last one has ended.
    is_empty: Notify,
    writing: JoinHandle<()>,
}

impl Connection {
    pub(super) fn new(form: Form, writer: Writer) -> Rc<Self> {
        let (outbox, queue) = Outbox::new(matches!(form, Form::Many(..)));
        let writing = spawn_local(outbox.clone().write_all(queue, writer));
        let acquisitions = RefCell::default();
        Rc::new(Self { form, outbox, acquisitions, is_empty: Notify::new(), writing })
    }

    /// Serves the program until its end or `ending`. Then ends its requests, which takes no longer than their
    /// releases may take.
    pub(super) async fn run(self: &Rc<Self>, lines: Lines, ending: impl Future<Output = End>) -> End {
        let end = self.serve(lines, ending).await;
        for acquisition in self.acquisitions.borrow().values() {
            acquisition.end(end);
        }
        while !self.acquisitions.borrow().is_empty() {
            self.is_empty.notified().await;
        }
        self.outbox.flush().await;
        self.writing.abort();
        end
    }

    /// Takes lines until the end of the program, or `ending`.
    async fn serve(self: &Rc<Self>, mut lines: Lines, ending: impl Future<Output = End>) -> End {
        let mut ending = pin!(ending);
        let mut check = interval(CHECK_EVERY);
        loop {
            let line = async {
                self.outbox.caught_up().await;
                lines.next().await
            };
            tokio::select! {
                biased;
                end = &mut ending => return end,
                () = self.outbox.failed() => return lines.output_closed(),
                // The only request has ended.
                () = self.is_empty.notified(), if matches!(self.form, Form::One) => return End::Asked,
                _ = check.tick() => {
                    self.show_changes();
                    if let Some(end) = lines.hung_up(self.outbox.is_behind()) {
                        return end;
                    }
                }
                line = line => match line {
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
        let text = line.text.map_err(|reason| Invalid { id: None, reason });
        let parsed = text.and_then(|text| match self.form {
            Form::One => parse_word(&text),
            Form::Many(..) => parse(&text),
        });
        let taken = parsed.and_then(|(id, wish)| {
            let taken = self.order(&id, wish);
            taken.map_err(|reason| Invalid { id: Some(id), reason })
        });
        match (taken, &self.form) {
            (Ok(()), _) => {}
            (Err(Invalid { reason, .. }), Form::One) => report::say(reason),
            (Err(Invalid { id, reason }), Form::Many(..)) => {
                self.outbox.put(id.as_ref(), Event::Invalid { line: line.number, reason: &reason });
            }
        }
    }

    /// Does what a line asks for.
    fn order(self: &Rc<Self>, id: &Id, wish: Wish) -> Result<(), String> {
        let acquisition = self.acquisitions.borrow().get(id).cloned();
        match (wish, acquisition, &self.form) {
            (Wish::Acquire(_), Some(_), _) => {
                Err("the id is in use: it is free after its last event".to_owned())
            }
            (Wish::Acquire(request), None, Form::Many(client, places)) => {
                self.acquire(id, *request, client, places)
            }
            (_, None, _) => Err("no request has this id: it has ended, or there was none".to_owned()),
            (Wish::Release { count }, Some(acquisition), _) => {
                count.map_or(Ok(()), |units| acquisition.count(units))?;
                acquisition.end(End::Asked);
                Ok(())
            }
            (Wish::Count(units), Some(acquisition), _) => Ok(acquisition.count(units)?),
            (Wish::Renew, Some(acquisition), _) => Ok(acquisition.renew()?),
        }
    }

    /// Begins a request of a line.
    fn acquire(
        self: &Rc<Self>,
        id: &Id,
        request: Request,
        client: &Client,
        place: &Place,
    ) -> Result<(), String> {
        if Rc::strong_count(place) > MAX_REQUESTS {
            let reason = format!("{MAX_REQUESTS} requests wait or hold already");
            self.outbox.put(id, Event::failed(&Failure::new(exit::NOT_NOW, reason)));
            return Ok(());
        }
        let Request { name, limit, options, counts } = request;
        let semaphore = client.semaphore(&name, limit).map_err(|error| error.to_string())?;
        let acquire = semaphore.acquire_with(options);
        self.begin(Acquisition::new(id.clone(), name, counts, Stage::Waiting(acquire)), Some(place.clone()));
        Ok(())
    }

    /// Begins a request, whose end the handle has.
    pub(super) fn begin(
        self: &Rc<Self>,
        acquisition: Acquisition,
        place: Option<Place>,
    ) -> JoinHandle<Result<End, Failure>> {
        let acquisition = Rc::new(acquisition);
        self.acquisitions.borrow_mut().insert(acquisition.id.clone(), acquisition.clone());
        let connection = self.clone();
        spawn_local(async move {
            let ended = acquisition.run(&connection.outbox).await;
            let mut acquisitions = connection.acquisitions.borrow_mut();
            acquisitions.remove(&acquisition.id);
            if acquisitions.is_empty() {
                connection.is_empty.notify_one();
            }
            drop(place);
            ended
        })
    }
}
