//! Two clients and one place: every order in which their requests can reach the server.
//!
//! Each client stands at a [`Gate`] before each request, and a schedule says whose turn it is. All schedules are
//! tried, so what is found is not luck, and what is not found is not there. `permits` asks once: there are two orders,
//! and a proxy makes them.

use std::time::Duration;

use permits_testkit::Proxy;
use tokio::task::JoinHandle;

use super::{SHORT_LEASE, Stage};
use crate::Failure;
use crate::recipes::{Gate, Kind, Role, Semaphore, Turns};

/// What came of all schedules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Race {
    /// How many there are.
    pub schedules: u32,
    /// In how many both got in.
    pub both: u32,
    /// In how many neither got in.
    pub neither: u32,
}

impl Race {
    fn note(&mut self, admitted: [bool; 2]) {
        self.schedules += 1;
        self.both += u32::from(admitted == [true; 2]);
        self.neither += u32::from(admitted == [false; 2]);
    }
}

/// Two clients try for one place.
///
/// # Errors
/// If one of them fails.
pub async fn two_for_one_place(stage: &Stage, kind: Kind) -> Result<Race, Failure> {
    if kind == Kind::Permits {
        return two_behind_proxies(stage).await;
    }
    let mut race = Race::default();
    let mut open = vec![Vec::new()];
    while let Some(prefix) = open.pop() {
        let (admitted, branches) = play(stage, &single(stage, kind), &prefix).await?;
        race.note(admitted);
        open.extend(branches);
    }
    Ok(race)
}

fn single(stage: &Stage, kind: Kind) -> Semaphore {
    let mut semaphore = stage.semaphore(kind);
    semaphore.limit = 1;
    // Each attempt is a step; ten would make a thousand schedules that differ in nothing.
    semaphore.lock_attempts = 2;
    semaphore
}

/// A client on its way through a gate.
struct Runner {
    turns: Turns,
    task: JoinHandle<Result<bool, Failure>>,
    arrived: bool,
}

impl Runner {
    async fn start(stage: &Stage, semaphore: &Semaphore) -> Result<Self, Failure> {
        let (gate, turns) = Gate::new(true);
        let mut user = stage.user(semaphore, Role { gate: Some(gate), ..Role::default() }).await?;
        let task = tokio::spawn(async move { user.try_acquire().await });
        let mut runner = Self { turns, task, arrived: false };
        // The first to come looks at its clock first.
        runner.arrived = runner.turns.arrived().await;
        Ok(runner)
    }

    async fn step(&mut self) {
        self.turns.give();
        self.arrived = self.turns.arrived().await;
    }
}

/// Plays one schedule: as the prefix says, then the first that can. Returns who got in, and the schedules that branch
/// off behind the prefix.
async fn play(
    stage: &Stage,
    semaphore: &Semaphore,
    prefix: &[usize],
) -> Result<([bool; 2], Vec<Vec<usize>>), Failure> {
    let mut runners = [Runner::start(stage, semaphore).await?, Runner::start(stage, semaphore).await?];
    let (mut played, mut branches) = (Vec::new(), Vec::new());
    while runners.iter().any(|runner| runner.arrived) {
        let first = usize::from(!runners[0].arrived);
        let turn = prefix.get(played.len()).copied().unwrap_or(first);
        if played.len() >= prefix.len() && runners.iter().all(|runner| runner.arrived) {
            branches.push([played.as_slice(), &[1]].concat());
        }
        runners[turn].step().await;
        played.push(turn);
    }
    let [one, other] = runners;
    Ok(([one.task.await??, other.task.await??], branches))
}

async fn two_behind_proxies(stage: &Stage) -> Result<Race, Failure> {
    let mut race = Race::default();
    for first in [0, 1] {
        let semaphore = single(stage, Kind::Permits);
        let proxies = [Proxy::start(stage.server.address()), Proxy::start(stage.server.address())];
        let mut tries = Vec::new();
        for proxy in &proxies {
            let mut user = stage.user_behind(proxy, &semaphore).await?;
            proxy.stall(true);
            tries.push(tokio::spawn(async move {
                let admitted = user.try_acquire().await?;
                // Returned, and not dropped: it is not to be given back yet.
                Ok::<_, Failure>((admitted, user))
            }));
        }
        let (one, other) = (tries.remove(first), tries.remove(0));
        proxies[first].stall(false);
        let (one, _one) = one.await??;
        proxies[1 - first].stall(false);
        let (other, _other) = other.await??;
        race.note([one, other]);
    }
    Ok(race)
}

/// Recipe 4 with a client that is held up between its two transactions for longer than the lock lasts. Says whether
/// both got in.
///
/// # Errors
/// If a client fails.
pub async fn stalled_in_the_lock(stage: &Stage) -> Result<bool, Failure> {
    let mut semaphore = single(stage, Kind::LockedFairZset);
    semaphore.lease = SHORT_LEASE;
    let mut stalled = Runner::start(stage, &semaphore).await?;
    stalled.step().await; // It has the lock,
    stalled.step().await; // and has drawn its number.
    let lock = format!("{}:lock", semaphore.name);
    let expired = permits_testkit::wait::until(Duration::from_secs(10), || {
        stage.server.command(&["EXISTS", &lock]).int() == 0
    });
    assert!(expired, "a lock has an expiry");
    let mut other = stage.user(&semaphore, Role::default()).await?;
    let other = other.try_acquire().await?;
    while stalled.arrived {
        stalled.step().await;
    }
    Ok(other && stalled.task.await??)
}
