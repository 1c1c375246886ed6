//! `adopt`: see `adopt.lua`.

use crate::protocol::{AdoptRequest, Grant, PermitTerms};
use crate::resp::Cmd;
use crate::script::values::{Decoded, Fields};

pub(super) const LUA: &[&str] = &[include_str!("../lua/reclaim.lua"), include_str!("../lua/adopt.lua")];

pub(super) fn encode(cmd: &mut Cmd, adopt: &AdoptRequest) {
    let AdoptRequest { holder, request, terms, grant: Grant { token, slot }, new_request, last_token } =
        adopt;
    let PermitTerms { weight, lease_ms, at_least_ms, .. } = terms.of_handle();
    cmd.arg(holder.as_str())
        .arg(request.as_str())
        .arg(weight)
        .arg(lease_ms)
        .arg(*token)
        .arg(*slot)
        .arg(new_request.as_str())
        .arg(at_least_ms)
        .arg(last_token.unwrap_or(0));
}

pub(super) fn decode(fields: &mut Fields) -> Decoded<bool> {
    fields.flag()
}
