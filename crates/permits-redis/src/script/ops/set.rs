//! `set`: see `set.lua`.

use crate::protocol::{LanePin, LimitChange, Pause, SetOutcome, Setting};
use crate::resp::Cmd;
use crate::script::values::{Decoded, Fields, unknown_answer};

pub(super) const LUA: &[&str] = &[
    include_str!("../lua/changes.lua"),
    include_str!("../lua/settings.lua"),
    include_str!("../lua/lane_pin.lua"),
    include_str!("../lua/set.lua"),
];

pub(super) fn encode(cmd: &mut Cmd, setting: &Setting) {
    match setting {
        Setting::Limit { change, expected_version } => {
            let (kind, number) = match *change {
                LimitChange::Set(limit) => ("set", limit.into()),
                LimitChange::Adjust(number) => ("adjust", number),
                LimitChange::Unpin => ("unpin", 0),
            };
            let version = expected_version.map_or("-1".to_owned(), |version| version.to_string());
            cmd.arg("limit").arg(kind).arg(number).arg(version)
        }
        Setting::Pause(pause) => {
            let for_ms = match pause {
                None => "0".to_owned(),
                Some(Pause { for_ms: None, .. }) => "forever".to_owned(),
                Some(Pause { for_ms: Some(for_ms), .. }) => for_ms.to_string(),
            };
            cmd.arg("pause").arg(for_ms).arg(pause.as_ref().map_or("", |pause| &pause.reason))
        }
        Setting::Line(reason) => {
            cmd.arg("line").arg(u8::from(reason.is_some())).arg(reason.as_deref().unwrap_or_default())
        }
        Setting::Alert(alert) => {
            let (wait_ms, waiting) = alert.numbers();
            cmd.arg("alert").arg(wait_ms).arg(waiting)
        }
        Setting::Lane { lane, pin } => {
            let LanePin { limit, floor } = pin.unwrap_or(LanePin { limit: 0, floor: 0 });
            cmd.arg("lane").arg(lane.as_str()).arg(limit).arg(floor)
        }
    };
}

pub(super) fn decode(fields: &mut Fields) -> Decoded<SetOutcome> {
    let (tag, limit, version) = (fields.text()?, fields.number()?, fields.number()?);
    match tag.as_str() {
        "done" => Ok(SetOutcome::Done { limit, version }),
        "other_version" => Ok(SetOutcome::OtherVersion),
        "no_limit" => Ok(SetOutcome::NoLimit),
        "out_of_range" => Ok(SetOutcome::OutOfRange),
        "floor_above_limit" => Ok(SetOutcome::FloorAboveLimit),
        "too_many_pins" => Ok(SetOutcome::TooManyPins),
        other => Err(unknown_answer("set", other)),
    }
}
