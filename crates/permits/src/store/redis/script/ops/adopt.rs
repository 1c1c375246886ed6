//! `adopt`: see `adopt.lua`.

use redis::Cmd;

use crate::protocol::AdoptRequest;
#[cfg(feature = "testing")]
use crate::protocol::{Operation, PermitTerms};
#[cfg(feature = "testing")]
use crate::store::redis::script::arguments::Arguments;
use crate::store::redis::script::values::{Decoded, Fields};

pub(super) const LUA: &[&str] = &[include_str!("../lua/adopt.lua")];

pub(super) fn encode(cmd: &mut Cmd, adopt: &AdoptRequest) {
    cmd.arg(adopt.holder.as_str())
        .arg(adopt.request.as_str())
        .arg(adopt.terms.weight)
        .arg(adopt.terms.lease_ms)
        .arg(adopt.grant.token)
        .arg(adopt.grant.slot)
        .arg(adopt.new_request.as_str())
        .arg(adopt.terms.at_least_ms);
}

pub(super) fn decode(fields: &mut Fields) -> Decoded<bool> {
    fields.flag()
}

#[cfg(feature = "testing")]
pub(super) fn read(arguments: &mut Arguments) -> Decoded<Operation> {
    let (holder, request) = (arguments.holder()?, arguments.request()?);
    let terms = PermitTerms::new(arguments.number()?, arguments.number()?);
    let (grant, new_request) = (arguments.grant()?, arguments.request()?);
    let terms = PermitTerms { at_least_ms: arguments.number()?, ..terms };
    Ok(Operation::Adopt(AdoptRequest { holder, request, terms, grant, new_request }))
}
