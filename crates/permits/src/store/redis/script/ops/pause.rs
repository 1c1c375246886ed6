//! `pause`: see `pause.lua`. It has no answer of its own.

use redis::Cmd;

#[cfg(feature = "testing")]
use crate::protocol::Operation;
#[cfg(feature = "testing")]
use crate::store::redis::script::arguments::Arguments;
#[cfg(feature = "testing")]
use crate::store::redis::script::values::Decoded;

pub(super) const LUA: &[&str] = &[include_str!("../lua/changes.lua"), include_str!("../lua/pause.lua")];

pub(super) fn encode(cmd: &mut Cmd, paused: bool) {
    cmd.arg(u8::from(paused));
}

#[cfg(feature = "testing")]
pub(super) fn read(arguments: &mut Arguments) -> Decoded<Operation> {
    Ok(Operation::Pause { origin: arguments.origin()?, paused: arguments.number::<u8>()? == 1 })
}
