//! Releases by holders and waiters, and revocations by operators.

use std::sync::Arc;

use super::execution::Execution;
use super::state::ChangeAnswer;
use crate::protocol::{Answers, EventKind, Holder, ReleaseOutcome, ReleaseRequest, RequestId};

impl Execution<'_> {
    /// Forgets entries, whether they wait or hold.
    pub(super) fn release(&mut self, requests: &[ReleaseRequest]) -> Answers {
        let answers = requests.iter().map(|release| match self.state.entries.get(&release.holder) {
            Some(entry) if entry.request == release.request => self.forget(&release.holder),
            _ => ReleaseOutcome::Unknown,
        });
        let answers = answers.collect();
        self.promote();
        Answers::Release(answers)
    }

    /// Removes a holder or waiter, and sends its session the reason.
    pub(super) fn revoke(&mut self, request: &RequestId, holder: &Holder, reason: &Arc<str>) -> Answers {
        let was = match self.state.change_made(request) {
            Some(ChangeAnswer::Revoked(was)) => was,
            _ if self.state.entries.contains_key(holder) => {
                self.emit(holder, EventKind::Revoked(reason.clone()));
                let was = self.forget(holder);
                self.state.remember_change(request, ChangeAnswer::Revoked(was));
                was
            }
            _ => ReleaseOutcome::Unknown,
        };
        self.promote();
        Answers::Revoke(was)
    }
}
