//! `set_alert`: see `set_alert.lua`. It has no answer of its own.

use crate::protocol::Alert;
use crate::resp::Cmd;

pub(super) const LUA: &[&str] = &[include_str!("../lua/changes.lua"), include_str!("../lua/set_alert.lua")];

pub(super) fn encode(cmd: &mut Cmd, alert: Alert) {
    let (wait_ms, waiting) = alert.numbers();
    cmd.arg(wait_ms).arg(waiting);
}
