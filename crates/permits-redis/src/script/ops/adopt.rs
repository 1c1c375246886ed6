//! `adopt`: see `adopt.lua`.

use crate::protocol::AdoptRequest;
use crate::resp::Cmd;
use crate::script::values::{Decoded, Fields};

pub(super) const LUA: &[&str] = &[include_str!("../lua/reclaim.lua"), include_str!("../lua/adopt.lua")];

pub(super) fn encode(cmd: &mut Cmd, adopt: &AdoptRequest) {
    cmd.arg(adopt.holder.as_str())
        .arg(adopt.request.as_str())
        .arg(adopt.terms.weight)
        .arg(adopt.terms.lease_ms)
        .arg(adopt.grant.token)
        .arg(adopt.grant.slot)
        .arg(adopt.new_request.as_str())
        .arg(adopt.terms.at_least_ms)
        .arg(adopt.last_token.unwrap_or(0));
}

pub(super) fn decode(fields: &mut Fields) -> Decoded<bool> {
    fields.flag()
}
