//! The engine's alarms, in order of time.

use std::collections::BTreeMap;

use crate::clock::Moment;

/// Names a set alarm, so that it can be taken back.
pub(crate) type Key = (Moment, u64);

/// Alarms by time. One that is not needed any more must be removed, or it stays until its time.
pub(crate) struct Timers<T> {
    set: BTreeMap<Key, T>,
    made: u64,
}

impl<T> Default for Timers<T> {
    fn default() -> Self {
        Self { set: BTreeMap::new(), made: 0 }
    }
}

impl<T> Timers<T> {
    pub(crate) fn set(&mut self, at: Moment, alarm: T) -> Key {
        self.made += 1;
        let key = (at, self.made);
        self.set.insert(key, alarm);
        key
    }

    pub(crate) fn remove(&mut self, key: Option<Key>) {
        if let Some(key) = key {
            self.set.remove(&key);
        }
    }

    /// Takes the next alarm whose time has come.
    pub(crate) fn due(&mut self, now: Moment) -> Option<T> {
        let entry = self.set.first_entry()?;
        (entry.key().0 <= now).then(|| entry.remove())
    }

    /// When the next one is.
    pub(crate) fn next(&self) -> Option<Moment> {
        self.set.first_key_value().map(|((at, _), _)| *at)
    }
}
