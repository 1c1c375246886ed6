//! Recovery: eras, and the window in which free capacity is held back for forgotten holders.
//!
//! An *era* is a time in which the store forgets nothing. A new one begins with another process of the
//! server, and when keys of a semaphore have vanished. Holders do not know of it: they continue to work and
//! to renew. So the store must not grant units that it only believes to be free. It grants none for the
//! *window*: a renewal interval of the longest lease that it knows, unless a client asks for more; after a
//! restart 5 s at most, since a holder that reconnects renews at once.
//!
//! For example, two of three units are held, with leases of 15 s, when the server restarts with nothing on
//! its disk. The first command finds no state and a server that is 1 s old, so a window is open until the
//! server is 5 s old. The holders reconnect and renew within the window. Each renewal names the token and the
//! slot that were granted, and so puts its holder back. A request that comes meanwhile waits, or is refused
//! as *recovering*. When the window ends, one unit is free, and the first waiter gets it. A holder that
//! renews only then is put back if its slot is still free, and has lost its permit otherwise.

use super::execution::Execution;
use super::state::{Entry, ServerClock, signed};
use crate::protocol::Grant;

/// The interval between checks of the server's identity, in microseconds.
pub const IDENTITY_EVERY_US: u64 = 10_000;

/// [`State::era_known`](super::State::era_known) of an era that began because keys had vanished while others
/// were left. Each token is above it, as above the 0 of an era that began with no state at all: there the
/// store may have lost nothing.
pub const PARTLY_LOST: u64 = 1;

impl Execution<'_> {
    /// Notices a new era, of the server or after a loss of state, and opens its recovery window. After a
    /// loss, `damaged` is the time until which the holders that it forgot come, in milliseconds.
    pub(super) fn open_window(&mut self, server: &ServerClock<'_>, existed: bool, damaged: Option<u64>) {
        let (now_us, now_ms) = (self.now_us, self.now_ms);
        let state = &mut self.state;
        let lease_known = state.lease_max_ms;
        let lease_max_ms = lease_known.max(self.command.longest_lease_ms());
        if !self.command.only_looks() {
            state.lease_max_ms = lease_max_ms;
        }
        let window_ms = self.command.recovery.window().of(lease_max_ms);
        self.window_ms = window_ms;
        // A window that was open when the clock was set back is as long as before.
        if now_us < state.checked_us {
            let back_ms = state.checked_us / 1000 - now_ms;
            state.recovering_until_ms = state.recovering_until_ms.saturating_sub(back_ms);
        }
        if let Some(until_ms) = damaged {
            // The holders are alive, and renew as ever: nothing makes them reconnect.
            state.server = server.run_id.to_owned();
            state.checked_us = now_us;
            state.era_known = PARTLY_LOST;
            state.era_began_us = now_us;
            state.recovering_until_ms = state.recovering_until_ms.max(until_ms);
            state.expires_ms = state.expires_ms.max(state.recovering_until_ms);
        } else if !existed {
            // A young server may have forgotten holders. An older server without state has no holders to
            // forget, unless it was flushed: the reclaim bounds that over-grant.
            if server.uptime_ms < window_ms {
                state.recovering_until_ms = now_ms - server.uptime_ms + window_ms;
            }
        } else if now_us < state.checked_us || now_us - state.checked_us >= IDENTITY_EVERY_US {
            state.checked_us = now_us;
            if state.server != server.run_id {
                state.server = server.run_id.to_owned();
                state.era_known = state.last_token;
                state.era_began_us = now_us;
                state.recovering_until_ms = now_ms + window_ms;
            }
        }
        if existed && now_ms < state.recovering_until_ms && state.lease_max_ms > lease_known {
            state.recovering_until_ms =
                state.recovering_until_ms.max(now_ms.min(state.era_began_us / 1000) + window_ms);
        }
    }

    /// Returns true if the store may have granted this before the era, and have forgotten it. One lease after
    /// the era began, every surviving holder has either renewed or given up.
    ///
    /// A session that renews has held its permit all along, so the store has lost it, however little it knows
    /// of that. A handle may have been forgotten as idle long after its lease, or be invented. It counts only
    /// if the store knows of a loss since the grant. Without any state, that is a start of the server since.
    /// And once a permit has been granted in this era, it may have been of the handle's slot.
    pub(super) fn may_have_forgotten(&self, grant: Grant, lease_ms: u64) -> bool {
        let state = &self.state;
        let mut lost_us = state.era_began_us;
        if self.command.is_by_handle() {
            if state.era_known == 0 {
                lost_us = lost_us.min(self.started_us);
            }
            if state.last_token >= state.era_began_us {
                return false;
            }
        }
        let is_earlier = state.era_known < grant.token && grant.token < lost_us;
        is_earlier && self.now_ms < lost_us / 1000 + lease_ms
    }

    /// Keeps the window open for a forgotten holder that does not fit. Holders that are gone, and whose
    /// releases were lost, may have its units until their leases end. Then it is the next, and no waiter.
    pub(super) fn extend_window(&mut self, lease_ms: u64) {
        if self.is_recovering() {
            let until_ms = (self.now_ms + self.window_ms).min(self.state.era_began_us / 1000 + lease_ms);
            self.state.recovering_until_ms = self.state.recovering_until_ms.max(until_ms);
        }
    }

    /// Returns true if the units of this holder are withheld while the store recovers: it was not renewed in
    /// this era, so its first release may have been lost with the grant of its units.
    pub(super) fn is_withheld(&self, entry: &Entry) -> bool {
        let renewed_ms = entry.deadline - signed(entry.terms.lease_ms);
        self.is_recovering() && renewed_ms < signed(self.state.era_began_us / 1000)
    }

    /// Returns true if a recovery window is open.
    pub(super) fn is_recovering(&self) -> bool {
        self.now_ms < self.state.recovering_until_ms
    }
}
