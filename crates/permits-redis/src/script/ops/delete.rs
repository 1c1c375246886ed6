//! `delete`: see `delete.lua`.

use crate::protocol::DeleteOutcome;
use crate::resp::Cmd;
use crate::script::values::{Decoded, Fields, unknown_answer};

pub(super) const UNREADABLE: &[&str] = &[include_str!("../lua/delete_unreadable.lua")];
pub(super) const LUA: &[&str] = &[include_str!("../lua/delete.lua")];

pub(super) fn encode(cmd: &mut Cmd, unreadable: bool) {
    cmd.arg(u8::from(unreadable));
}

pub(super) fn decode(fields: &mut Fields) -> Decoded<DeleteOutcome> {
    let (tag, held, waiting) = (fields.text()?, fields.number()?, fields.number()?);
    match tag.as_str() {
        "deleted" => Ok(DeleteOutcome::Deleted),
        "unknown" => Ok(DeleteOutcome::Unknown),
        "in_use" => Ok(DeleteOutcome::InUse { held, waiting }),
        "recovering" => Ok(DeleteOutcome::Recovering),
        other => Err(unknown_answer("delete", other)),
    }
}
