//! `set_lane`: see `set_lane.lua`.

use crate::protocol::{LaneName, LaneOutcome, LanePin};
use crate::resp::Cmd;
use crate::script::values::{Decoded, Fields, unknown_answer};

pub(super) const LUA: &[&str] = &[include_str!("../lua/changes.lua"), include_str!("../lua/set_lane.lua")];

pub(super) fn encode(cmd: &mut Cmd, lane: &LaneName, pin: Option<LanePin>) {
    let LanePin { limit, floor } = pin.unwrap_or(LanePin { limit: 0, floor: 0 });
    cmd.arg(lane.as_str()).arg(limit).arg(floor);
}

pub(super) fn decode(fields: &mut Fields) -> Decoded<LaneOutcome> {
    match fields.text()?.as_str() {
        "done" => Ok(LaneOutcome::Done),
        "floor_above_limit" => Ok(LaneOutcome::FloorAboveLimit),
        "too_many" => Ok(LaneOutcome::TooMany),
        other => Err(unknown_answer("set_lane", other)),
    }
}
