//! The life of one request, from its line to its last event, in a task of its own.

use std::cell::{Cell, RefCell};
use std::future::{pending, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::time::Duration;

use permits::{Acquire, AcquireError, Lost, PermitSet, PermitStatus, ReleaseError, RenewError, Reply};
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::ending::End;
use super::events::Event;
use super::outbox::Outbox;
use super::request::Id;
use crate::acquire::{NoPermit, RELEASE_TIMEOUT, Requested, UNANSWERED};
use crate::clock::milliseconds;
use crate::exit::{self, Failure};
use crate::report;

/// A request that is not ended.
pub(super) struct Acquisition {
    pub(super) id: Id,
    name: String,
    /// Its grant counts for some time.
    counts: bool,
    stage: RefCell<Stage>,
    /// The end that was asked for.
    end: Cell<Option<End>>,
    /// The units that the grant counts for, if they are corrected.
    count: Cell<Option<u32>>,
    is_renewal_asked: Cell<bool>,
    asked: Notify,
    /// The last event that a later one replaces.
    shown: Cell<Shown>,
}

#[expect(clippy::large_enum_variant, reason = "a box would be one more piece of memory for each id")]
pub(super) enum Stage {
    Waiting(Acquire),
    /// The request of the command line, which also connects.
    Requested(Rc<Requested<'static>>),
    /// Shared with the task.
    Held(Rc<PermitSet>),
    Ending,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    Nothing,
    Position(u64),
    Held,
    Unsure,
}

/// The reason why permits were not released.
enum Fault {
    /// One was lost, of this semaphore if it is known.
    Lost(Option<String>, Lost),
    /// There was none, or the store did not confirm the release.
    Failed(Failure),
}

impl Acquisition {
    /// A request that is sent when its task runs. `counts`: its grant does so for some time.
    pub(super) fn new(id: Id, name: String, counts: bool, stage: Stage) -> Self {
        Self {
            id,
            name,
            counts,
            stage: RefCell::new(stage),
            end: Cell::default(),
            count: Cell::default(),
            is_renewal_asked: Cell::default(),
            asked: Notify::new(),
            shown: Cell::new(Shown::Nothing),
        }
    }

    /// Ends the wait, or releases the permit. A second call has no effect.
    pub(super) fn end(&self, end: End) {
        if self.end.get().is_none() {
            self.end.set(Some(end));
            self.asked.notify_one();
        }
    }

    /// Corrects the units that the grant counts for, with the release. The last call counts.
    ///
    /// # Errors
    /// The reason if it counts for none.
    pub(super) fn count(&self, units: u32) -> Result<(), &'static str> {
        if !self.counts {
            return Err("a count is for a permit that was acquired with at_least");
        }
        self.count.set(Some(units));
        Ok(())
    }

    /// Renews the permit.
    ///
    /// # Errors
    /// The reason if there is none.
    pub(super) fn renew(&self) -> Result<(), &'static str> {
        match &*self.stage.borrow() {
            Stage::Waiting(_) | Stage::Requested(_) => Err("nothing is held yet"),
            Stage::Held(_) => {
                self.is_renewal_asked.set(true);
                self.asked.notify_one();
                Ok(())
            }
            // Its last event is the answer.
            Stage::Ending => Ok(()),
        }
    }

    /// Writes the position or the state of the permit, if it is another one than was written last.
    pub(super) fn show(&self, outbox: &Outbox) {
        match &*self.stage.borrow() {
            Stage::Waiting(acquire) => {
                let Some(position) = acquire.position() else { return };
                if self.shown.replace(Shown::Position(position)) != Shown::Position(position) {
                    self.show_position(&self.name, position, acquire.expected_wait(), outbox);
                }
            }
            Stage::Requested(requested) => {
                if let Some((name, position, expected)) = requested.moved() {
                    self.show_position(&name, position, expected, outbox);
                }
            }
            Stage::Held(held) => {
                let is_unsure = held.permits().iter().any(|permit| permit.status() == PermitStatus::Unsure);
                if is_unsure != (self.shown.get() == Shown::Unsure) {
                    self.show_state(held, is_unsure, outbox);
                }
            }
            Stage::Ending => {}
        }
    }

    fn show_position(&self, name: &str, position: u64, expected: Option<Duration>, outbox: &Outbox) {
        outbox.put(&self.id, Event::Waiting { name, position, expected_ms: expected.map(milliseconds) });
    }

    fn show_state(&self, held: &PermitSet, is_unsure: bool, outbox: &Outbox) {
        let remaining_ms = milliseconds(held.remaining());
        self.shown.set(if is_unsure { Shown::Unsure } else { Shown::Held });
        let event = if is_unsure { Event::Unsure { remaining_ms } } else { Event::Held { remaining_ms } };
        outbox.put(&self.id, event);
    }

    /// Acquires the permits, holds and releases them. Writes the last event when this is ready.
    ///
    /// # Errors
    /// The failure that a process with this request alone ends with.
    pub(super) async fn run(&self, outbox: &Outbox) -> Result<End, Failure> {
        match self.held(outbox).await {
            Ok(end) => {
                outbox.put(&self.id, Event::Released { reason: &end.reason() });
                Ok(end)
            }
            Err(Fault::Failed(failure)) => {
                outbox.put(&self.id, Event::failed(&failure));
                Err(failure)
            }
            Err(Fault::Lost(name, lost)) => {
                let (name, reason) = (name.as_deref(), lost.to_string());
                outbox.put(&self.id, Event::Lost { name, reason: &reason });
                let of = name.map(|name| format!("{name:?}: ")).unwrap_or_default();
                let fields = json!({ "semaphore": name, "reason": reason });
                Err(Failure::new(exit::LOST, of + &reason).with(fields))
            }
        }
    }

    /// The permits from their request to their end.
    async fn held(&self, outbox: &Outbox) -> Result<End, Fault> {
        let held = match self.acquired().await {
            Ok(held) => held,
            Err(NoPermit::Stopped(end)) => return Ok(end),
            Err(NoPermit::Failure(failure)) => return Err(Fault::Failed(failure)),
        };
        self.shown.set(Shown::Held);
        outbox.put(&self.id, Event::granted(held.permits(), &self.name, held.remaining()));
        let held_until = self.hold(&held, outbox).await;
        *self.stage.borrow_mut() = Stage::Ending;
        let held = Rc::into_inner(held).expect("the stage had the only other reference");
        let end = held_until?;
        let counted = held.permits().iter().find(|permit| permit.semaphore() == self.name);
        if let (Some(units), Some(permit)) = (self.count.get(), counted) {
            // Checked by `Acquisition::count`.
            let _ = permit.count(units);
        }
        let name = (held.permits().len() == 1).then(|| self.name.clone());
        let reason = match timeout(RELEASE_TIMEOUT, held.release()).await {
            Ok(Ok(())) => return Ok(end),
            Ok(Err(ReleaseError::Lost(lost))) => return Err(Fault::Lost(name, lost)),
            Ok(Err(error)) => report::with_causes(&error),
            Err(_) => UNANSWERED.to_owned(),
        };
        Err(Fault::Failed(Failure::new(exit::UNAVAILABLE, reason)))
    }

    /// Waits for the permits. If the end is asked for meanwhile, leaves the line.
    async fn acquired(&self) -> Result<Rc<PermitSet>, NoPermit<End>> {
        let requested = match &*self.stage.borrow() {
            Stage::Requested(requested) => Some(requested.clone()),
            _ => None,
        };
        let acquired = match requested {
            Some(requested) => {
                // In a box, because it would enlarge the task of every request.
                let permits = Box::pin(requested.permits(self.end_asked(), pending()));
                permits.await.map(|(_, permits)| permits)
            }
            None => {
                let acquire = poll_fn(|context| match &mut *self.stage.borrow_mut() {
                    Stage::Waiting(acquire) => Pin::new(acquire).poll(context),
                    _ => unreachable!("this ends with the wait"),
                });
                tokio::select! {
                    biased;
                    end = self.end_asked() => Err(NoPermit::Stopped(end)),
                    acquired = acquire => {
                        acquired.map(PermitSet::from).map_err(|error| NoPermit::Failure(refused(error)))
                    }
                }
            }
        };
        let acquired = acquired.map(Rc::new);
        let stage = acquired.as_ref().map_or(Stage::Ending, |held| Stage::Held(held.clone()));
        self.stage.replace(stage);
        acquired
    }

    /// Waits until the end is asked for.
    async fn end_asked(&self) -> End {
        loop {
            if let Some(end) = self.end.get() {
                return end;
            }
            self.asked.notified().await;
        }
    }

    /// Reports the state of the permits until their end is asked for, or one is lost.
    async fn hold(&self, held: &PermitSet, outbox: &Outbox) -> Result<End, Fault> {
        let mut lost = pin!(held.lost());
        let mut renewal: Option<Reply<(), RenewError>> = None;
        loop {
            if let Some(end) = self.end.get() {
                return Ok(end);
            }
            if self.is_renewal_asked.take() && renewal.is_none() {
                renewal = Some(held.renew());
            }
            let renewed = async {
                match &mut renewal {
                    Some(renewal) => renewal.await,
                    None => pending().await,
                }
            };
            tokio::select! {
                biased;
                (permit, lost) = &mut lost => {
                    return Err(Fault::Lost(Some(permit.semaphore().to_owned()), lost));
                }
                () = self.asked.notified() => {}
                renewed = renewed => {
                    renewal = None;
                    self.show_state(held, renewed.is_err(), outbox);
                }
            }
        }
    }
}

/// The failure of a request of a line.
fn refused(error: AcquireError) -> Failure {
    let hint = match &error {
        AcquireError::NoLimit { .. } => ", by \"limit\" or with: permits limit NAME N",
        _ => "",
    };
    let retry_after_ms = error.retry_after().map(milliseconds);
    let failure = Failure::from(error);
    let message = failure.message + hint;
    Failure { message, ..failure }.with(json!({ "retry_after_ms": retry_after_ms }))
}
