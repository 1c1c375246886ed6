//! `pause`: see `pause.lua`. It has no answer of its own.

use crate::protocol::Pause;
use crate::resp::Cmd;

pub(super) const LUA: &[&str] = &[include_str!("../lua/changes.lua"), include_str!("../lua/pause.lua")];

pub(super) fn encode(cmd: &mut Cmd, pause: Option<&Pause>) {
    let for_ms = match pause {
        None => "0".to_owned(),
        Some(Pause { for_ms: None, .. }) => "forever".to_owned(),
        Some(Pause { for_ms: Some(for_ms), .. }) => for_ms.to_string(),
    };
    cmd.arg(for_ms).arg(pause.map_or("", |pause| &pause.reason));
}
