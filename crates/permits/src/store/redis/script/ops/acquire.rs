//! `acquire`: see `acquire.lua`.

use redis::Cmd;

#[cfg(feature = "testing")]
use crate::protocol::Operation;
use crate::protocol::{AcquireOutcome, AcquireRequest, Refusal};
#[cfg(feature = "testing")]
use crate::store::redis::script::arguments::Arguments;
use crate::store::redis::script::values::{Decoded, Fields, unknown_answer};

pub(super) const LUA: &[&str] = &[include_str!("../lua/declare.lua"), include_str!("../lua/acquire.lua")];

pub(super) fn encode(cmd: &mut Cmd, queue_max: u32, requests: &[AcquireRequest]) {
    cmd.arg(queue_max);
    for request in requests {
        cmd.arg(request.holder.as_str())
            .arg(request.request.as_str())
            .arg(request.weight)
            .arg(request.lease_ms)
            .arg(u8::from(request.wait))
            .arg(request.label.as_str());
    }
}

/// The answer to one request.
pub(super) fn decode(fields: &mut Fields) -> Decoded<AcquireOutcome> {
    let tag = fields.text()?;
    if tag == "granted" {
        return Ok(AcquireOutcome::Granted(fields.grant()?));
    }
    let (position, _) = (fields.number()?, fields.integer()?);
    Ok(match tag.as_str() {
        "waiting" => AcquireOutcome::Waiting { position },
        "no_permits" => AcquireOutcome::Refused(Refusal::NoPermits),
        "recovering" => AcquireOutcome::Refused(Refusal::Recovering),
        "exceeds_limit" => AcquireOutcome::Refused(Refusal::ExceedsLimit),
        "already_held" => AcquireOutcome::Refused(Refusal::AlreadyHeld),
        "queue_full" => AcquireOutcome::Refused(Refusal::QueueFull),
        "no_limit" => AcquireOutcome::Refused(Refusal::NoLimit),
        "limit_mismatch" => AcquireOutcome::Refused(Refusal::LimitMismatch),
        other => return Err(unknown_answer("acquire", other)),
    })
}

#[cfg(feature = "testing")]
pub(super) fn read(arguments: &mut Arguments) -> Decoded<Operation> {
    let queue_max = arguments.number()?;
    let requests = arguments.each(|arguments| {
        Ok(AcquireRequest {
            holder: arguments.holder()?,
            request: arguments.request()?,
            weight: arguments.number()?,
            lease_ms: arguments.number()?,
            wait: arguments.number::<u8>()? == 1,
            label: arguments.label()?,
        })
    })?;
    Ok(Operation::Acquire { queue_max, requests })
}
