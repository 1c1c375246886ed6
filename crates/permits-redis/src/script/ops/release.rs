//! `release`: see `release.lua`.

use crate::protocol::{ReleaseOutcome, ReleaseRequest};
use crate::resp::Cmd;
use crate::script::values::{Decoded, Fields};

pub(super) const HOLDERS_AT: u32 = 8;
pub(super) const ORDINARY: &[&str] = &[
    super::shared::ORDINARY,
    include_str!("../lua/release_ordinary.lua"),
    FREE,
    HAND_OVER,
    super::shared::FINISH_ORDINARY,
];
pub(super) const IN_LANES: &[&str] = &[
    "local grant_in_bounds\nif ordinary and bounded_lanes > 0 then",
    super::shared::BOUNDS,
    include_str!("../lua/release_bounds.lua"),
    "end",
    FREE,
    HAND_OVER,
    super::shared::FINISH_ORDINARY,
];
const FREE: &str = include_str!("../lua/release_free.lua");
const HAND_OVER: &str = include_str!("../lua/hand_over.lua");
pub(super) const LUA: &[&str] = &[include_str!("../lua/release.lua")];

pub(super) fn encode(cmd: &mut Cmd, requests: &[ReleaseRequest]) {
    for ReleaseRequest { holder, request, last_token, counted } in requests {
        cmd.arg(holder.as_str());
        match (last_token, counted) {
            (None, None) => cmd.arg(request.as_str()),
            (Some(token), None) => cmd.arg(format!("{request}\t{token}")),
            (None, Some(units)) => cmd.arg(format!("{request}\t\t{units}")),
            (Some(token), Some(units)) => cmd.arg(format!("{request}\t{token}\t{units}")),
        };
    }
}

/// The answer to one request.
pub(super) fn decode(fields: &mut Fields) -> Decoded<ReleaseOutcome> {
    fields.released("release")
}
