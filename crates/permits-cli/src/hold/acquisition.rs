//! The life of one request, from its line to its last event, in a task of its own.

use std::cell::{Cell, RefCell};
use std::future::{pending, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::time::Duration;

use permits::error::AdoptError;
use permits::{
    Acquire, AcquireAll, AcquireAllError, AcquireError, Lost, Permit, PermitHandle, PermitSet, PermitStatus,
    ReleaseError, RenewError, Reply,
};
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::ending::End;
use super::events::Event;
use super::outbox::Outbox;
use super::request::{Id, Operation};
use crate::acquire::{NoPermit, RELEASE_TIMEOUT, Requested, UNANSWERED};
use crate::clock::milliseconds;
use crate::exit::{self, Failure};
use crate::report;

/// The end of the message for a semaphore without a limit.
pub(crate) const NO_LIMIT: &str = ", by \"limit\" or with: permits limit NAME N";

/// A request that is not ended.
pub(super) struct Acquisition {
    pub(super) id: Id,
    name: String,
    /// True if the request has `at_least`.
    counts: bool,
    stage: RefCell<Stage>,
    /// The end that was asked for.
    end: Cell<Option<End>>,
    /// What a `count` corrected the units to before the permit was granted. The permit is told when it is.
    count: Cell<Option<u32>>,
    /// The operation that the task has to do on the permit, and the number of the line that asked for it.
    operation: Cell<Option<(Operation, u64)>>,
    /// The operation that the task does now.
    operating: Cell<Option<Operation>>,
    asked: Notify,
    /// The last event that a later one replaces.
    shown: Cell<Shown>,
}

#[expect(clippy::large_enum_variant, reason = "a box would be one more piece of memory for each id")]
pub(super) enum Stage {
    Waiting(Acquire),
    /// The request waits for permits of several semaphores, all or none.
    Several(Box<Several>),
    Adopting(Reply<Permit, AdoptError>),
    /// The request of the command line, which also connects.
    Requested(Rc<Requested<'static>>),
    /// Shared with the task.
    Held(Rc<PermitSet>),
    Ending,
}

/// Permits of several semaphores that are being acquired.
pub(super) struct Several {
    pub(super) acquire: AcquireAll,
    /// The line and the position that were written last.
    pub(super) shown: Option<(String, u64)>,
}

impl Several {
    /// The line that it waits in, and its position there, if they are others than were written last.
    fn moved(&mut self) -> Option<(String, u64, Option<Duration>)> {
        let now = (self.acquire.semaphore()?.to_owned(), self.acquire.position()?);
        let before = self.shown.replace(now.clone());
        (before.as_ref() != Some(&now)).then(|| (now.0, now.1, self.acquire.expected_wait()))
    }
}

/// The end of a request that has not failed.
enum Done {
    Ended(End),
    HandedOver(PermitHandle),
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
    /// A permit was lost, of this semaphore if it is known.
    Lost(Option<String>, Lost),
    /// The request got no permit, or the store did not confirm the release.
    Failed(Failure),
}

impl Acquisition {
    /// A request that is sent when its task runs. `counts` is true if it asks for `at_least`: then its grant
    /// counts for that time, even if the permit is released earlier.
    pub(super) fn new(id: Id, name: String, counts: bool, stage: Stage) -> Self {
        Self {
            id,
            name,
            counts,
            stage: RefCell::new(stage),
            end: Cell::default(),
            count: Cell::default(),
            operation: Cell::default(),
            operating: Cell::default(),
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
        let counts = match &*self.stage.borrow() {
            Stage::Held(held) => self.own(held).count(units).is_ok(),
            _ => self.counts,
        };
        if !counts {
            return Err("a count is for a permit that was acquired with at_least");
        }
        self.count.set(Some(units));
        Ok(())
    }

    /// The permit of the semaphore that the request names first.
    fn own<'a>(&self, held: &'a PermitSet) -> &'a Permit {
        held.get(&self.name).unwrap_or(&held.permits()[0])
    }

    /// Does something to the permit. If a renewal is asked for while another one is on its way, both have one
    /// answer.
    ///
    /// # Errors
    /// The reason if there is no permit, or the answer to the last operation is missing.
    pub(super) fn operate(&self, operation: Operation, line: u64) -> Result<(), &'static str> {
        match &*self.stage.borrow() {
            Stage::Held(_) => {
                match self.operation.get().map(|(asked, _)| asked).or(self.operating.get()) {
                    Some(Operation::Renew) if operation == Operation::Renew => return Ok(()),
                    // Another operation renews only the first permit of several, and has its own answer.
                    Some(_) => return Err("the last operation is not answered yet: wait for its answer"),
                    None => {}
                }
                self.operation.set(Some((operation, line)));
                self.asked.notify_one();
                Ok(())
            }
            // The last event of the acquisition is the answer.
            Stage::Ending => Ok(()),
            _ => Err("nothing is held yet"),
        }
    }

    /// Hands the permit over. The handle is in the last event.
    ///
    /// # Errors
    /// The reason if there is no permit, or there are several.
    pub(super) fn hand_over(&self) -> Result<(), &'static str> {
        match &*self.stage.borrow() {
            Stage::Held(held) if held.permits().len() > 1 => {
                return Err("permits of several semaphores cannot be handed over");
            }
            Stage::Held(_) | Stage::Ending => {}
            _ => return Err("nothing is held yet"),
        }
        self.end(End::HandOver);
        Ok(())
    }

    /// Writes the position or the state of the permit, if it is another one than was written last.
    pub(super) fn show(&self, outbox: &Outbox) {
        match &mut *self.stage.borrow_mut() {
            Stage::Several(several) => {
                if let Some((name, position, expected)) = several.moved() {
                    self.show_position(&name, position, expected, outbox);
                }
            }
            Stage::Waiting(acquire) => {
                let Some(position) = acquire.position() else { return };
                if self.shown.replace(Shown::Position(position)) != Shown::Position(position) {
                    self.show_position(&self.name, position, acquire.expected_wait(), outbox);
                }
            }
            Stage::Ending | Stage::Adopting(_) => {}
            Stage::Requested(requested) => {
                if let Some((name, position, expected)) = requested.moved() {
                    self.show_position(&name, position, expected, outbox);
                }
            }
            Stage::Held(held) => {
                let is_unsure = held.permits().iter().any(|permit| permit.status() == PermitStatus::Unsure);
                if is_unsure != (self.shown.get() == Shown::Unsure) {
                    self.show_state(held, is_unsure, None, outbox);
                }
            }
        }
    }

    fn show_position(&self, name: &str, position: u64, expected: Option<Duration>, outbox: &Outbox) {
        outbox.put(&self.id, Event::Waiting { name, position, expected_ms: expected.map(milliseconds) });
    }

    fn show_state(&self, held: &PermitSet, is_unsure: bool, answers: Option<&'static str>, outbox: &Outbox) {
        let remaining_ms = milliseconds(held.remaining());
        self.shown.set(if is_unsure { Shown::Unsure } else { Shown::Held });
        outbox.put(
            &self.id,
            match is_unsure {
                true => Event::Unsure { remaining_ms, answers },
                false => Event::Held { remaining_ms, answers },
            },
        );
    }

    /// Acquires the permits, holds and releases them. Writes the last event when this is ready.
    ///
    /// # Errors
    /// The failure that a process with this request alone ends with.
    pub(super) async fn run(&self, outbox: &Outbox) -> Result<End, Failure> {
        match self.held(outbox).await {
            Ok(Done::Ended(end)) => {
                outbox.put(&self.id, Event::Released { reason: &end.reason() });
                Ok(end)
            }
            Ok(Done::HandedOver(handle)) => {
                outbox.put(&self.id, Event::HandedOver { handle: handle.to_string() });
                Ok(End::Asked)
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
    async fn held(&self, outbox: &Outbox) -> Result<Done, Fault> {
        let held = match self.acquired().await {
            Ok(held) => held,
            Err(NoPermit::Stopped(end)) => return Ok(Done::Ended(end)),
            Err(NoPermit::Failure(failure)) => return Err(Fault::Failed(failure)),
        };
        if let Some(units) = self.count.get() {
            // Checked by `Acquisition::count`.
            let _ = self.own(&held).count(units);
        }
        self.shown.set(Shown::Held);
        outbox.put(&self.id, Event::granted(held.permits(), &self.name, held.remaining()));
        let held_until = self.hold(&held, outbox).await;
        *self.stage.borrow_mut() = Stage::Ending;
        let held = Rc::into_inner(held).expect("the stage had the only other reference");
        let end = held_until?;
        if let End::HandOver = end {
            return self.handed_over(held).await;
        }
        let name = (held.permits().len() == 1).then(|| self.name.clone());
        let reason = match timeout(RELEASE_TIMEOUT, held.release()).await {
            Ok(Ok(())) => return Ok(Done::Ended(end)),
            Ok(Err(ReleaseError::Lost(lost))) => return Err(Fault::Lost(name, lost)),
            Ok(Err(error)) => report::with_causes(&error),
            Err(_) => UNANSWERED.to_owned(),
        };
        Err(Fault::Failed(Failure::new(exit::UNAVAILABLE, reason)))
    }

    /// Hands the only permit over. If the store does not confirm that, it is released.
    async fn handed_over(&self, held: PermitSet) -> Result<Done, Fault> {
        let permit = held.into_permits().pop().expect("there is one");
        let reason = match timeout(RELEASE_TIMEOUT, permit.hand_over()).await {
            Ok(Ok(handle)) => return Ok(Done::HandedOver(handle)),
            Ok(Err(RenewError::Lost(lost))) => return Err(Fault::Lost(Some(self.name.clone()), lost)),
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
                // The future is in a box, because it would enlarge the task of every request.
                let permits = Box::pin(requested.permits(self.end_asked(), pending()));
                permits.await.map(|(_, permits)| permits)
            }
            None => {
                let acquire = poll_fn(|context| match &mut *self.stage.borrow_mut() {
                    Stage::Waiting(acquire) => {
                        Pin::new(acquire).poll(context).map(|one| one.map(PermitSet::from).map_err(refused))
                    }
                    Stage::Several(several) => {
                        Pin::new(&mut several.acquire).poll(context).map(|all| all.map_err(all_refused))
                    }
                    Stage::Adopting(adopt) => {
                        Pin::new(adopt).poll(context).map(|one| one.map(PermitSet::from).map_err(not_adopted))
                    }
                    _ => unreachable!("this ends with the wait"),
                });
                tokio::select! {
                    biased;
                    end = self.end_asked() => Err(NoPermit::Stopped(end)),
                    acquired = acquire => acquired.map_err(NoPermit::Failure),
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
        let mut running: Option<(Operation, u64, Reply<(), RenewError>)> = None;
        loop {
            if let Some(end) = self.end.get() {
                // What was asked for before a hand-over is done first, for the permit that is handed over.
                if let (End::HandOver, Some((operation, line))) = (end, self.operation.take())
                    && let Ok(Err(RenewError::Invalid(invalid))) =
                        timeout(RELEASE_TIMEOUT, self.begun(held, operation)).await
                {
                    outbox.put(&self.id, Event::Invalid { line, reason: &invalid.to_string() });
                }
                return Ok(end);
            }
            if running.is_none()
                && let Some((operation, line)) = self.operation.take()
            {
                running = Some((operation, line, self.begun(held, operation)));
            }
            self.operating.set(running.as_ref().map(|(operation, ..)| *operation));
            let operated = async {
                match &mut running {
                    Some((operation, line, reply)) => (*operation, *line, reply.await),
                    None => pending().await,
                }
            };
            tokio::select! {
                biased;
                (permit, lost) = &mut lost => {
                    return Err(Fault::Lost(Some(permit.semaphore().to_owned()), lost));
                }
                () = self.asked.notified() => {}
                (operation, line, result) = operated => {
                    running = None;
                    self.operating.set(None);
                    if let Err(RenewError::Invalid(invalid)) = &result {
                        outbox.put(&self.id, Event::Invalid { line, reason: &invalid.to_string() });
                    } else {
                        self.show_state(held, result.is_err(), Some(operation.kind()), outbox);
                    }
                }
            }
        }
    }

    /// Begins an operation. A renewal is for all permits, any other operation for the request's own permit.
    fn begun(&self, held: &PermitSet, operation: Operation) -> Reply<(), RenewError> {
        let permit = self.own(held);
        match operation {
            Operation::Renew => held.renew(),
            Operation::ReleasePart(units) => permit.release_part(units),
            Operation::SetLease(lease) => permit.set_lease(lease),
        }
    }
}

/// The failure of a request of a line.
fn refused(error: AcquireError) -> Failure {
    let hint = match &error {
        AcquireError::NoLimit { .. } => NO_LIMIT,
        _ => "",
    };
    let inspection = match &error {
        AcquireError::TimedOut { inspection: Some(inspection), .. } => json!({ "inspection": inspection }),
        _ => json!({}),
    };
    let failure = Failure::from(error);
    let message = failure.message + hint;
    Failure { message, ..failure }.with(inspection)
}

/// The failure of a request for several permits.
fn all_refused(error: AcquireAllError) -> Failure {
    let (failure, semaphore) = match error {
        AcquireAllError::Acquire { semaphore, source } => (refused(source), semaphore),
        AcquireAllError::Lost { semaphore, reason } => {
            // A longest hold ends because the wait for the others was too long. Nothing was taken away.
            let code = if matches!(reason, Lost::HeldTooLong { .. }) { exit::NOT_NOW } else { exit::LOST };
            (Failure::new(code, format!("{reason}, before all were held")), semaphore)
        }
        error => return Failure::new(exit::USAGE, report::with_causes(&error)),
    };
    let message = format!("{semaphore:?}: {}", failure.message);
    Failure { message, ..failure }
}

/// The failure of a handle that gives no permit.
fn not_adopted(error: AdoptError) -> Failure {
    let code = match error {
        AdoptError::Gone => exit::LOST,
        AdoptError::Invalid(_) => exit::USAGE,
        _ => exit::UNAVAILABLE,
    };
    Failure::new(code, report::with_causes(&error))
}
