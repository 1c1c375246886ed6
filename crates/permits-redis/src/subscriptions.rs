//! The semaphores whose channels a session is subscribed to. The session does not say when it no longer needs
//! a semaphore. So once they are many, the subscriptions that were not used for the longest lease are given
//! up: every live entry is renewed within its lease.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::protocol::{Command, Name};

/// The least number of semaphores from which on idle ones are given up.
const MANY: usize = 1024;

/// See the module. With each semaphore is kept what its subscriptions depend on.
pub(super) struct Subscriptions<T> {
    used: HashMap<Name, (T, Instant)>,
    /// The number of semaphores at which the idle ones are looked for.
    many: usize,
    /// The longest lease of any command.
    lease_ms: u64,
}

impl<T> Default for Subscriptions<T> {
    fn default() -> Self {
        Self { used: HashMap::new(), many: MANY, lease_ms: 0 }
    }
}

impl<T> Subscriptions<T> {
    /// Notes that a command uses its semaphore. Returns what is known of that.
    pub(super) fn touch(&mut self, command: &Command, now: Instant) -> Option<&mut T> {
        self.lease_ms = self.lease_ms.max(command.longest_lease_ms());
        let (known, used) = self.used.get_mut(&command.semaphore)?;
        *used = now;
        Some(known)
    }

    /// Notes what is known of a semaphore from now on. Returns what was.
    pub(super) fn insert(&mut self, semaphore: &Name, known: T, now: Instant) -> Option<T> {
        self.used.insert(semaphore.clone(), (known, now)).map(|(before, _)| before)
    }

    /// Forgets the idle semaphores, if they are many.
    pub(super) fn take_idle(&mut self, now: Instant) -> Vec<(Name, T)> {
        if self.used.len() < self.many {
            return Vec::new();
        }
        let lease = Duration::from_millis(self.lease_ms);
        let idle = self.used.extract_if(|_, (_, used)| now.duration_since(*used) > lease);
        let idle = idle.map(|(name, (known, _))| (name, known)).collect();
        // Look again when they have doubled, so that the cost for each semaphore is constant.
        self.many = MANY.max(2 * self.used.len());
        idle
    }

    /// All semaphores.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (&Name, &mut T)> {
        self.used.iter_mut().map(|(name, (known, _))| (name, known))
    }
}
