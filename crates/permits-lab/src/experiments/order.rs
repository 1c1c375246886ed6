//! Who is served first.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Mutex as AsyncMutex;

use super::Stage;
use crate::Failure;
use crate::recipes::{Client, Gate, Kind, Role, Semaphore};

/// How many stand in line.
pub const LINE: usize = 20;

/// How long a permit is held.
const HELD: Duration = Duration::from_millis(2);

/// What became of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// Of all pairs in the line, how many were served the wrong way round.
    pub inversions: usize,
    /// How many newcomers, of one after each release, got in before those in line.
    pub overtaken: usize,
}

/// Twenty stand in line for one place, having come one after the other. Whenever it is released, a newcomer asks once.
///
/// # Errors
/// If a client fails.
pub async fn line(stage: &Stage, kind: Kind) -> Result<Order, Failure> {
    let semaphore = single(stage, kind);
    let newcomer = Newcomer::start(stage, &semaphore).await?;
    let mut holder = stage.user(&semaphore, Role::default()).await?;
    if !holder.try_acquire().await? {
        return Err("the first was refused".into());
    }
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut waiting = tokio::task::JoinSet::new();
    for number in 0..LINE {
        let mut user = stage.user(&semaphore, Role::default()).await?;
        let (newcomer, served) = (newcomer.clone(), served.clone());
        waiting.spawn(async move {
            user.acquire().await?;
            let last = {
                let mut served = served.lock().unwrap_or_else(PoisonError::into_inner);
                served.push(number);
                served.len() == LINE
            };
            tokio::time::sleep(HELD).await;
            user.release().await?;
            // Behind the last there is nobody to overtake.
            if last { Ok(0) } else { newcomer.asks().await }
        });
        in_line(stage, &semaphore, number + 1).await?;
    }
    holder.release().await?;
    let mut overtaken = newcomer.asks().await?;
    while let Some(served) = waiting.join_next().await {
        overtaken += served??;
    }
    let served = served.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(Order { inversions: inversions(&served), overtaken })
}

/// How many pairs are the wrong way round.
fn inversions(served: &[usize]) -> usize {
    let behind =
        |(place, number): (usize, &usize)| served[place + 1..].iter().filter(|later| *later < number).count();
    served.iter().enumerate().map(behind).sum()
}

/// One who comes when somebody has just released.
#[derive(Clone)]
struct Newcomer(Arc<AsyncMutex<Box<dyn Client>>>);

impl Newcomer {
    async fn start(stage: &Stage, semaphore: &Semaphore) -> Result<Self, Failure> {
        Ok(Self(Arc::new(AsyncMutex::new(stage.user(semaphore, Role::default()).await?))))
    }

    /// Asks once; 1 if it got in.
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

/// Whether a newcomer can get in before one who waits already: the place is released, and the newcomer is faster.
///
/// # Errors
/// If a client fails.
pub async fn newcomer_overtakes(stage: &Stage, kind: Kind) -> Result<bool, Failure> {
    let semaphore = single(stage, kind);
    let mut holder = stage.user(&semaphore, Role::default()).await?;
    let mut newcomer = stage.user(&semaphore, Role::default()).await?;
    if !holder.try_acquire().await? {
        return Err("the first was refused".into());
    }
    let (gate, mut turns) = Gate::new(false);
    let mut waiter = stage.user(&semaphore, Role { gate: Some(gate), ..Role::default() }).await?;
    if !kind.waits() {
        // It has asked, and will ask again: in between it is nowhere.
        waiter.try_acquire().await?;
        holder.release().await?;
        return newcomer.try_acquire().await;
    }
    let waiting = tokio::spawn(async move {
        waiter.acquire().await?;
        Ok::<_, Failure>(waiter)
    });
    in_line(stage, &semaphore, 1).await?;
    turns.shut();
    holder.release().await?;
    if kind == Kind::LuaFairZset {
        // It has been woken, and stands before its next request.
        turns.arrived().await;
    }
    let overtaken = newcomer.try_acquire().await?;
    newcomer.release().await?;
    turns.open();
    waiting.await??.release().await?;
    Ok(overtaken)
}

fn single(stage: &Stage, kind: Kind) -> Semaphore {
    let mut semaphore = stage.semaphore(kind);
    semaphore.limit = 1;
    semaphore
}

/// Waits until so many stand in line, or, where there is none, have asked in vain.
pub(super) async fn in_line(stage: &Stage, semaphore: &Semaphore, waiting: usize) -> Result<(), Failure> {
    let began = Instant::now();
    let asked = semaphore.requests.load(SeqCst);
    while began.elapsed() < Duration::from_secs(10) {
        let there = match semaphore.kind {
            Kind::Permits => {
                let key = format!("permits:{{{}}}:queue", semaphore.name);
                stage.server.command(&["ZCARD", &key]).int() as usize
            }
            Kind::List | Kind::LuaFairZset => blocked(stage),
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

/// How many connections block, on whatever key: an experiment has a server of its own.
pub(super) fn blocked(stage: &Stage) -> usize {
    stage.server.info("blocked_clients").and_then(|count| count.parse().ok()).unwrap_or(0)
}
