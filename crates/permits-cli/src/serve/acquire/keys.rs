//! `Idempotency-Key`: a request that is sent again gets the permit of the first one.
//!
//! A second request waits with the first. [`Shared`] is dropped when nobody waits for the permit any more,
//! and then the request leaves the line. After the grant, the store is asked whether the permit is still
//! held, so that a permit which was released or lost is acquired anew.
//!
//! The keys are the only state of the endpoints, and they may be lost: after a restart every key is new.

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use axum::http::StatusCode;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use permits::PermitHandle;
use tokio::time::Instant;

use super::super::problem::Problem;
use super::granted::Granted;
use crate::hold::One;

/// The most keys. A key whose permit may have ended makes room for a new one.
const MAX_KEYS: usize = 10_000;

/// The id of the token that was shown, and the key.
pub(super) type Key = (u64, String);

pub(super) type Outcome = Result<Arc<Granted>, Problem>;
type Acquiring = Shared<BoxFuture<'static, Outcome>>;

#[derive(Default)]
pub(super) struct Keys {
    entries: Mutex<HashMap<Key, Entry>>,
    /// The requests that have begun.
    begun: AtomicU64,
}

struct Entry {
    asked: One,
    stage: Stage,
    /// Tells this request from others with the same key: a key may have a new request when the first one
    /// ends.
    number: u64,
}

enum Stage {
    /// The reference is dead if nobody waits for the permit any more.
    Acquiring(WeakShared<BoxFuture<'static, Outcome>>),
    Granted(Arc<Granted>),
}

impl Entry {
    fn granted(&self) -> Option<&Arc<Granted>> {
        match &self.stage {
            Stage::Granted(granted) => Some(granted),
            Stage::Acquiring(_) => None,
        }
    }
}

/// The next step of a request with a key.
pub(super) enum Step {
    Wait(Acquiring),
    /// The permit of the key was granted, and may have ended since.
    Check(Arc<Granted>),
}

impl Keys {
    fn entries(&self) -> MutexGuard<'_, HashMap<Key, Entry>> {
        self.entries.lock().expect("no code panics with it")
    }

    /// Begins the request of a key with `acquire`, unless it has begun already.
    pub(super) fn step<F: Future<Output = Result<Granted, Problem>> + Send + 'static>(
        self: &Arc<Self>,
        key: &Key,
        asked: &One,
        acquire: impl FnOnce() -> F,
    ) -> Result<Step, Problem> {
        let mut entries = self.entries();
        if let Some(entry) = entries.get(key) {
            let known = match &entry.stage {
                Stage::Acquiring(acquiring) => acquiring.upgrade().map(Step::Wait),
                Stage::Granted(granted) => Some(Step::Check(granted.clone())),
            };
            match known {
                Some(_) if entry.asked != *asked => {
                    // Unlock before `known` is dropped: that may end the first request, whose end takes this
                    // lock.
                    drop(entries);
                    let reason = "the Idempotency-Key was used with another request: use a new one";
                    return Err(Problem::new(StatusCode::CONFLICT, reason));
                }
                Some(known) => return Ok(known),
                None => {}
            }
        } else if entries.len() >= MAX_KEYS {
            let now = Instant::now();
            entries.retain(|_, entry| entry.granted().is_none_or(|granted| granted.until() > now));
            if entries.len() >= MAX_KEYS {
                let reason = format!("{MAX_KEYS} keys are in use");
                return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, reason));
            }
        }
        let acquire = acquire();
        let number = self.begun.fetch_add(1, Ordering::Relaxed);
        let waiting = Waiting { keys: self.clone(), key: key.clone(), number };
        let acquiring = async move {
            let granted = Arc::new(acquire.await?);
            waiting.granted(&granted);
            Ok(granted)
        };
        let acquiring = acquiring.boxed().shared();
        let weak = acquiring.downgrade().expect("it is not polled yet");
        entries.insert(key.clone(), Entry { asked: asked.clone(), stage: Stage::Acquiring(weak), number });
        Ok(Step::Wait(acquiring))
    }

    /// Forgets the key of a permit that has ended.
    pub(super) fn forget(&self, ended: &PermitHandle) {
        let ended = ended.to_string();
        self.entries().retain(|_, entry| entry.granted().is_none_or(|it| it.text != ended));
    }

    /// Notes that a permit was renewed by its handle, so that its key lasts as long.
    pub(super) fn renewed(&self, handle: &PermitHandle, until: Instant) {
        let renewed = handle.to_string();
        let entries = self.entries();
        let granted = entries.values().filter_map(Entry::granted);
        granted.filter(|granted| granted.text == renewed).for_each(|granted| granted.renewed(until));
    }
}

/// A request that has begun: removes its entry when it is refused, or when nobody waits for it any more.
struct Waiting {
    keys: Arc<Keys>,
    key: Key,
    number: u64,
}

impl Waiting {
    fn granted(&self, granted: &Arc<Granted>) {
        let mut entries = self.keys.entries();
        if let Some(entry) = entries.get_mut(&self.key).filter(|entry| entry.number == self.number) {
            entry.stage = Stage::Granted(granted.clone());
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut entries = self.keys.entries();
        let is_own =
            |entry: &Entry| entry.number == self.number && matches!(entry.stage, Stage::Acquiring(_));
        if entries.get(&self.key).is_some_and(is_own) {
            entries.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::http::HeaderMap;
    use permits::{Client, Recovery};

    use super::super::granted::granted;
    use super::super::request::Wanted;
    use super::*;

    /// The client sends the handle as text, and that does not contain the label.
    #[tokio::test]
    async fn a_key_lasts_as_long_as_its_permit_is_renewed_by_the_handle() {
        let client = Client::builder("memory:").label("serve").recovery(Recovery::Off).connect();
        let client = client.await.expect("it needs no server");
        let wanted = Wanted::read(br#"{"acquire":"exports","limit":1}"#, &HeaderMap::new());
        let wanted = Arc::new(wanted.expect("it is valid"));
        let (keys, key) = (Arc::<Keys>::default(), (0, "key".to_owned()));
        let acquire = || granted(client.clone(), wanted.clone());
        let Ok(Step::Wait(acquiring)) = keys.step(&key, &wanted.asked, acquire) else {
            panic!("the key is new")
        };
        let granted = acquiring.await.expect("it is free");
        let handle: PermitHandle = granted.text.parse().expect("it is a handle");
        let later = granted.until() + Duration::from_secs(60);
        keys.renewed(&handle, later);
        assert_eq!(granted.until(), later);
        keys.forget(&handle);
        assert!(keys.entries().is_empty());
    }
}
