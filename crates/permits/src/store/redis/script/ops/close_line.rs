//! `close_line`: see `close_line.lua`. It has no answer of its own.

use redis::Cmd;

#[cfg(feature = "testing")]
use crate::protocol::{Operation, check_reason};
#[cfg(feature = "testing")]
use crate::store::redis::script::arguments::Arguments;
#[cfg(feature = "testing")]
use crate::store::redis::script::values::Decoded;

pub(super) const LUA: &[&str] = &[include_str!("../lua/changes.lua"), include_str!("../lua/close_line.lua")];

pub(super) fn encode(cmd: &mut Cmd, reason: Option<&str>) {
    cmd.arg(u8::from(reason.is_some())).arg(reason.unwrap_or_default());
}

#[cfg(feature = "testing")]
pub(super) fn read(arguments: &mut Arguments) -> Decoded<Operation> {
    let origin = arguments.origin()?;
    let closed = arguments.number::<u8>()? == 1;
    let reason = arguments.parsed(|reason| check_reason(reason).ok())?;
    Ok(Operation::CloseLine { origin, reason: closed.then_some(reason) })
}
