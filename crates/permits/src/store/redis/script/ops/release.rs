//! `release`: see `release.lua`.

use crate::protocol::{ReleaseOutcome, RequestKey};
use crate::store::redis::resp::Cmd;
use crate::store::redis::script::values::{Decoded, Fields};

pub(super) const HOLDERS_AT: u32 = 8;
pub(super) const ORDINARY: &[&str] = &[
    super::ORDINARY,
    include_str!("../lua/release_ordinary.lua"),
    include_str!("../lua/hand_over.lua"),
    super::FINISH_ORDINARY,
];
pub(super) const LUA: &[&str] = &[include_str!("../lua/release.lua")];

pub(super) fn encode(cmd: &mut Cmd, requests: &[RequestKey]) {
    for request in requests {
        cmd.arg(request.holder.as_str()).arg(request.request.as_str());
    }
}

/// The answer to one request.
pub(super) fn decode(fields: &mut Fields) -> Decoded<ReleaseOutcome> {
    fields.released("release")
}
