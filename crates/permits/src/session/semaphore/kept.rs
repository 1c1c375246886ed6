//! The engine's side of a semaphore's kept permits. The engine counts a kept permit as held; once it has
//! taken the permit from the shelf, nobody holds it.

use std::sync::Arc;

use super::{LEAST_IDLE, SemaphoreSession, Step};
use crate::acquisition::Input;
use crate::keeping::Notice;
use crate::session::permit_state::PermitState;
use crate::session::spec::AcquireSpec;

impl SemaphoreSession {
    /// Begins to use the shelf, if the permit of this request may be kept. Nothing is kept before the next
    /// reply.
    pub(super) fn use_shelf(&mut self, spec: &AcquireSpec) {
        if let Some(keep) = spec.keep.as_ref().filter(|_| self.shelf.is_none()) {
            drop(keep.shelf.note(Notice::Unsure));
            self.shelf = Some(keep.shelf.clone());
        }
    }

    /// Notes what the session has learned about the semaphore, and releases what may no longer be kept.
    pub(in crate::session) fn note(&mut self, notice: Notice, step: &mut Step) {
        let kept: Vec<_> = self.shelf.iter().flat_map(|shelf| shelf.note(notice)).collect();
        self.release_kept(kept, step);
    }

    /// Releases the permits that no request has used for some time.
    pub(super) fn give_back_idle(&mut self, step: &mut Step) {
        let now = step.now;
        let idle: Vec<_> = self.shelf.iter().flat_map(|shelf| shelf.take_idle(now)).collect();
        self.release_kept(idle, step);
        let next = self.shelf.iter().filter_map(|shelf| shelf.next_idle()).min();
        let used = self.acquisitions.values().filter(|entry| entry.permit.is_some());
        // The shelf does not announce a permit that is put back, and two requests may keep for different
        // times. So look again after the shortest time that a permit in use may be kept for.
        let shortest =
            used.filter_map(|entry| Some(now + entry.spec.keep.as_ref()?.idle.max(LEAST_IDLE))).min();
        if let Some(at) = next.into_iter().chain(shortest).min() {
            self.schedule.give_back_by(at);
        }
    }

    /// Takes a permit from the shelf. If this returns true, the permit was there, and no caller has to learn
    /// that it ends.
    pub(super) fn was_kept(&self, permit: &Arc<PermitState>) -> bool {
        self.shelf.iter().any(|shelf| shelf.remove(permit))
    }

    fn release_kept(&mut self, kept: Vec<Arc<PermitState>>, step: &mut Step) {
        for permit in kept {
            permit.end();
            self.step(&permit.request, Input::Released, step);
        }
    }
}
