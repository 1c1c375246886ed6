//! The way of `run`, `hold` and `acquire` to a permit: connect, wait in line, and on a failure say why.
//!
//! A single permit and the permits of `--also` take the same way: both are acquired as a set.

mod caller;
mod hint;
mod outer;
mod reason;
mod waiting;

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::time::Duration;

use permits::{
    AcquireAll, AcquireAllError, AcquireError, AcquireOptions, Client, InvalidInput, Limit, Lost, Permit,
    PermitSet, Semaphore,
};
use serde::Serialize;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::args::{Also, Common, Request};
use crate::clock::milliseconds;
use crate::connect::Target;
use crate::exit::{self, Failure};
use crate::text::duration;
use crate::{names, report};
pub(crate) use caller::Caller;
pub(crate) use hint::forgotten_name;
pub(crate) use outer::OUTER;
use reason::{Line, Reason};

/// Time for the release: a little longer than the library retries.
pub(crate) const RELEASE_TIMEOUT: Duration = Duration::from_secs(6);

/// Time for leaving the line after a signal or a refusal.
pub(crate) const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);

/// The default store timeout, and its minimum with any `--wait`: connecting takes a while on a slow network.
const STORE_TIMEOUT: Duration = Duration::from_secs(10);
const MIN_STORE_TIMEOUT: Duration = Duration::from_secs(1);

/// The longest recovery whose end a try waits for: the longest that a store has unless `strict` is asked for.
const LONGEST_RECOVERY: Duration = Duration::from_secs(5);

/// The message for a release without a reply.
pub(crate) const UNANSWERED: &str =
    "the store does not answer; what it has of this process ends with the lease";

/// The default lease of a permit that this process renews.
pub(crate) const LEASE: Duration = Duration::from_secs(15);

/// Connects to the store. `label` is for requests that name no label; `request` is the request of the command
/// line.
pub(crate) async fn connect(
    common: &Common,
    label: String,
    request: Option<&Request>,
) -> Result<Client, Failure> {
    let mut target = Target::of(common)?.with_label(label);
    if common.verbose > 0 {
        report::say(format_args!("store {}", target.store));
    }
    target.builder = target.builder.lease(LEASE);
    if let Some(recovery) = request.and_then(|request| request.recovery) {
        target.builder = target.builder.recovery(recovery.into());
    }
    let wait = request.and_then(|request| request.wait);
    let default = wait.map_or(STORE_TIMEOUT, |wait| wait.max(MIN_STORE_TIMEOUT));
    target.connect(common.store_timeout.unwrap_or(default)).await
}

/// A request as the arguments describe it, from its start.
pub(crate) struct Requested<'a> {
    common: Common,
    pub(crate) name: String,
    pub(crate) request: Request,
    also: Vec<Also>,
    caller: Caller<'a>,
    label: String,
    began: Instant,
    /// Set once the store is connected to.
    pending: OnceCell<Pending>,
    /// The position that [`Self::moved`] has returned.
    shown: RefCell<Option<(String, u64)>>,
}

/// An acquisition in progress.
struct Pending {
    client: Client,
    /// The semaphores, the first of NAME.
    semaphores: Vec<Semaphore>,
    /// Borrowed during a poll, and while its position is read.
    acquire: RefCell<AcquireAll>,
}

impl<'a> Requested<'a> {
    /// Begins the wait, which covers connecting. Refuses a semaphore that is named twice, options that
    /// exclude each other, and a label of the environment that is not valid, before a store is asked.
    pub(crate) fn new(
        common: &Common,
        name: &str,
        request: &Request,
        also: &[Also],
        caller: Caller<'a>,
    ) -> Result<Self, Failure> {
        let mut names = BTreeSet::from([name]);
        if let Some(also) = also.iter().find(|also| !names.insert(&also.name)) {
            let semaphore = also.name.clone();
            return Err(Failure::new(exit::USAGE, AcquireAllError::Twice { semaphore }.to_string()));
        }
        let each = also.iter().map(Some).chain([None]);
        for options in each.map(|also| request.options(also)) {
            options.checked().map_err(|error| Failure::new(exit::USAGE, error.to_string()))?;
        }
        let label = caller.label(request.label.as_deref())?;
        Ok(Self {
            common: common.clone(),
            name: name.to_owned(),
            request: request.clone(),
            also: also.to_vec(),
            caller,
            label,
            began: Instant::now(),
            pending: OnceCell::new(),
            shown: RefCell::default(),
        })
    }

    /// Connects, and acquires all permits. `stop` ends the wait; `show` is polled during it. For one call.
    pub(crate) async fn permits<T>(
        &self,
        stop: impl Future<Output = T>,
        show: impl Future<Output = Infallible>,
    ) -> Result<(Client, PermitSet), NoPermit<T>> {
        let mut stop = pin!(stop);
        let connect = connect(&self.common, self.label.clone(), Some(&self.request));
        let client = tokio::select! {
            biased;
            stopped = &mut stop => return Err(NoPermit::Stopped(stopped)),
            client = connect => client.map_err(NoPermit::Failure)?,
        };
        let acquired = {
            let pending = self.begin(client.clone()).map_err(|error| NoPermit::Failure(error.into()))?;
            let acquired = async {
                let permits = self.acquired(pending).await;
                // Another thread wakes this task for a grant, but only the runtime's own poll notices a
                // signal. Yield to that poll, so that a signal which came before the grant is seen first.
                tokio::task::yield_now().await;
                permits
            };
            tokio::select! {
                biased;
                stopped = stop => Err(NoPermit::Stopped(stopped)),
                permits = acquired => permits.map_err(NoPermit::Failure),
                never = show => match never {},
            }
        };
        report::erase_status();
        match acquired {
            Ok(permits) => Ok((client, permits)),
            Err(reason) => {
                close(client, LEAVE_TIMEOUT).await;
                Err(reason)
            }
        }
    }

    /// Begins to acquire. Sends nothing before [`Self::acquired`] is polled.
    fn begin(&self, client: Client) -> Result<&Pending, InvalidInput> {
        let requests = self.requests(&client)?;
        let semaphores = requests.iter().map(|(semaphore, _)| semaphore.clone()).collect();
        let acquire = RefCell::new(client.acquire_all(requests));
        Ok(self.pending.get_or_init(|| Pending { client, semaphores, acquire }))
    }

    /// The semaphores with their options, NAME first.
    fn requests(&self, client: &Client) -> Result<Vec<(Semaphore, AcquireOptions)>, InvalidInput> {
        let request = &self.request;
        let others = self.also.iter().map(|also| (also.name.as_str(), also.limit, Some(also)));
        let all = [(self.name.as_str(), request.limit, None)].into_iter().chain(others);
        all.map(|(name, limit, also)| {
            let limit = match limit {
                Some(limit) if request.require_limit => Limit::Exactly(limit),
                Some(limit) => Limit::Declared(limit),
                None => Limit::Stored,
            };
            let mut options = request.options(also);
            if let Some(wait) = request.wait {
                options = options.timeout(wait.saturating_sub(self.began.elapsed()));
            }
            Ok((client.semaphore(name, limit)?, options))
        })
        .collect()
    }

    /// The failure to report for a refusal: quiet, and with the exit code of `-E`, if others hold the units.
    /// A pause, a closed line or a recovery keeps every host from its work, so a script must not take one of
    /// them for a job that another host does.
    fn refused(&self, failure: Failure) -> Failure {
        if !failure.is_taken {
            return failure;
        }
        Failure { code: self.request.conflict_exit_code, is_quiet: self.request.quiet, ..failure }
    }

    /// Acquires all permits, or waits in line for them. A try that a recovery refuses is made again at its
    /// end.
    async fn acquired(&self, pending: &Pending) -> Result<PermitSet, Failure> {
        let (request, Pending { client, acquire, .. }) = (&self.request, pending);
        let is_try = request.no_wait || request.wait.is_some_and(|wait| wait.is_zero());
        // A holder that reconnects late prolongs the recovery.
        let last_try = Instant::now() + 2 * LONGEST_RECOVERY;
        let acquired = loop {
            let acquired = poll_fn(|context| Pin::new(&mut *acquire.borrow_mut()).poll(context)).await;
            match acquired {
                Err(AcquireAllError::Acquire { source: AcquireError::Recovering { remaining }, .. })
                    if is_try && remaining <= LONGEST_RECOVERY && Instant::now() < last_try =>
                {
                    sleep(remaining).await;
                    let requests = self.requests(client)?;
                    *acquire.borrow_mut() = client.acquire_all(requests);
                }
                acquired => break acquired,
            }
        };
        report::erase_status();
        match acquired {
            Ok(permits) => {
                self.report(&permits);
                Ok(permits)
            }
            Err(error) => Err(self.refused(self.failure(error, pending).await)),
        }
    }

    /// The semaphore in whose line the request waits, its position there, and the time until it is granted,
    /// if it is known. `None` if semaphore and position are the same as at the last call.
    pub(crate) fn moved(&self) -> Option<(String, u64, Option<Duration>)> {
        let Line { semaphore, position, expected, .. } = self.waits_in(self.pending.get()?);
        let now = (semaphore.name().to_owned(), position?);
        let before = self.shown.replace(Some(now.clone()));
        (before.as_ref() != Some(&now)).then_some((now.0, now.1, expected))
    }

    /// The client, once the store is connected to.
    pub(crate) fn client(&self) -> Option<Client> {
        self.pending.get().map(|pending| pending.client.clone())
    }

    fn waits_in(&self, pending: &Pending) -> Line {
        let acquire = pending.acquire.borrow();
        let (position, expected) = (acquire.position(), acquire.expected_wait());
        Line { position, expected, ..self.line_of(acquire.semaphore(), pending) }
    }

    /// The line of the semaphore of this name, or the line of NAME.
    fn line_of(&self, name: Option<&str>, Pending { semaphores, .. }: &Pending) -> Line {
        let Self { request, also, .. } = self;
        let named = semaphores.iter().find(|semaphore| Some(semaphore.name()) == name);
        let semaphore = named.unwrap_or(&semaphores[0]).clone();
        let also = also.iter().find(|also| also.name == semaphore.name());
        let (weight, lane) = also.map_or((request.weight, &request.lane), |also| (also.weight, &also.lane));
        let lane = lane.as_ref().map(|lane| lane.name.clone());
        Line { semaphore, weight, lane, position: None, expected: None }
    }

    /// Shows the wait on standard error for as long as this future is polled, from the connection on.
    pub(crate) async fn show(&self) -> Infallible {
        let pending = self.pending.get().expect("the store is connected to");
        waiting::show(|| self.waits_in(pending), self.common.verbose > 0, self.request.quiet).await
    }

    fn report(&self, permits: &PermitSet) {
        if self.common.verbose > 0 {
            for permit in permits.permits() {
                let (name, holder) = (permit.semaphore(), permit.holder());
                let (token, slot) = (permit.token(), permit.slot());
                report::say_with(
                    format_args!("{name:?} granted to {holder:?}, token {token}, slot {slot}"),
                    json!({ "semaphore": name, "holder": holder, "token": token, "slot": slot }),
                );
            }
        }
    }

    /// The failure for `error`, with the semaphore if there are several.
    async fn failure(&self, error: AcquireAllError, pending: &Pending) -> Failure {
        let Self { name, request, also, caller, .. } = self;
        match error {
            AcquireAllError::Acquire { semaphore, source: AcquireError::NoLimit { .. } } => {
                let how = if semaphore == *name {
                    hint::no_limit(&semaphore, *caller)
                } else {
                    hint::no_limit_of_other(&semaphore)
                };
                let similar = names::similar_to(&pending.client, &semaphore).await;
                let message = format!("semaphore {semaphore:?} has no limit yet: {how}{similar}");
                Failure::new(exit::USAGE, message).with(json!({ "semaphore": semaphore }))
            }
            AcquireAllError::Acquire { semaphore, source } => {
                let failure = refusal(source, request.wait, &self.line_of(Some(&semaphore), pending)).await;
                let message = if also.is_empty() {
                    failure.message
                } else {
                    format!("{semaphore:?}: {}", failure.message)
                };
                Failure { message, ..failure }.with(json!({ "semaphore": semaphore }))
            }
            AcquireAllError::Lost { semaphore, reason } => {
                let message = format!("{semaphore:?}: {reason}, before all were held");
                let fields = json!({ "semaphore": semaphore, "reason": reason.to_string() });
                let (code, message) = match reason {
                    // Nothing was taken away: the wait for the others was too long.
                    Lost::HeldTooLong { .. } => {
                        (exit::NOT_NOW, message + ": it counts from its own grant on")
                    }
                    _ => (exit::LOST, message),
                };
                Failure::new(code, message).with(fields)
            }
            error => Failure::new(exit::USAGE, report::with_causes(&error)),
        }
    }
}

/// The reason why no permit was acquired.
pub(crate) enum NoPermit<T> {
    /// The wait was stopped.
    Stopped(T),
    Failure(Failure),
}

/// A permit in JSON. Programs depend on it: fields may be added, never changed.
#[derive(Serialize)]
pub(crate) struct PermitJson {
    name: String,
    holder: String,
    weight: u32,
    token: u64,
    slot: u32,
}

impl PermitJson {
    pub(crate) fn new(permit: &Permit) -> Self {
        Self {
            name: permit.semaphore().to_owned(),
            holder: permit.holder().to_owned(),
            weight: permit.weight(),
            token: permit.token(),
            slot: permit.slot(),
        }
    }
}

/// The failure for the error of one semaphore. A refusal gets the reason why no permit is free, which need
/// not be other holders.
async fn refusal(error: AcquireError, wait: Option<Duration>, line: &Line) -> Failure {
    let refused = match (&error, wait) {
        (AcquireError::Recovering { remaining }, _) => {
            let fields = json!({ "reason": error.to_string(), "recovering_ms": milliseconds(*remaining) });
            let message = format!("no permit now: {error}");
            return Failure { message, ..Failure::from(error) }.with(fields);
        }
        (AcquireError::TimedOut { .. }, Some(wait)) => format!("no permit within {wait:?}"),
        (AcquireError::NoPermits | AcquireError::Cooling { .. } | AcquireError::Paused { .. }, wait) => {
            match wait.filter(|wait| !wait.is_zero()) {
                // The store was reached when the time was nearly over.
                Some(wait) => format!("no permit within {wait:?}"),
                None => "no permit now".to_owned(),
            }
        }
        (AcquireError::AlreadyHeld { holder }, _) => {
            let lease = reason::lease_of(line, holder).await;
            let failure = Failure::from(error);
            // If the holder has died, this is the time until its name is free.
            return match lease {
                None => failure,
                Some(left) => {
                    let message = format!(
                        "{}; its lease ends in {} unless it is renewed",
                        failure.message,
                        duration(left)
                    );
                    Failure { message, ..failure }.with(json!({ "lease_remaining_ms": milliseconds(left) }))
                }
            };
        }
        _ => return Failure::from(error),
    };
    let timed_out = matches!(error, AcquireError::TimedOut { .. });
    let reason = match &error {
        AcquireError::TimedOut { inspection: Some(seen), .. }
            if outer::tokens(line.semaphore.name()).is_empty() =>
        {
            Ok(Reason::of(seen, false, usize::MAX))
        }
        _ => Reason::inspect(line, usize::MAX).await,
    };
    let failure = Failure::from(error);
    match reason {
        Ok(Reason { text, fields, stands_still, .. }) => {
            let message = format!("{refused}: {text}, {} waiting", fields["waiting"]);
            let stands_still = timed_out && stands_still;
            let is_taken = failure.is_taken && !stands_still;
            let failure = Failure { message, is_taken, ..failure }.with(fields);
            if stands_still { failure.with(json!({ "stands_still": true })) } else { failure }
        }
        // Others may hold the units or not: the store does not answer.
        Err(Reason { text, .. }) if timed_out => {
            let message = format!("{refused}: {text}");
            Failure { code: exit::UNAVAILABLE, message, is_taken: false, ..failure }
        }
        Err(_) => Failure { message: refused, ..failure },
    }
}

/// Closes the client within `timeout`.
pub(crate) async fn close(client: Client, timeout: Duration) {
    match tokio::time::timeout(timeout, client.close()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => report::say(report::with_causes(&error)),
        Err(_) => report::say(UNANSWERED),
    }
}
