//! The semaphores whose channels a session is subscribed to. The session does not say when it no longer needs
//! a semaphore. So once they are many, the subscriptions that were not used for the longest lease of their
//! semaphore are given up: every live entry is renewed within its lease.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::protocol::{Command, Name};

/// The least number of semaphores from which on idle ones are given up.
const MANY: usize = 1024;

/// See the module. With each semaphore is kept what its subscriptions depend on.
pub(super) struct Subscriptions<T> {
    used: HashMap<Name, Used<T>>,
    /// The number of semaphores at which the idle ones are looked for.
    many: usize,
}

struct Used<T> {
    known: T,
    at: Instant,
    /// The longest lease of a command about this semaphore.
    lease_ms: u64,
}

impl<T> Default for Subscriptions<T> {
    fn default() -> Self {
        Self { used: HashMap::new(), many: MANY }
    }
}

impl<T> Subscriptions<T> {
    /// Notes that a command uses its semaphore. Returns what is known of that.
    pub(super) fn touch(&mut self, command: &Command, now: Instant) -> Option<&mut T> {
        let used = self.used.get_mut(&command.semaphore)?;
        (used.at, used.lease_ms) = (now, used.lease_ms.max(command.longest_lease_ms()));
        Some(&mut used.known)
    }

    /// Notes what is known of a semaphore from now on, and that a command with this lease uses it. Returns
    /// what was known.
    pub(super) fn insert(&mut self, semaphore: &Name, known: T, lease_ms: u64, now: Instant) -> Option<T> {
        let before = self.used.get(semaphore).map_or(0, |used| used.lease_ms);
        let used = Used { known, at: now, lease_ms: lease_ms.max(before) };
        self.used.insert(semaphore.clone(), used).map(|used| used.known)
    }

    /// Forgets the idle semaphores, if they are many.
    pub(super) fn take_idle(&mut self, now: Instant) -> Vec<(Name, T)> {
        if self.used.len() < self.many {
            return Vec::new();
        }
        let is_idle = |used: &Used<T>| now.duration_since(used.at) > Duration::from_millis(used.lease_ms);
        let idle = self.used.extract_if(|_, used| is_idle(used));
        let idle = idle.map(|(name, used)| (name, used.known)).collect();
        // Look again when they have doubled, so that the cost for each semaphore is constant.
        self.many = MANY.max(2 * self.used.len());
        idle
    }

    /// All semaphores.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (&Name, &mut T)> {
        self.used.iter_mut().map(|(name, used)| (name, &mut used.known))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One semaphore with a lease of a day keeps the subscriptions of no other.
    #[test]
    fn each_subscription_lasts_for_the_leases_of_its_semaphore() {
        let mut subscriptions = Subscriptions::default();
        let began = Instant::now();
        let named = |number: usize| Name::new(&number.to_string()).expect("valid");
        for number in 0..MANY {
            let lease_ms = if number == 0 { 86_400_000 } else { 15_000 };
            subscriptions.insert(&named(number), number, lease_ms, began);
        }
        assert!(subscriptions.take_idle(began + Duration::from_secs(15)).is_empty());
        let mut idle = subscriptions.take_idle(began + Duration::from_secs(16));
        assert!(idle.is_empty(), "it looks again when they have doubled");
        for number in MANY..2 * MANY {
            subscriptions.insert(&named(number), number, 15_000, began + Duration::from_secs(16));
        }
        idle = subscriptions.take_idle(began + Duration::from_secs(16));
        assert_eq!(idle.len(), MANY - 1, "all of the first but one");
        assert!(idle.iter().all(|(_, number)| (1..MANY).contains(number)));
    }
}
