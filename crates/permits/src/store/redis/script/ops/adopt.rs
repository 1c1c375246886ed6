//! `adopt`: see `adopt.lua`.

use redis::Cmd;

use crate::protocol::AdoptRequest;
#[cfg(feature = "testing")]
use crate::protocol::Operation;
#[cfg(feature = "testing")]
use crate::store::redis::script::arguments::Arguments;
use crate::store::redis::script::values::{Decoded, Fields};

pub(super) const LUA: &[&str] = &[include_str!("../lua/adopt.lua")];

pub(super) fn encode(cmd: &mut Cmd, adopt: &AdoptRequest) {
    cmd.arg(adopt.holder.as_str())
        .arg(adopt.request.as_str())
        .arg(adopt.weight)
        .arg(adopt.lease_ms)
        .arg(adopt.grant.token)
        .arg(adopt.grant.slot)
        .arg(adopt.new_request.as_str())
        .arg(adopt.at_least_ms);
}

pub(super) fn decode(fields: &mut Fields) -> Decoded<bool> {
    fields.flag()
}

#[cfg(feature = "testing")]
pub(super) fn read(arguments: &mut Arguments) -> Decoded<Operation> {
    Ok(Operation::Adopt(AdoptRequest {
        holder: arguments.holder()?,
        request: arguments.request()?,
        weight: arguments.number()?,
        lease_ms: arguments.number()?,
        grant: arguments.grant()?,
        new_request: arguments.request()?,
        at_least_ms: arguments.number()?,
    }))
}
