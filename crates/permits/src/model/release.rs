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

    /// Removes a holder or waiter, and sends its session the reason; or frees what cools under this token.
    pub(super) fn revoke(
        &mut self,
        request: &RequestId,
        holder: &Holder,
        cooling: Option<u64>,
        reason: &Arc<str>,
    ) -> Answers {
        let cooling = cooling.map(|token| holder.cooling(token));
        let key = cooling.as_ref().unwrap_or(holder);
        let was = match self.state.change_made(request) {
            Some(ChangeAnswer::Revoked(was)) => was,
            _ if self.state.entries.contains_key(key) => {
                if cooling.is_none() {
                    self.emit(key, EventKind::Revoked(reason.clone()));
                }
                self.state.counts.revoked += 1;
                let was = self.forget(key);
                self.state.remember_change(request, ChangeAnswer::Revoked(was));
                was
            }
            _ => ReleaseOutcome::Unknown,
        };
        self.promote();
        Answers::Revoke(was)
    }
}
