//! `release`: see `release.lua`.

use redis::Cmd;

#[cfg(feature = "testing")]
use crate::protocol::Operation;
use crate::protocol::{ReleaseOutcome, RequestKey};
#[cfg(feature = "testing")]
use crate::store::redis::script::arguments::Arguments;
use crate::store::redis::script::values::{Decoded, Fields};

pub(super) const HOLDERS_AT: u32 = 8;
pub(super) const ORDINARY: &[&str] =
    &[super::ORDINARY, include_str!("../lua/release_ordinary.lua"), include_str!("../lua/hand_over.lua")];
pub(super) const LUA: &[&str] = &[include_str!("../lua/release.lua")];

pub(super) fn encode(cmd: &mut Cmd, requests: &[RequestKey]) {
    for request in requests {
        cmd.arg(request.holder.as_str()).arg(request.request.as_str());
    }
}

/// The answer to one request.
pub(super) fn decode(fields: &mut Fields) -> Decoded<ReleaseOutcome> {
    fields.released("release")
}

#[cfg(feature = "testing")]
pub(super) fn read(arguments: &mut Arguments) -> Decoded<Operation> {
    let requests = arguments
        .each(|arguments| Ok(RequestKey { holder: arguments.holder()?, request: arguments.request()? }))?;
    Ok(Operation::Release(requests))
}
