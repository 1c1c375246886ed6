//! `close_line`: see `close_line.lua`. It has no answer of its own.

use crate::resp::Cmd;

pub(super) const LUA: &[&str] = &[include_str!("../lua/changes.lua"), include_str!("../lua/close_line.lua")];

pub(super) fn encode(cmd: &mut Cmd, reason: Option<&str>) {
    cmd.arg(u8::from(reason.is_some())).arg(reason.unwrap_or_default());
}
