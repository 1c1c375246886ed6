//! `inspect`: see `inspect.lua`.

use crate::protocol::{
    Alert, Counts, Inspected, InspectedHolder, InspectedLane, InspectedPause, InspectedWaiter, Waits,
};
use crate::resp::Cmd;
use crate::script::change;
use crate::script::values::{Decoded, Fields};

pub(super) const LUA: &[&str] = &[
    include_str!("../lua/changes.lua"),
    include_str!("../lua/waiters.lua"),
    include_str!("../lua/inspect.lua"),
];

pub(super) fn encode(cmd: &mut Cmd, max: u32) {
    cmd.arg(max);
}

pub(super) fn decode(fields: &mut Fields) -> Decoded<Inspected> {
    let (held, cooling, waiting) = (fields.number()?, fields.number()?, fields.number()?);
    let paused = fields.flag()?;
    let (remaining, reason) = (fields.integer()?, fields.reason()?);
    let pause = InspectedPause { remaining_ms: u64::try_from(remaining).ok(), reason };
    let paused = paused.then_some(pause);
    let (closed, reason) = (fields.flag()?, fields.reason()?);
    let closed = closed.then_some(reason);
    let alert = Alert::of(fields.number()?, fields.number()?);
    let counts = Counts::of(fields.numbers()?);
    let waits = Waits::of(fields.number()?, fields.numbers()?);
    let (holders, changes, waiters) = (fields.number()?, fields.number()?, fields.number()?);
    let holders = fields.each(holders, |fields| {
        let (holder, weight, grant) = (fields.holder()?, fields.number()?, fields.grant()?);
        let (lease_remaining_ms, flags) = (fields.number()?, fields.number::<u8>()?);
        Ok(InspectedHolder {
            holder,
            weight,
            grant,
            lease_remaining_ms,
            cooling: flags & 1 != 0,
            keep: flags & 2 != 0,
            label: fields.label()?,
            lane: fields.lane()?,
        })
    })?;
    let changes = fields.each(changes, change::decode)?;
    let waiters = fields.each(waiters, |fields| {
        Ok(InspectedWaiter {
            holder: fields.holder()?,
            weight: fields.number()?,
            queued_us: fields.number()?,
            label: fields.label()?,
            lane: fields.lane()?,
        })
    })?;
    let lanes = fields.each(fields.left() / 6, |fields| {
        Ok(InspectedLane {
            lane: fields.lane()?,
            waiting: fields.number()?,
            held: fields.number()?,
            limit: fields.number()?,
            floor: fields.number()?,
            pinned: fields.flag()?,
        })
    })?;
    Ok(Inspected {
        held,
        cooling,
        waiting,
        paused,
        closed,
        alert,
        counts,
        waits,
        holders,
        waiters,
        lanes,
        changes,
    })
}
