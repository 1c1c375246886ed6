//! `revoke`: see `revoke.lua`.

use crate::protocol::{Holder, ReleaseOutcome};
use crate::resp::Cmd;
use crate::script::values::{Decoded, Fields};

pub(super) const LUA: &[&str] = &[include_str!("../lua/changes.lua"), include_str!("../lua/revoke.lua")];

pub(super) fn encode(cmd: &mut Cmd, holder: &Holder, cooling: Option<u64>, reason: &str) {
    cmd.arg(holder.as_str()).arg(cooling.unwrap_or(0)).arg(reason);
}

pub(super) fn decode(fields: &mut Fields) -> Decoded<ReleaseOutcome> {
    fields.released("revoke")
}
