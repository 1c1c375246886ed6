//! `set_limit`: see `set_limit.lua`.

use crate::protocol::{LimitChange, LimitOutcome};
use crate::resp::Cmd;
use crate::script::values::{Decoded, Fields, unknown_answer};

pub(super) const LUA: &[&str] = &[include_str!("../lua/changes.lua"), include_str!("../lua/set_limit.lua")];

pub(super) fn encode(cmd: &mut Cmd, change: LimitChange, expected_version: Option<u64>) {
    let (kind, number) = match change {
        LimitChange::Set(limit) => ("set", limit.into()),
        LimitChange::Adjust(number) => ("adjust", number),
        LimitChange::Unpin => ("unpin", 0),
    };
    cmd.arg(kind).arg(number);
    match expected_version {
        Some(version) => cmd.arg(version),
        None => cmd.arg(-1),
    };
}

pub(super) fn decode(fields: &mut Fields) -> Decoded<LimitOutcome> {
    let (tag, limit, version) = (fields.text()?, fields.number()?, fields.number()?);
    match tag.as_str() {
        "done" => Ok(LimitOutcome::Done { limit, version }),
        "other_version" => Ok(LimitOutcome::OtherVersion),
        "no_limit" => Ok(LimitOutcome::NoLimit),
        "out_of_range" => Ok(LimitOutcome::OutOfRange),
        other => Err(unknown_answer("set_limit", other)),
    }
}
