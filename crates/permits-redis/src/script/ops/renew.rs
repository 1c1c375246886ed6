//! `renew`: see `renew.lua`.

use crate::protocol::{RenewOutcome, RenewRequest, SessionId};
use crate::resp::Cmd;
use crate::script::entry::{self, Entry};
use crate::script::values::{Decoded, Fields, unknown_answer};

pub(super) const HOLDERS_AT: u32 = 8;
pub(super) const ORDINARY: &[&str] = &[super::shared::ORDINARY, COURSE, super::shared::FINISH_ORDINARY];
pub(super) const IN_LANES: &[&str] = &[super::shared::LANE_JOIN, COURSE, super::shared::FINISH_ORDINARY];
const COURSE: &str = include_str!("../lua/renew_ordinary.lua");
pub(super) const LUA: &[&str] = &[include_str!("../lua/reclaim.lua"), include_str!("../lua/renew.lua")];

pub(super) fn encode(cmd: &mut Cmd, session: &SessionId, requests: &[RenewRequest]) {
    for RenewRequest { holder, request, terms, lease_version, grant, by_handle: _ } in requests {
        let entry = Entry { request, session, terms, lease_version: *lease_version, grant: *grant };
        cmd.arg(holder.as_str()).arg(entry::pack(holder, &entry));
    }
}

/// The answer to one request.
pub(super) fn decode(fields: &mut Fields) -> Decoded<RenewOutcome> {
    let tag = fields.text()?;
    if tag == "granted" {
        return Ok(RenewOutcome::Granted(fields.grant()?));
    }
    if tag == "line_closed" {
        return Ok(RenewOutcome::LineClosed(fields.line_closed()?));
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
