//! `pause`: see `pause.lua`. It has no answer of its own.

use crate::store::redis::resp::Cmd;

pub(super) const LUA: &[&str] = &[include_str!("../lua/changes.lua"), include_str!("../lua/pause.lua")];

pub(super) fn encode(cmd: &mut Cmd, paused: bool) {
    cmd.arg(u8::from(paused));
}
