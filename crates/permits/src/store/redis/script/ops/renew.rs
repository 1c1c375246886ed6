//! `renew`: see `renew.lua`.

use redis::Cmd;

#[cfg(feature = "testing")]
use crate::protocol::Operation;
use crate::protocol::{Grant, RenewOutcome, RenewRequest};
#[cfg(feature = "testing")]
use crate::store::redis::script::arguments::Arguments;
use crate::store::redis::script::values::{Decoded, Fields, unknown_answer};

pub(super) const LUA: &[&str] = &[include_str!("../lua/reclaim.lua"), include_str!("../lua/renew.lua")];

pub(super) fn encode(cmd: &mut Cmd, requests: &[RenewRequest]) {
    for request in requests {
        let Grant { token, slot } = request.grant.unwrap_or(Grant { token: 0, slot: 0 });
        cmd.arg(request.holder.as_str())
            .arg(request.request.as_str())
            .arg(request.weight)
            .arg(request.lease_ms)
            .arg(token)
            .arg(slot)
            .arg(request.label.as_str());
    }
}

/// The answer to one request.
pub(super) fn decode(fields: &mut Fields) -> Decoded<RenewOutcome> {
    let tag = fields.text()?;
    if tag == "granted" {
        return Ok(RenewOutcome::Granted(fields.grant()?));
    }
    let (position, _) = (fields.number()?, fields.integer()?);
    Ok(match tag.as_str() {
        "held" => RenewOutcome::Held,
        "waiting" => RenewOutcome::Waiting { position },
        "lost" => RenewOutcome::Lost,
        "again" => RenewOutcome::RetryLater,
        "exceeds_limit" => RenewOutcome::ExceedsLimit,
        other => return Err(unknown_answer("renew", other)),
    })
}

#[cfg(feature = "testing")]
pub(super) fn read(arguments: &mut Arguments) -> Decoded<Operation> {
    let requests = arguments.each(|arguments| {
        Ok(RenewRequest {
            holder: arguments.holder()?,
            request: arguments.request()?,
            weight: arguments.number()?,
            lease_ms: arguments.number()?,
            grant: Some(arguments.grant()?).filter(|grant| grant.token > 0),
            label: arguments.label()?,
        })
    })?;
    Ok(Operation::Renew(requests))
}
