//! The line of a remembered change by an operator: `changes.lua` describes it.

use std::str::FromStr;

use super::values::{Decoded, Fields, Malformed};
use crate::protocol::{
    Alert, ChangeEffect, ChangeOrigin, ChangeRecord, Holder, Label, LaneName, LanePin, RequestId,
    check_reason,
};

/// Reads a line.
pub(super) fn decode(fields: &mut Fields) -> Decoded<ChangeRecord> {
    let line = fields.text()?;
    parse(&line).ok_or_else(|| Malformed(format!("no change by an operator: {line:?}")))
}

fn parse(line: &str) -> Option<ChangeRecord> {
    let fields: Vec<&str> = line.split('\t').collect();
    let &[request, at_us, part, what, one, other, reason, by] = &fields[..] else { return None };
    let reason = check_reason(reason).ok()?;
    let effect = match (part, what) {
        ("limit", "limit") => ChangeEffect::Limit { limit: number(one)?, version: number(other)? },
        ("limit", "unpin") => ChangeEffect::Unpin { limit: number(one)?, version: number(other)? },
        ("pause", "pause") => ChangeEffect::Pause { until_ms: number(one)?, reason },
        ("pause", "resume") => ChangeEffect::Resume,
        ("line", "close") => ChangeEffect::Close(reason),
        ("line", "open") => ChangeEffect::Open,
        ("alert", "set") => ChangeEffect::Alert(Alert::of(number(one)?, number(other)?)),
        ("lane", "pin" | "unpin") => {
            let bounds = one.split_once(' ');
            let pin = match (what, bounds) {
                ("pin", Some((limit, floor))) => {
                    Some(LanePin { limit: number(limit)?, floor: number(floor)? })
                }
                ("unpin", None) => None,
                _ => return None,
            };
            ChangeEffect::Lane { lane: LaneName::new(other).ok()?, pin }
        }
        ("revoke", "revoke") => {
            let waited = match one {
                "held" => false,
                "waiting" => true,
                _ => return None,
            };
            ChangeEffect::Revoke { holder: Holder::new(other).ok()?, waited, reason }
        }
        _ => return None,
    };
    let origin = ChangeOrigin { request: RequestId::new(request).ok()?, by: Label::new(by).ok()? };
    Some(ChangeRecord { origin, at_us: number(at_us)?, effect })
}

fn number<T: FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}
