//! The order in which waiters are served.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use permits_bench::Failure;
use tokio::sync::Mutex as AsyncMutex;

use super::Fixture;
use crate::{Client, Gate, Kind, Role, Semaphore};

/// The waiters.
pub const LINE: usize = 20;

/// The time for which a permit is held.
const HELD: Duration = Duration::from_millis(2);

/// The outcome for a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// The pairs of waiters that were served the wrong way round.
    pub inversions: usize,
    /// The newcomers, of one after each release, that were admitted before the waiters.
    pub overtaken: usize,
}

/// Twenty clients wait for one place, having come one after the other. After each release a newcomer tries
/// once.
///
/// # Errors
/// If a client fails.
pub async fn line(fixture: &Fixture, kind: Kind) -> Result<Order, Failure> {
    let semaphore = single(fixture, kind);
    let newcomer = Newcomer::start(fixture, &semaphore).await?;
    let mut holder = fixture.user(&semaphore, Role::default()).await?;
    if !holder.try_acquire().await? {
        return Err("the first was refused".into());
    }
    let served = Arc::new(Mutex::new(Vec::new()));
    // Has a unit for each try of the newcomer.
    let tried = Arc::new(tokio::sync::Semaphore::new(0));
    let mut waiting = tokio::task::JoinSet::new();
    for number in 0..LINE {
        let mut user = fixture.user(&semaphore, Role::default()).await?;
        let (newcomer, served, tried) = (newcomer.clone(), served.clone(), tried.clone());
        waiting.spawn(async move {
            user.acquire().await?;
            let last = {
                let mut served = served.lock().unwrap_or_else(PoisonError::into_inner);
                served.push(number);
                served.len() == LINE
            };
            tokio::time::sleep(HELD).await;
            if last {
                // A newcomer that tries after this release overtakes none.
                tried.acquire_many(LINE as u32).await?.forget();
            }
            user.release().await?;
            if last {
                return Ok::<_, Failure>(0);
            }
            let overtaken = newcomer.asks().await?;
            tried.add_permits(1);
            Ok(overtaken)
        });
        in_line(fixture, &semaphore, number + 1).await?;
    }
    holder.release().await?;
    let mut overtaken = newcomer.asks().await?;
    tried.add_permits(1);
    while let Some(served) = waiting.join_next().await {
        overtaken += served??;
    }
    let served = served.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(Order { inversions: inversions(&served), overtaken })
}

/// The pairs that are the wrong way round.
fn inversions(served: &[usize]) -> usize {
    let behind =
        |(place, number): (usize, &usize)| served[place + 1..].iter().filter(|later| *later < number).count();
    served.iter().enumerate().map(behind).sum()
}

/// A client that tries when a place has just been released.
#[derive(Clone)]
struct Newcomer(Arc<AsyncMutex<Box<dyn Client>>>);

impl Newcomer {
    async fn start(fixture: &Fixture, semaphore: &Semaphore) -> Result<Self, Failure> {
        Ok(Self(Arc::new(AsyncMutex::new(fixture.user(semaphore, Role::default()).await?))))
    }

    /// Tries once; 1 if it was admitted.
    async fn asks(&self) -> Result<usize, Failure> {
        let mut user = self.0.lock().await;
        let admitted = user.try_acquire().await?;
        if admitted {
            tokio::time::sleep(HELD).await;
            user.release().await?;
        }
        Ok(usize::from(admitted))
    }
}

/// Returns whether a newcomer can be admitted before a waiter: the place is released, and the newcomer is
/// faster.
///
/// # Errors
/// If a client fails.
pub async fn newcomer_overtakes(fixture: &Fixture, kind: Kind) -> Result<bool, Failure> {
    let semaphore = single(fixture, kind);
    let mut holder = fixture.user(&semaphore, Role::default()).await?;
    let mut newcomer = fixture.user(&semaphore, Role::default()).await?;
    if !holder.try_acquire().await? {
        return Err("the first was refused".into());
    }
    let (gate, mut turns) = Gate::new(false);
    let mut waiter = fixture.user(&semaphore, Role { gate: Some(gate), ..Role::default() }).await?;
    if !kind.waits() {
        // A poller, which is in no queue between two attempts.
        waiter.try_acquire().await?;
        holder.release().await?;
        return newcomer.try_acquire().await;
    }
    let waiting = tokio::spawn(async move {
        waiter.acquire().await?;
        Ok::<_, Failure>(waiter)
    });
    in_line(fixture, &semaphore, 1).await?;
    turns.shut();
    holder.release().await?;
    if kind == Kind::LuaFairZset {
        // The waiter was woken, and stands before its next request.
        turns.arrived().await;
    }
    let overtaken = newcomer.try_acquire().await?;
    newcomer.release().await?;
    turns.open();
    waiting.await??.release().await?;
    Ok(overtaken)
}

fn single(fixture: &Fixture, kind: Kind) -> Semaphore {
    let mut semaphore = fixture.semaphore(kind);
    semaphore.limit = 1;
    semaphore
}

/// Waits until `count` clients are in the queue, or, if the recipe has no queue, have been refused.
pub(super) async fn in_line(fixture: &Fixture, semaphore: &Semaphore, waiting: usize) -> Result<(), Failure> {
    let began = Instant::now();
    let asked = semaphore.requests.load(SeqCst);
    while began.elapsed() < Duration::from_secs(10) {
        let there = match semaphore.kind {
            Kind::Permits => {
                let key = format!("permits:{{{}}}:queue", semaphore.name);
                fixture.server.command(&["ZCARD", &key]).int() as usize
            }
            Kind::List | Kind::LuaFairZset => blocked(fixture),
            _ if semaphore.requests.load(SeqCst) > asked + 2 => waiting,
            _ => 0,
        };
        if there >= waiting {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Err(format!("{waiting} do not stand in line for {}", semaphore.name).into())
}

/// The connections that block, on any key: an experiment has a server of its own.
pub(super) fn blocked(fixture: &Fixture) -> usize {
    fixture.server.info("blocked_clients").and_then(|count| count.parse().ok()).unwrap_or(0)
}
