//! What happens to the semaphores of a soak: faults, and what operators do.

use std::thread::sleep;
use std::time::{Duration, Instant};

use permits::AdminError;
use permits::blocking::Client;
use permits_testkit::{Proxy, Server};

use super::{LIMITS, SEMAPHORES, name};

/// What was done, and how often.
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
    /// What an operator asked for in vain, because of a fault.
    pub(crate) in_vain: usize,
}

/// One fault of the network or the server; `true` if instead a client is to be killed.
pub(crate) fn strike(server: &Server, proxy: &Proxy, random: &mut fastrand::Rng, done: &mut Done) -> bool {
    let while_of = |millis: u64| Duration::from_millis(millis);
    match random.u32(0..8) {
        0 | 1 => {
            done.cuts += proxy.connections();
            proxy.cut();
        }
        2 => {
            done.stalls += 1;
            proxy.stall(true);
            sleep(while_of(random.u64(100..2500)));
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
            sleep(while_of(random.u64(0..1000)));
            server.restart();
        }
        _ => {
            done.kills += 1;
            return true;
        }
    }
    false
}

/// An operator, and the semaphores that it has paused and will resume.
#[derive(Default)]
pub(crate) struct Operator {
    paused: Vec<(usize, Instant)>,
}

impl Operator {
    /// Resumes what was paused for long enough, and does one more thing.
    pub(crate) fn act(&mut self, client: &Client, random: &mut fastrand::Rng, done: &mut Done) {
        self.paused.retain(|(index, until)| {
            // What fails is tried again.
            *until > Instant::now() || client.open(name(*index)).resume().is_err()
        });
        let index = random.usize(..SEMAPHORES);
        let semaphore = client.open(name(index));
        let act = match random.u32(0..6) {
            0..3 => semaphore.set_limit(random.u32(LIMITS)).map(|_| &mut done.limits_set),
            3 => semaphore.unpin().map(|_| &mut done.unpinned),
            4 => {
                self.paused.push((index, Instant::now() + Duration::from_millis(random.u64(500..5000))));
                semaphore.pause().map(|()| &mut done.pauses)
            }
            _ => match revoke_some(&semaphore, random) {
                Ok(true) => Ok(&mut done.revoked),
                Ok(false) => return,
                Err(error) => Err(error),
            },
        };
        match act {
            Ok(count) => *count += 1,
            Err(_) => done.in_vain += 1,
        }
    }
}

/// Revokes one that holds or waits, if there is one.
fn revoke_some(
    semaphore: &permits::blocking::Semaphore,
    random: &mut fastrand::Rng,
) -> Result<bool, AdminError> {
    let seen = semaphore.inspect_up_to(20)?;
    let holders = seen.holders.iter().map(|it| &it.holder);
    let all: Vec<&String> = holders.chain(seen.waiters.iter().map(|it| &it.holder)).collect();
    if all.is_empty() { Ok(false) } else { semaphore.revoke(all[random.usize(..all.len())], "soak") }
}

/// Has all semaphores grant again, by the limits that programs declare.
pub(crate) fn settle(client: &Client) -> Result<(), AdminError> {
    for index in 0..SEMAPHORES {
        let semaphore = client.open(name(index));
        semaphore.unpin()?;
        semaphore.resume()?;
    }
    Ok(())
}
