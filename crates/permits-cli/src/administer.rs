//! `permits limit`, `pause`, `resume` and `revoke`: what an operator changes.
//!
//! Each can be repeated: asked for what is so already, it is done. Each says in one line on standard output what
//! has come of it, as the store then had it.

use permits::{Inspection, Semaphore};

use crate::args::{Limit, One, Revoke};
use crate::connect;
use crate::exit::{self, Failure};
use crate::status::usage;

/// Sets and pins the limit, or unpins it.
pub(crate) async fn limit(url: Option<&str>, options: &Limit) -> Result<u8, Failure> {
    let semaphore = open(url, &options.name).await?;
    match options.limit {
        Some(limit) => semaphore.set_limit(limit).await?,
        // The parser wants one of both.
        None => semaphore.unpin().await?,
    };
    confirm(&semaphore, |Inspection { limit, limit_version, pinned, .. }| {
        let limit = limit.map_or_else(|| "no limit is set".to_owned(), |limit| format!("limit {limit}"));
        let pinned = if *pinned { "pinned" } else { "not pinned" };
        format!("{limit}, {pinned} (version {limit_version})")
    })
    .await
}

/// Stops granting.
pub(crate) async fn pause(url: Option<&str>, options: &One) -> Result<u8, Failure> {
    let semaphore = open(url, &options.name).await?;
    semaphore.pause().await?;
    confirm(&semaphore, |inspection| format!("paused, {}", usage(inspection))).await
}

/// Grants again.
pub(crate) async fn resume(url: Option<&str>, options: &One) -> Result<u8, Failure> {
    let semaphore = open(url, &options.name).await?;
    semaphore.resume().await?;
    confirm(&semaphore, |inspection| format!("resumed, {}", usage(inspection))).await
}

/// Takes a permit or a place in line away. A script that misspelt the holder must learn it, so it is not enough
/// that nobody of that name has anything.
pub(crate) async fn revoke(url: Option<&str>, options: &Revoke) -> Result<u8, Failure> {
    let Revoke { name, holder, reason } = options;
    let semaphore = open(url, name).await?;
    if !semaphore.revoke(holder, reason).await? {
        return Err(Failure::new(exit::NOT_THERE, format!("{name}: {holder:?} neither holds nor waits")));
    }
    confirm(&semaphore, |inspection| format!("{holder} revoked, {}", usage(inspection))).await
}

async fn open(url: Option<&str>, name: &str) -> Result<Semaphore, Failure> {
    Ok(connect::operator(url).await?.open(name))
}

/// Prints what `describe` makes of the semaphore as it is now.
async fn confirm(semaphore: &Semaphore, describe: impl Fn(&Inspection) -> String) -> Result<u8, Failure> {
    let inspection = semaphore.inspect_first(0).await?;
    Ok(exit::print(format!("{}: {}\n", inspection.name, describe(&inspection))))
}
