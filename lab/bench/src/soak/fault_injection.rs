//! The faults of a soak, and the commands of its operator.

use std::thread::sleep;
use std::time::{Duration, Instant};

use permits::Client;
use permits::{AdminError, Limit};
use permits_testkit::{Proxy, Server};

use super::{LIMITS, SEMAPHORES, name};

/// The number of faults and commands.
#[derive(Debug, Default)]
pub(crate) struct Done {
    pub(crate) cuts: usize,
    pub(crate) stalls: usize,
    pub(crate) wakeups_cut: usize,
    pub(crate) scripts_flushed: usize,
    pub(crate) restarts: usize,
    pub(crate) kills: usize,
    pub(crate) limits_set: usize,
    pub(crate) unpinned: usize,
    pub(crate) pauses: usize,
    pub(crate) revoked: usize,
    /// Commands of the operator that a fault made fail.
    pub(crate) failed: usize,
}

/// Injects a fault of the network or the server. Returns `true` if a client is to be killed instead.
pub(crate) fn strike(server: &Server, proxy: &Proxy, random: &mut fastrand::Rng, done: &mut Done) -> bool {
    let millis = Duration::from_millis;
    match random.u32(0..8) {
        0 | 1 => {
            done.cuts += proxy.connections();
            proxy.cut();
        }
        2 => {
            done.stalls += 1;
            proxy.stall(true);
            sleep(millis(random.u64(100..2500)));
            proxy.stall(false);
        }
        3 => {
            let killed = server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).int();
            done.wakeups_cut += usize::try_from(killed).expect("a count");
        }
        4 | 5 => {
            done.scripts_flushed += 1;
            server.command(&["SCRIPT", "FLUSH"]);
        }
        6 => {
            done.restarts += 1;
            server.kill();
            sleep(millis(random.u64(0..1000)));
            server.restart();
        }
        _ => {
            done.kills += 1;
            return true;
        }
    }
    false
}

/// An operator, with the semaphores that it has paused, and when it resumes them.
#[derive(Default)]
pub(crate) struct Operator {
    paused: Vec<(usize, Instant)>,
}

impl Operator {
    /// Resumes semaphores whose pause is over, and executes one more command.
    pub(crate) fn act(&mut self, client: &Client, random: &mut fastrand::Rng, done: &mut Done) {
        self.paused.retain(|(index, until)| {
            // A command that fails is retried.
            *until > Instant::now()
                || client.semaphore(name(*index), Limit::Stored).expect("valid").resume().wait().is_err()
        });
        let index = random.usize(..SEMAPHORES);
        let semaphore = client.semaphore(name(index), Limit::Stored).expect("valid");
        let act = match random.u32(0..6) {
            0..3 => semaphore.set_limit(random.u32(LIMITS)).wait().map(|_| &mut done.limits_set),
            3 => semaphore.unpin().wait().map(|_| &mut done.unpinned),
            4 => {
                self.paused.push((index, Instant::now() + Duration::from_millis(random.u64(500..5000))));
                semaphore.pause("").wait().map(|()| &mut done.pauses)
            }
            _ => match revoke_some(&semaphore, random) {
                Ok(true) => Ok(&mut done.revoked),
                Ok(false) => return,
                Err(error) => Err(error),
            },
        };
        match act {
            Ok(count) => *count += 1,
            Err(_) => done.failed += 1,
        }
    }
}

/// Revokes a holder or waiter, if there is one.
fn revoke_some(semaphore: &permits::Semaphore, random: &mut fastrand::Rng) -> Result<bool, AdminError> {
    let seen = semaphore.inspect_up_to(20).wait()?;
    let holders = seen.holders.iter().map(|it| &it.holder);
    let all: Vec<&String> = holders.chain(seen.waiters.iter().map(|it| &it.holder)).collect();
    if all.is_empty() { Ok(false) } else { semaphore.revoke(all[random.usize(..all.len())], "soak").wait() }
}

/// Lets all semaphores grant again, by the limits that programs declare.
pub(crate) fn settle(client: &Client) -> Result<(), AdminError> {
    for index in 0..SEMAPHORES {
        let semaphore = client.semaphore(name(index), Limit::Stored).expect("valid");
        semaphore.unpin().wait()?;
        semaphore.resume().wait()?;
    }
    Ok(())
}
