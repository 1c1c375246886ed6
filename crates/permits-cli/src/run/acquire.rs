//! The acquisition of `permits run`: one permit, or those of `--also` with it. Always as a set, so that there is one way.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::future::{Future as _, poll_fn};
use std::pin::Pin;
use std::time::Duration;

use permits::{
    AcquireAllError, AcquireError, AcquireOptions, Client, InvalidInput, Limit, PermitSet, Semaphore,
};
use rustix::process::Signal;

use super::signals::Signals;
use super::waiting::{self, Line};
use crate::args::Run;
use crate::exit::{self, Failure};
use crate::report;

/// The reason why no permit was acquired.
pub(super) enum NoPermit {
    Signal(Signal),
    Failure(Failure),
}

/// Refuses a semaphore that is named twice, before a store is asked.
pub(super) fn check_names(options: &Run) -> Result<(), Failure> {
    let mut names = BTreeSet::from([options.name.as_str()]);
    match options.also.iter().find(|also| !names.insert(&also.name)) {
        Some(also) => {
            let semaphore = also.name.clone();
            Err(Failure::new(exit::USAGE, AcquireAllError::Twice { semaphore }.to_string()))
        }
        None => Ok(()),
    }
}

/// Acquires all permits, or waits in line for them.
pub(super) async fn all(
    client: &Client,
    options: &Run,
    wait: Option<Duration>,
    verbose: u8,
    signals: &mut Signals,
) -> Result<PermitSet, NoPermit> {
    let requests = requests(client, options, wait).map_err(|invalid| NoPermit::Failure(invalid.into()))?;
    let semaphore_of = |name: Option<&str>| {
        let named = requests.iter().map(|(semaphore, _)| semaphore).find(|it| Some(it.name()) == name);
        named.unwrap_or(&requests[0].0).clone()
    };
    let mut acquire = client.acquire_all(requests.clone());
    let waits_in = |acquire: &permits::AcquireAll| Line {
        semaphore: semaphore_of(acquire.semaphore()),
        position: acquire.position(),
    };
    let line = RefCell::new(waits_in(&acquire));
    let acquire = poll_fn(|context| {
        let polled = Pin::new(&mut acquire).poll(context);
        if polled.is_pending() {
            line.replace(waits_in(&acquire));
        }
        polled
    });
    let acquired = tokio::select! {
        biased;
        signal = signals.next_ending() => Err(NoPermit::Signal(signal)),
        acquired = acquire => match acquired {
            Ok(permits) => Ok(permits),
            Err(error) => Err(NoPermit::Failure(failure(error, options, semaphore_of).await)),
        },
        never = waiting::show(|| line.borrow().clone(), verbose > 0) => match never {},
    };
    report::erase_status();
    let permits = acquired?;
    if verbose > 0 {
        for permit in permits.permits() {
            let (name, holder) = (permit.semaphore(), permit.holder());
            let (token, slot) = (permit.token(), permit.slot());
            report::say(format_args!("{name:?} granted to {holder:?}, token {token}, slot {slot}"));
        }
    }
    Ok(permits)
}

/// The semaphores with their options, that of NAME first.
fn requests(
    client: &Client,
    options: &Run,
    wait: Option<Duration>,
) -> Result<Vec<(Semaphore, AcquireOptions)>, InvalidInput> {
    let mut request = AcquireOptions::new();
    if options.no_wait {
        request = request.no_wait();
    } else if let Some(wait) = wait {
        request = request.timeout(wait);
    }
    if let Some(holder) = &options.holder {
        request = request.holder(holder);
    }
    if let Some(label) = &options.label {
        request = request.label(label);
    }
    let also = options.also.iter().map(|also| (&also.name, also.limit, also.weight));
    let all = [(&options.name, options.limit, options.weight)].into_iter().chain(also);
    let at_least = |name: &str| if name == options.name { options.at_least } else { Duration::ZERO };
    all.map(|(name, limit, weight)| {
        let limit = match limit {
            Some(limit) if options.require_limit => Limit::Exactly(limit),
            Some(limit) => Limit::Declared(limit),
            None => Limit::Stored,
        };
        Ok((client.semaphore(name, limit)?, request.clone().weight(weight).at_least(at_least(name))))
    })
    .collect()
}

/// The failure for `error`, with the semaphore if there are several.
async fn failure(
    error: AcquireAllError,
    options: &Run,
    semaphore_of: impl Fn(Option<&str>) -> Semaphore,
) -> Failure {
    let several = !options.also.is_empty();
    match error {
        AcquireAllError::Acquire { semaphore, source: AcquireError::NoLimit { .. } }
            if semaphore != options.name =>
        {
            let how = "give one with --also NAME=LIMIT, or set one with: permits limit NAME N";
            Failure::new(exit::USAGE, format!("semaphore {semaphore:?} has no limit yet: {how}"))
        }
        AcquireAllError::Acquire { semaphore, source } => {
            let failure = refusal(source, options.wait, &semaphore_of(Some(&semaphore))).await;
            let message =
                if several { format!("{semaphore:?}: {}", failure.message) } else { failure.message };
            Failure::new(failure.code, message)
        }
        AcquireAllError::Lost { semaphore, reason } => {
            Failure::new(exit::LOST, format!("{semaphore:?}: {reason}, before the command ran"))
        }
        error => Failure::new(exit::USAGE, report::with_causes(&error)),
    }
}

/// The failure for the error of one semaphore. A refusal gets the reason why no permit is free, which need not be other holders.
async fn refusal(error: AcquireError, wait: Option<Duration>, semaphore: &Semaphore) -> Failure {
    let refused = match (&error, wait) {
        (AcquireError::Recovering { remaining }, _) => {
            let message = format!("no permit now: {}", waiting::recovery_reason(*remaining));
            return Failure::new(exit::NOT_NOW, message);
        }
        (AcquireError::TimedOut { .. }, Some(wait)) => format!("no permit within {wait:?}"),
        // The store was reached when the time was nearly over.
        (AcquireError::NoPermits, Some(wait)) if !wait.is_zero() => format!("no permit within {wait:?}"),
        (AcquireError::NoPermits, _) => "no permit now".to_owned(),
        _ => return Failure::from(error),
    };
    let message = match waiting::blocking_reason(semaphore).await {
        Some(reason) => format!("{refused}: {reason}"),
        None => refused,
    };
    Failure::new(exit::NOT_NOW, message)
}
