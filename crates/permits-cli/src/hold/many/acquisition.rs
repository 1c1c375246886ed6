//! The life of one request, from its line to its last event, in a task of its own.

use std::cell::{Cell, RefCell};
use std::future::{pending, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;

use permits::{Acquire, AcquireError, Lost, Permit, PermitStatus, ReleaseError, RenewError, Reply};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::super::ending::End;
use super::super::events::Event;
use super::outbox::Outbox;
use super::request::Id;
use crate::acquire::{PermitJson, RELEASE_TIMEOUT, UNANSWERED};
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
    /// The end that was asked for, and the units that the grant counts for, if they are corrected.
    end: Cell<Option<(End, Option<u32>)>>,
    is_renewal_asked: Cell<bool>,
    asked: Notify,
    /// The last event that a later one replaces.
    shown: Cell<Shown>,
}

#[expect(clippy::large_enum_variant, reason = "a box would be one more piece of memory for each id")]
enum Stage {
    Waiting(Acquire),
    /// Shared with the task.
    Held(Rc<Permit>),
    Ending,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    Nothing,
    Position(u64),
    Held,
    Unsure,
}

/// An end without a permit.
enum NotHeld {
    Ended(End),
    Refused(AcquireError),
}

impl Acquisition {
    /// A request that is sent when its task runs.
    pub(super) fn new(id: Id, name: String, counts: bool, acquire: Acquire) -> Self {
        Self {
            id,
            name,
            counts,
            stage: RefCell::new(Stage::Waiting(acquire)),
            end: Cell::default(),
            is_renewal_asked: Cell::default(),
            asked: Notify::new(),
            shown: Cell::new(Shown::Nothing),
        }
    }

    /// Ends the wait, or releases the permit. A second call has no effect.
    pub(super) fn end(&self, end: End) {
        self.end_with(end, None);
    }

    /// Releases the permit on the program's wish.
    ///
    /// # Errors
    /// The reason if there are no units to correct.
    pub(super) fn release(&self, count: Option<u32>) -> Result<(), &'static str> {
        if count.is_some() && !self.counts {
            return Err("\"count\" is for a permit that was acquired with \"at_least_ms\"");
        }
        self.end_with(End::Released, count);
        Ok(())
    }

    fn end_with(&self, end: End, count: Option<u32>) {
        if self.end.get().is_none() {
            self.end.set(Some((end, count)));
            self.asked.notify_one();
        }
    }

    /// Renews the permit.
    ///
    /// # Errors
    /// The reason if there is none.
    pub(super) fn renew(&self) -> Result<(), &'static str> {
        match &*self.stage.borrow() {
            Stage::Waiting(_) => Err("nothing is held yet"),
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
                    let expected_ms = acquire.expected_wait().map(milliseconds);
                    outbox.put(&self.id, Event::Waiting { name: &self.name, position, expected_ms });
                }
            }
            Stage::Held(permit) => {
                let is_unsure = permit.status() == PermitStatus::Unsure;
                if is_unsure != (self.shown.get() == Shown::Unsure) {
                    self.show_state(permit, is_unsure, outbox);
                }
            }
            Stage::Ending => {}
        }
    }

    fn show_state(&self, permit: &Permit, is_unsure: bool, outbox: &Outbox) {
        let remaining_ms = milliseconds(permit.remaining());
        self.shown.set(if is_unsure { Shown::Unsure } else { Shown::Held });
        let event = if is_unsure { Event::Unsure { remaining_ms } } else { Event::Held { remaining_ms } };
        outbox.put(&self.id, event);
    }

    /// Acquires a permit, holds it and releases it. Writes the last event when this is ready.
    pub(super) async fn run(&self, outbox: &Outbox) {
        let permit = match self.acquired().await {
            Ok(permit) => permit,
            Err(NotHeld::Ended(end)) => {
                return outbox.put(&self.id, Event::Released { reason: &end.reason() });
            }
            Err(NotHeld::Refused(error)) => return self.fail(error, outbox),
        };
        self.shown.set(Shown::Held);
        outbox.put(
            &self.id,
            Event::Granted {
                permit: PermitJson::new(&permit),
                remaining_ms: milliseconds(permit.remaining()),
                also: Vec::new(),
            },
        );
        let kept = self.keep(&permit, outbox).await;
        *self.stage.borrow_mut() = Stage::Ending;
        let permit = Rc::into_inner(permit).expect("the stage had the only other reference");
        let released = match kept {
            Ok((end, count)) => release(permit, count).await.map(|()| end),
            Err(lost) => Err(Unreleased::Lost(lost)),
        };
        match released {
            Ok(end) => outbox.put(&self.id, Event::Released { reason: &end.reason() }),
            Err(Unreleased::Lost(lost)) => {
                outbox.put(&self.id, Event::Lost { name: Some(&self.name), reason: &lost.to_string() });
            }
            Err(Unreleased::Unconfirmed(reason)) => {
                let exit_code = exit::UNAVAILABLE;
                outbox.put(&self.id, Event::Failed { exit_code, reason: &reason, retry_after_ms: None });
            }
        }
    }

    /// Waits for the permit. If the end is asked for meanwhile, leaves the line.
    async fn acquired(&self) -> Result<Rc<Permit>, NotHeld> {
        let acquire = poll_fn(|context| match &mut *self.stage.borrow_mut() {
            Stage::Waiting(acquire) => Pin::new(acquire).poll(context),
            Stage::Held(_) | Stage::Ending => unreachable!("this ends with the wait"),
        });
        let acquired = tokio::select! {
            biased;
            (end, _) = self.end_asked() => Err(NotHeld::Ended(end)),
            acquired = acquire => acquired.map(Rc::new).map_err(NotHeld::Refused),
        };
        let stage = acquired.as_ref().map_or(Stage::Ending, |permit| Stage::Held(permit.clone()));
        self.stage.replace(stage);
        acquired
    }

    /// Waits until the end is asked for.
    async fn end_asked(&self) -> (End, Option<u32>) {
        loop {
            if let Some(end) = self.end.get() {
                return end;
            }
            self.asked.notified().await;
        }
    }

    /// Reports the state of the permit until its end is asked for, or it is lost.
    async fn keep(&self, permit: &Permit, outbox: &Outbox) -> Result<(End, Option<u32>), Lost> {
        let mut lost = pin!(permit.lost());
        let mut renewal: Option<Reply<(), RenewError>> = None;
        loop {
            if let Some(end) = self.end.get() {
                return Ok(end);
            }
            if self.is_renewal_asked.take() && renewal.is_none() {
                renewal = Some(permit.renew());
            }
            let renewed = async {
                match &mut renewal {
                    Some(renewal) => renewal.await,
                    None => pending().await,
                }
            };
            tokio::select! {
                biased;
                lost = &mut lost => return Err(lost),
                () = self.asked.notified() => {}
                renewed = renewed => {
                    renewal = None;
                    self.show_state(permit, renewed.is_err(), outbox);
                }
            }
        }
    }

    fn fail(&self, error: AcquireError, outbox: &Outbox) {
        let retry_after_ms = error.retry_after().map(milliseconds);
        let hint = match &error {
            AcquireError::NoLimit { .. } => ", by \"limit\" or with: permits limit NAME N",
            _ => "",
        };
        let Failure { code: exit_code, message, .. } = Failure::from(error);
        let reason = message + hint;
        outbox.put(&self.id, Event::Failed { exit_code, reason: &reason, retry_after_ms });
    }
}

/// The reason why a permit was not released.
enum Unreleased {
    Lost(Lost),
    /// The store did not confirm it.
    Unconfirmed(String),
}

impl From<ReleaseError> for Unreleased {
    fn from(error: ReleaseError) -> Self {
        match error {
            ReleaseError::Lost(lost) => Self::Lost(lost),
            error => Self::Unconfirmed(report::with_causes(&error)),
        }
    }
}

async fn release(permit: Permit, count: Option<u32>) -> Result<(), Unreleased> {
    if let Some(units) = count {
        // Checked by `Acquisition::release`.
        let _ = permit.count(units);
    }
    match timeout(RELEASE_TIMEOUT, permit.release()).await {
        Ok(released) => Ok(released?),
        Err(_) => Err(Unreleased::Unconfirmed(UNANSWERED.to_owned())),
    }
}
