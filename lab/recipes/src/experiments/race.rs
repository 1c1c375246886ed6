//! Two clients and one place: every order in which their requests can reach the server.
//!
//! Each client stops at a [`Gate`] before each request, and a schedule says which client is next. All
//! schedules are tried, so an outcome does not depend on luck. `permits` sends one request: there are two
//! orders, and a proxy makes them.

use permits_bench::Failure;
use permits_testkit::Proxy;
use tokio::task::JoinHandle;

use super::{Fixture, SHORT_LEASE};
use crate::{Gate, Kind, Role, Semaphore, Turns};

/// The outcome of all schedules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Race {
    /// The number of schedules.
    pub schedules: u32,
    /// The schedules in which both clients were admitted.
    pub both: u32,
    /// The schedules in which neither was admitted.
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
pub async fn two_for_one_place(fixture: &Fixture, kind: Kind) -> Result<Race, Failure> {
    if kind == Kind::Permits {
        return two_behind_proxies(fixture).await;
    }
    let mut race = Race::default();
    let mut open = vec![Vec::new()];
    while let Some(prefix) = open.pop() {
        let (admitted, branches) = play(fixture, &single(fixture, kind), &prefix).await?;
        race.note(admitted);
        open.extend(branches);
    }
    Ok(race)
}

fn single(fixture: &Fixture, kind: Kind) -> Semaphore {
    let mut semaphore = fixture.semaphore(kind);
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
    async fn start(fixture: &Fixture, semaphore: &Semaphore) -> Result<Self, Failure> {
        let (gate, turns) = Gate::new(true);
        let mut user = fixture.user(semaphore, Role { gate: Some(gate), ..Role::default() }).await?;
        let task = tokio::spawn(async move { user.try_acquire().await });
        let mut runner = Self { turns, task, arrived: false };
        // The first to come reads its clock first.
        runner.arrived = runner.turns.arrived().await;
        Ok(runner)
    }

    async fn step(&mut self) {
        self.turns.give();
        self.arrived = self.turns.arrived().await;
    }
}

/// Runs one schedule: as the prefix says, then the first client that can go. Returns the clients that were
/// admitted, and the schedules that branch off behind the prefix.
async fn play(
    fixture: &Fixture,
    semaphore: &Semaphore,
    prefix: &[usize],
) -> Result<([bool; 2], Vec<Vec<usize>>), Failure> {
    let mut runners = [Runner::start(fixture, semaphore).await?, Runner::start(fixture, semaphore).await?];
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

async fn two_behind_proxies(fixture: &Fixture) -> Result<Race, Failure> {
    let mut race = Race::default();
    for first in [0, 1] {
        let semaphore = single(fixture, Kind::Permits);
        let proxies = [Proxy::start(fixture.server.address()), Proxy::start(fixture.server.address())];
        let mut tries = Vec::new();
        for proxy in &proxies {
            let mut user = fixture.user_behind(proxy, &semaphore).await?;
            proxy.stall(true);
            tries.push(tokio::spawn(async move {
                let admitted = user.try_acquire().await?;
                // Returned, and not dropped, because a drop may release.
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

/// Recipe 4 with a client that is held up between its two transactions for longer than the lock lasts.
/// Returns whether both were admitted.
///
/// # Errors
/// If a client fails.
pub async fn stalled_in_the_lock(fixture: &Fixture) -> Result<bool, Failure> {
    let mut semaphore = single(fixture, Kind::LockedFairZset);
    semaphore.lease = SHORT_LEASE;
    let mut stalled = Runner::start(fixture, &semaphore).await?;
    stalled.step().await; // It has the lock,
    stalled.step().await; // and has drawn its number.
    let lock = format!("{}:lock", semaphore.name);
    let expired = permits_testkit::wait::until(|| fixture.server.command(&["EXISTS", &lock]).int() == 0);
    assert!(expired, "a lock has an expiry");
    let mut other = fixture.user(&semaphore, Role::default()).await?;
    let other = other.try_acquire().await?;
    while stalled.arrived {
        stalled.step().await;
    }
    Ok(other && stalled.task.await??)
}
