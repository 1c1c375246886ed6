//! The connection to one program: its lines, its requests and its events.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;

use permits::{AcquireAll, Client, InvalidInput};
use tokio::sync::Notify;
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::acquisition::{Acquisition, Several, Stage};
use super::calls::{Call, MAX_CALLS};
use super::ending::{CHECK_EVERY, End};
use super::events::Event;
use super::lines::{Line, Lines};
use super::outbox::{Outbox, Writer};
use super::request::{Id, Invalid, One, Request, Wish, known, parse, parse_word};
use crate::acquire::LEAVE_TIMEOUT;
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
    /// JSON with ids, for requests by this client. The place has a reference for each request
    /// and for each connection.
    Many(Client, Rc<Place>),
}

/// A request's place among those that all programs may have at once. Dropping it frees the place.
pub(super) type Place = Rc<()>;

/// The requests of a program, and what they share.
pub(super) struct Connection {
    form: Form,
    outbox: Rc<Outbox>,
    /// The requests that are not ended.
    acquisitions: RefCell<HashMap<Id, Rc<Acquisition>>>,
    /// The ids of the calls that are not answered.
    calls: RefCell<HashSet<Id>>,
    /// Notified when the last acquisition, or the last call, has ended.
    is_empty: Notify,
    writing: JoinHandle<()>,
}

impl Connection {
    pub(super) fn new(form: Form, writer: Writer) -> Rc<Self> {
        let (outbox, queue) = Outbox::new(matches!(form, Form::Many(..)));
        if matches!(form, Form::Many(..)) {
            outbox.put_first(&Event::hello(known()));
        }
        let writing = spawn_local(outbox.clone().write_all(queue, writer));
        let (acquisitions, calls) = (RefCell::default(), RefCell::default());
        Rc::new(Self { form, outbox, acquisitions, calls, is_empty: Notify::new(), writing })
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
        // Calls from the last lines still get their answers, unless the store is slow.
        let answered = async {
            while !self.calls.borrow().is_empty() {
                self.is_empty.notified().await;
            }
        };
        let _ = timeout(LEAVE_TIMEOUT, answered).await;
        self.outbox.flush().await;
        self.writing.abort();
        end
    }

    /// Takes lines until the end of the program, or `ending`.
    async fn serve(self: &Rc<Self>, mut lines: Lines, ending: impl Future<Output = End>) -> End {
        let mut ending = pin!(ending);
        let mut check = interval(CHECK_EVERY);
        check.set_missed_tick_behavior(MissedTickBehavior::Delay);
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
            let taken = self.order(&id, wish, line.number);
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

    /// Carries out the wish of a line. `line` is its number, for an error.
    fn order(self: &Rc<Self>, id: &Id, wish: Wish, line: u64) -> Result<(), String> {
        let acquisition = self.acquisitions.borrow().get(id).cloned();
        let begins = matches!(wish, Wish::Acquire(_) | Wish::Adopt(_) | Wish::Call(_));
        match (wish, acquisition, &self.form) {
            (_, acquisition, _) if begins && (acquisition.is_some() || self.calls.borrow().contains(id)) => {
                Err("the id is in use: it is free after its last event".to_owned())
            }
            (Wish::Acquire(request), _, Form::Many(client, places)) => {
                self.begin_at(id, places, || acquisition_of(id, *request, client))
            }
            (Wish::Adopt(handle), _, Form::Many(client, places)) => self.begin_at(id, places, || {
                let counts = handle.clone().count(0).is_ok();
                let stage = Stage::Adopting(client.adopt(&handle));
                Ok(Acquisition::new(id.clone(), handle.semaphore().to_owned(), counts, stage))
            }),
            (Wish::Call(call), _, Form::Many(client, _)) => {
                self.call(id, call, client);
                Ok(())
            }
            (_, None, _) => Err("no request has this id: it has ended, or there was none".to_owned()),
            (Wish::Release { count }, Some(acquisition), _) => {
                count.map_or(Ok(()), |units| acquisition.count(units))?;
                acquisition.end(End::Asked);
                Ok(())
            }
            (Wish::Count(units), Some(acquisition), _) => Ok(acquisition.count(units)?),
            (Wish::Operate(operation), Some(acquisition), _) => Ok(acquisition.operate(operation, line)?),
            (Wish::HandOver, Some(acquisition), _) => Ok(acquisition.hand_over()?),
            (Wish::Acquire(_) | Wish::Adopt(_) | Wish::Call(_), Some(_), Form::One) => {
                unreachable!("no word asks for it")
            }
        }
    }

    /// Begins a request of a line, if there is a place for one more.
    fn begin_at(
        self: &Rc<Self>,
        id: &Id,
        place: &Place,
        acquisition: impl FnOnce() -> Result<Acquisition, InvalidInput>,
    ) -> Result<(), String> {
        if Rc::strong_count(place) > MAX_REQUESTS {
            let reason = format!("{MAX_REQUESTS} requests wait or hold already");
            self.outbox.put(id, Event::failed(&Failure::new(exit::NOT_NOW, reason)));
            return Ok(());
        }
        let acquisition = acquisition().map_err(|error| error.to_string())?;
        self.begin(acquisition, Some(place.clone()));
        Ok(())
    }

    /// Asks the store, and writes its answer.
    fn call(self: &Rc<Self>, id: &Id, call: Call, client: &Client) {
        if self.calls.borrow().len() >= MAX_CALLS {
            let reason = format!("{MAX_CALLS} calls are not answered yet");
            self.outbox.put(id, Event::failed(&Failure::new(exit::NOT_NOW, reason)));
            return;
        }
        self.calls.borrow_mut().insert(id.clone());
        let (connection, id, client) = (self.clone(), id.clone(), client.clone());
        spawn_local(async move {
            match call.answer(&client).await {
                Ok(answer) => connection.outbox.put(&id, answer),
                Err(failure) => connection.outbox.put(&id, Event::failed(&failure)),
            }
            let mut calls = connection.calls.borrow_mut();
            calls.remove(&id);
            if calls.is_empty() {
                connection.is_empty.notify_one();
            }
        });
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

/// The acquisition of a request of a line.
fn acquisition_of(id: &Id, request: Request, client: &Client) -> Result<Acquisition, InvalidInput> {
    let Request { first, also } = request;
    let (name, counts) = (first.name.clone(), first.counts);
    let requests = [first]
        .into_iter()
        .chain(also)
        .map(|One { name, limit, options, .. }| Ok((client.semaphore(&name, limit)?, options)));
    let mut requests = requests.collect::<Result<Vec<_>, InvalidInput>>()?;
    let stage = match (requests.len(), requests.pop()) {
        (1, Some((semaphore, options))) => Stage::Waiting(semaphore.acquire_with(options)),
        (_, last) => {
            let acquire: AcquireAll = client.acquire_all(requests.into_iter().chain(last));
            Stage::Several(Box::new(Several { acquire, shown: None }))
        }
    };
    Ok(Acquisition::new(id.clone(), name, counts, stage))
}
