//! `permits` behind the trait of the recipes, through its public API alone.
//!
//! The clock of a role has no effect, because `permits` sends no time of a client.

use std::time::Duration;

use permits::{AcquireError, Recovery};
use permits_bench::Failure;

use super::{Client, Doing, Semaphore};

/// Connects without a recovery window: with one, a server that was started for the experiment would grant
/// nothing for its first second.
pub(super) async fn connect(semaphore: &Semaphore, url: &str) -> Result<permits::Client, Failure> {
    let client = permits::Client::builder(url).lease(semaphore.lease).recovery(Recovery::Off);
    Ok(client.connect().await?)
}

pub(super) struct PermitsClient {
    semaphore: permits::Semaphore,
    permit: Option<permits::Permit>,
}

impl PermitsClient {
    pub(super) fn new(client: &permits::Client, semaphore: &Semaphore) -> Self {
        let keep = if semaphore.keeps { Duration::MAX } else { Duration::ZERO };
        let of_client = client.semaphore(&semaphore.name, semaphore.limit).expect("valid");
        Self { semaphore: of_client.keep(keep), permit: None }
    }
}

impl Client for PermitsClient {
    fn try_acquire(&mut self) -> Doing<'_, bool> {
        Box::pin(async move {
            match self.semaphore.try_acquire().await {
                Ok(permit) => self.permit = Some(permit),
                Err(AcquireError::NoPermits) => {}
                Err(error) => Err(error)?,
            }
            Ok(self.permit.is_some())
        })
    }

    fn acquire(&mut self) -> Doing<'_, ()> {
        Box::pin(async move {
            self.permit = Some(self.semaphore.acquire().await?);
            Ok(())
        })
    }

    fn release(&mut self) -> Doing<'_, ()> {
        Box::pin(async move {
            let Some(permit) = self.permit.take() else { return Ok(()) };
            Ok(permit.release().await?)
        })
    }

    fn refresh(&mut self) -> Doing<'_, Option<bool>> {
        Box::pin(async move { Ok(Some(self.permit.as_ref().is_some_and(permits::Permit::is_held))) })
    }

    fn slot(&self) -> Option<u32> {
        self.permit.as_ref().map(permits::Permit::slot)
    }
}
