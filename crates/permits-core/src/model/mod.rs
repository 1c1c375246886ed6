//! The executable specification of a semaphore: `apply(state, server, command) → (reply, events)`.
//!
//! Pure: the time and the server's identity are arguments, and nothing is read from outside. The model is
//! used three times: it *is* the memory store, it is the oracle that the Lua of the Redis store is tested
//! against step by step, and it is where a reader learns the behaviour of a semaphore. The Lua follows it
//! name by name; a change here is a change there.
//!
//! Every command takes the same course:
//!
//! 1. **begin**: find the state or start one (`execution`), and notice a new era: of the server, or after a
//!    loss of state (`recovery`);
//! 2. **reap**: remove expired entries (`execution`);
//! 3. **decide**: execute the command's operation (`acquire`, `renew`, `release`, `settings`,
//!    `line`);
//! 4. **promote**: grant the head of the queue while it fits, strictly in order (`grant`);
//! 5. **finish**: sequence number, expiry, and the time of the next renewal (`execution`).
//!
//! An inspection (`inspect`) takes the first two steps on a copy, and changes nothing.
//!
//! Acquisitions promote before they decide, too, so a newcomer never overtakes.
//!
//! The state, and the moves that keep its invariants, are in `state`, `invariants` and `loss`.

mod acquire;
mod execution;
mod grant;
mod inspect;
mod invariants;
mod lanes;
mod limit;
mod line;
mod loss;
mod queue;
mod recovery;
mod release;
mod renew;
mod settings;
mod state;

use self::execution::Execution;
use crate::protocol::{Answers, Command, Event, Operation, Reply};

pub use self::execution::{REAP_MAX, TURNS_MAX};
pub use self::grant::PROMOTE_MAX;
pub use self::inspect::{INSPECT_LANES_MAX, INSPECT_MAX, VIEW_MAX};
pub use self::lanes::{FORGIVEN_MAX, LANES_MAX, Lane, LaneBounds, Lanes, Progress, Side};
pub use self::queue::COUNTED_MAX;
pub use self::recovery::{IDENTITY_EVERY_US, PARTLY_LOST};
pub use self::state::{
    CHANGES_MAX, CHANGES_MIN, Damage, Entry, EntryState, KEPT_TOKENS, PAUSED, Part, RECALL_US, ServerClock,
    State, TURNS_BY_LEASE,
};

/// Executes one command on the state of its semaphore. `None` is a semaphore without state.
pub fn apply(state: &mut Option<State>, server: &ServerClock<'_>, command: &Command) -> (Reply, Vec<Event>) {
    if let Operation::Inspect { max } = command.operation {
        return (inspect::inspect(state.clone(), server, command, max), Vec::new());
    }
    let mut execution = Execution::begin(state.take(), server, command);
    execution.reap(REAP_MAX);
    execution.state.settle_all();
    let answers = match &command.operation {
        Operation::Acquire { queue_max, requests } => execution.acquire(*queue_max, requests),
        Operation::Release(requests) => execution.release(requests),
        Operation::Renew(requests) => execution.renew(requests),
        Operation::Adopt(adopt) => execution.adopt(adopt),
        Operation::Set { origin, setting } => execution.set(origin, setting),
        Operation::Revoke { origin, holder, cooling, reason } => {
            execution.revoke(origin, holder, *cooling, reason)
        }
        // The model's state is always readable.
        Operation::Delete { .. } => execution.delete(),
        Operation::Inspect { .. } => unreachable!("it was answered"),
    };
    let (left, reply, events) = execution.finish(answers);
    *state = left;
    (reply, events)
}

/// The limit under which sessions could keep what they released, at this time of the server's: 0 without a
/// state, so that a first limit is no change; `None` if they could not.
pub fn keepable_limit(state: Option<&State>, now_us: u64) -> Option<u32> {
    let now_ms = now_us / 1000;
    let is_known = |state: &&State| state.damage != Some(Damage::StateLost) && !state.is_expired(now_ms);
    let Some(state) = state.filter(is_known) else { return Some(0) };
    state.is_keepable(now_ms).then_some(state.limit)
}

/// Returns true if a command recalls what sessions keep: units could be kept `before` it, and some may be
/// kept now. After it others need these units, or the limit has changed. The sessions keep nothing again
/// until a reply allows it, so a recall is not repeated while requests wait.
pub fn recalls(before: Option<u32>, after: Option<&State>, reply: &Reply, now_us: u64) -> bool {
    let may_be_kept = after.is_some_and(|state| state.may_be_kept(now_us / 1000));
    let changed = |limit| limit > 0 && reply.limit != limit;
    let changes_nothing = matches!(reply.answers, Answers::Inspect(_));
    !changes_nothing && before.is_some_and(|limit| !reply.keepable || changed(limit)) && may_be_kept
}
