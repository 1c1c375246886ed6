//! Kept permits: their callers released them while no request waited, and the session keeps them for its next
//! requests.
//!
//! A caller takes a permit from the shelf of its semaphore, and puts it back, under the shelf's own lock
//! alone: there is no call to the store and no message to the engine. To the engine a kept permit is a held
//! one, which it renews. When the engine learns something about the semaphore, it tells the shelf, and
//! releases what may no longer be kept ([`keeping`](crate::keeping) decides that).
//!
//! Invariant: a permit is on the shelf or has a holder, never both. No code of the program runs under the
//! lock, and no other lock is taken there.

use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use super::Map;
use super::permit_state::PermitState;
use super::sync::{Mutex, MutexGuard};
use crate::clock::Moment;
use crate::keeping::{Keeping, Notice};
use crate::protocol::{Declaration, Name, PermitTerms};
use crate::timing::renew_every;

/// A session that has this many shelves forgets the shelves that are not in use.
const SHELVES_MAX: usize = 1_000;

/// A caller waits for a permit whose next token becomes usable within this time. Each token becomes usable at
/// most two microseconds after the previous one.
const NEXT_TOKEN: Duration = Duration::from_micros(3);

/// See the module. A session has one shelf for each semaphore.
#[derive(Debug, Default)]
pub(crate) struct Shelf(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    keeping: Keeping,
    kept: Vec<Kept>,
}

#[derive(Debug)]
struct Kept {
    permit: Arc<PermitState>,
    declaration: Declaration,
    /// Release the permit then, if no request takes it.
    until: Moment,
}

/// The permission to keep a permit.
#[derive(Debug, Clone)]
pub(crate) struct Keep {
    pub(crate) shelf: Arc<Shelf>,
    /// The time for which a permit is kept, if no request takes it.
    pub(crate) idle: Duration,
    /// The declaration under which it was granted: requests with another one go to the store.
    pub(crate) declaration: Declaration,
}

impl Keep {
    /// Keeps a permit that its holder no longer uses. If this returns false, the permit has to be released.
    pub(super) fn put_back(&self, permit: &Arc<PermitState>, now: Moment) -> bool {
        if !permit.can_be_granted_again(now) {
            return false;
        }
        permit.forget_watchers();
        let mut state = self.shelf.lock();
        let kept = state.keeping.allows(permit.stored_grant().slot);
        if kept {
            let (declaration, until) = (self.declaration, now + self.idle);
            state.kept.push(Kept { permit: permit.clone(), declaration, until });
        }
        kept
    }

    /// The same, but permits are kept until the next renewal of a permit with this lease at most.
    pub(crate) fn within(&self, lease: Duration) -> Self {
        Self { idle: self.idle.min(renew_every(lease)), ..self.clone() }
    }
}

impl Shelf {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a permit with this declaration that fits, and grants it again. Prefers one of the last on the
    /// shelf whose next token may be used now. If there is none, takes one whose next token may be used in a
    /// moment, and waits for that.
    pub(crate) fn take(
        &self,
        declaration: Declaration,
        fits: impl Fn(&PermitTerms) -> bool,
        clock: impl Fn() -> Moment,
    ) -> Option<Arc<PermitState>> {
        let mut state = self.lock();
        if let Declaration::Require(limit) = declaration
            && !state.keeping.is_limit(limit)
        {
            return None;
        }
        // Read the clock only now: a permit may have ended while this thread waited for the lock.
        let now = clock();
        let fits = |kept: &Kept| kept.declaration == declaration && fits(kept.permit.granted_terms());
        let ready = state.kept.iter().rposition(|kept| fits(kept) && kept.permit.has_token(now));
        let soon = |kept: &Kept| fits(kept) && kept.permit.has_token(now + NEXT_TOKEN);
        let at = ready.or_else(|| state.kept.iter().position(soon))?;
        let Kept { permit, .. } = state.kept.swap_remove(at);
        drop(state);
        let now = permit.await_token(now, clock);
        // If the permit was lost meanwhile, no request gets it.
        permit.grant_again(now).then_some(permit)
    }

    /// Notes what the session has learned. Returns the permits to release.
    pub(super) fn note(&self, notice: Notice) -> Vec<Arc<PermitState>> {
        let mut state = self.lock();
        if !state.keeping.note(notice) {
            return Vec::new();
        }
        state.kept.drain(..).map(|kept| kept.permit).collect()
    }

    /// Takes the permits that no request has taken in time.
    pub(super) fn take_idle(&self, now: Moment) -> Vec<Arc<PermitState>> {
        let mut state = self.lock();
        state.kept.extract_if(.., |kept| kept.until <= now).map(|kept| kept.permit).collect()
    }

    /// Takes this permit, if it is on the shelf.
    pub(super) fn remove(&self, permit: &Arc<PermitState>) -> bool {
        let mut state = self.lock();
        let at = state.kept.iter().position(|kept| Arc::ptr_eq(&kept.permit, permit));
        at.map(|at| state.kept.swap_remove(at)).is_some()
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.lock().kept.is_empty()
    }

    /// The time at which the next unused permit has to be released.
    pub(super) fn next_idle(&self) -> Option<Moment> {
        self.lock().kept.iter().map(|kept| kept.until).min()
    }
}

/// The shelves of a session, which all handles of a semaphore share.
#[derive(Debug, Default)]
pub(super) struct Shelves(Mutex<Map<Name, Weak<Shelf>>>);

impl Shelves {
    pub(super) fn shared(&self, semaphore: &Name) -> Arc<Shelf> {
        let mut shelves = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shelf) = shelves.get(semaphore).and_then(Weak::upgrade) {
            return shelf;
        }
        if shelves.len() >= SHELVES_MAX {
            shelves.retain(|_, shelf| shelf.strong_count() > 0);
        }
        let shelf = Arc::default();
        shelves.insert(semaphore.clone(), Arc::downgrade(&shelf));
        shelf
    }
}
