//! `acquire`: see `acquire.lua`.

use crate::protocol::{AcquireOutcome, AcquireRequest, Refusal, SessionId};
use crate::resp::Cmd;
use crate::script::entry::{self, Entry};
use crate::script::values::{Decoded, Fields, unknown_answer};

pub(super) const HOLDERS_AT: u32 = 10;
pub(super) const ORDINARY: &[&str] = &[super::shared::ORDINARY, COURSE, super::shared::FINISH_ORDINARY];
pub(super) const IN_LANES: &[&str] = &[
    super::shared::LANE_JOIN,
    "local put_bounds\nif ordinary and (bounded_lanes > 0 or names_bounds(given[1])) then",
    super::shared::BOUNDS,
    include_str!("../lua/acquire_bounds.lua"),
    "end",
    include_str!("../lua/acquire_lanes.lua"),
    COURSE,
    super::shared::FINISH_ORDINARY,
];
/// A block, because a script may have 200 variables at once.
const COURSE: &str = concat!(
    "do\n",
    include_str!("../lua/acquire_ordinary.lua"),
    include_str!("../lua/acquire_writes.lua"),
    "end"
);
pub(super) const LUA: &[&str] = &[
    include_str!("../lua/not_now.lua"),
    include_str!("../lua/declare.lua"),
    include_str!("../lua/enqueue.lua"),
    include_str!("../lua/acquire.lua"),
];

pub(super) fn encode(cmd: &mut Cmd, session: &SessionId, queue_max: u32, requests: &[AcquireRequest]) {
    let wait = |request: &AcquireRequest| match (request.wait, request.terms.is_keyed(), request.supersedes) {
        (false, ..) => b'0',
        (true, false, _) => b'1',
        (true, true, true) => b'2',
        (true, true, false) => b'3',
    };
    let mut waits: Vec<u8> = requests.iter().map(wait).collect();
    if requests.iter().any(|request| request.lane_waiters > 0) {
        waits.extend(requests.iter().flat_map(|request| request.lane_waiters.to_le_bytes()));
    }
    cmd.arg(queue_max).arg(waits);
    for AcquireRequest { holder, request, terms, wait: _, lane_waiters: _, supersedes: _ } in requests {
        let entry = Entry { request, session, terms, lease_version: 0, grant: None };
        cmd.arg(holder.as_str()).arg(entry::pack(holder, &entry));
    }
}

/// The answer to one request.
pub(super) fn decode(fields: &mut Fields) -> Decoded<AcquireOutcome> {
    let tag = fields.text()?;
    if tag == "granted" {
        return Ok(AcquireOutcome::Granted(fields.grant()?));
    }
    if tag == "line_closed" {
        return Ok(AcquireOutcome::Refused(Refusal::LineClosed(fields.line_closed()?)));
    }
    if tag == "paused" {
        let (remaining, _) = (fields.integer()?, fields.integer()?);
        return Ok(AcquireOutcome::Refused(Refusal::Paused { remaining_ms: u64::try_from(remaining).ok() }));
    }
    if tag == "lane_full" {
        let (remaining, _) = (fields.integer()?, fields.integer()?);
        return Ok(AcquireOutcome::Refused(Refusal::LaneFull {
            remaining_ms: u64::try_from(remaining).ok(),
        }));
    }
    let (position, _) = (fields.number()?, fields.integer()?);
    Ok(match tag.as_str() {
        "waiting" => AcquireOutcome::Waiting { position },
        "no_permits" => AcquireOutcome::Refused(Refusal::NoPermits),
        "recovering" => AcquireOutcome::Refused(Refusal::Recovering),
        "cooling" => AcquireOutcome::Refused(Refusal::Cooling { remaining_ms: position }),
        "exceeds_limit" => AcquireOutcome::Refused(Refusal::ExceedsLimit),
        "exceeds_lane_limit" => AcquireOutcome::Refused(Refusal::ExceedsLaneLimit(
            u32::try_from(position).map_err(|_| unknown_answer("acquire", "a limit that is too large"))?,
        )),
        "already_held" => AcquireOutcome::Refused(Refusal::AlreadyHeld),
        "superseded" => AcquireOutcome::Refused(Refusal::Superseded),
        "queue_full" => AcquireOutcome::Refused(Refusal::QueueFull),
        "lane_queue_full" => AcquireOutcome::Refused(Refusal::LaneQueueFull),
        "no_limit" => AcquireOutcome::Refused(Refusal::NoLimit),
        "limit_mismatch" => AcquireOutcome::Refused(Refusal::LimitMismatch),
        other => return Err(unknown_answer("acquire", other)),
    })
}
