//! A change as fields: the names, types and units that it has in JSON.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::Change;
use crate::check;
use crate::json::{Fields, Value};
use crate::protocol::Alert;

/// The changes, as [`Change`] is serialized.
const CHANGES: &[&str] = &[
    "set_limit",
    "adjust_limit",
    "unpin",
    "pause",
    "resume",
    "close_line",
    "open_line",
    "set_alert",
    "set_lane",
    "unpin_lane",
    "revoke",
    "delete",
];

impl Change {
    /// The names of the fields of all changes in JSON. Names of times end with `_ms`.
    pub const FIELDS: &'static [&'static str] = &[
        "change",
        "limit",
        "if_version",
        "by",
        "time_ms",
        "reason",
        "wait_ms",
        "waiting",
        "lane",
        "floor",
        "holder",
        "token",
        "unreadable",
    ];
}

/// Reading checks the change as [`Change::checked`] does. A field that is unknown, belongs to another change,
/// or is there twice is an error.
impl<'de> Deserialize<'de> for Change {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut fields = Fields::read(deserializer, "an object with a change", Self::FIELDS)?;
        let change = read(&mut fields).map_err(D::Error::custom)?;
        change.checked().map_err(D::Error::custom)
    }
}

fn read(fields: &mut Fields) -> Result<Change, String> {
    let name = fields.needed("change", |value| value.text("change"))?;
    check::field(&name, CHANGES).map_err(|invalid| invalid.to_string())?;
    let most = i64::from(u32::MAX);
    let number = |what| move |value: Value| value.whole(what, 0..=i64::MAX);
    let reason = |fields: &mut Fields| {
        fields.take("reason", |value| value.text("reason")).map(Option::unwrap_or_default)
    };
    let change = match name.as_str() {
        "set_limit" => Change::SetLimit {
            limit: fields.needed("limit", |value| value.whole("limit", 1..=most))?,
            if_version: fields.take("if_version", number("if_version"))?,
        },
        "adjust_limit" => {
            Change::AdjustLimit { by: fields.needed("by", |value| value.whole("by", -most..=most))? }
        }
        "unpin" => Change::Unpin,
        "pause" => Change::Pause {
            time: fields.take("time_ms", |value| value.time("time_ms"))?,
            reason: reason(fields)?,
        },
        "resume" => Change::Resume,
        "close_line" => Change::CloseLine { reason: reason(fields)? },
        "open_line" => Change::OpenLine,
        "set_alert" => {
            let wait = fields.take("wait_ms", |value| value.time("wait_ms"))?;
            let waiting = fields.take("waiting", |value| value.whole("waiting", 1..=most))?;
            Change::SetAlert(Alert::new(wait, waiting).map_err(|invalid| invalid.to_string())?)
        }
        "set_lane" => Change::SetLane {
            lane: fields.needed("lane", |value| value.text("lane"))?,
            limit: fields.take("limit", |value| value.whole("limit", 1..=most))?,
            floor: fields.take("floor", |value| value.whole("floor", 0..=most))?,
        },
        "unpin_lane" => Change::UnpinLane { lane: fields.needed("lane", |value| value.text("lane"))? },
        "revoke" => Change::Revoke {
            holder: fields.needed("holder", |value| value.text("holder"))?,
            token: fields.take("token", number("token"))?,
            reason: reason(fields)?,
        },
        "delete" => Change::Delete {
            unreadable: fields.take("unreadable", |value| value.flag("unreadable"))?.unwrap_or(false),
        },
        _ => unreachable!("{name} is none of the changes"),
    };
    match fields.0.first() {
        Some((field, _)) => Err(format!("{field:?} is no field of {name}")),
        None => Ok(change),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::{AcquireOptions, AdminError, Client, Semaphore};

    fn parse(json: &serde_json::Value) -> Result<Change, String> {
        serde_json::from_value(json.clone()).map_err(|error| error.to_string())
    }

    /// The part of a semaphore's state that changes can affect.
    fn state(semaphore: &Semaphore) -> String {
        let seen = semaphore.inspect().wait().expect("it is readable");
        let holders: Vec<_> = seen.holders.iter().map(|info| &info.holder).collect();
        let changes: Vec<_> = seen.changes.iter().map(|info| &info.change).collect();
        let limit = (seen.limit, seen.limit_version, seen.pinned);
        format!("{limit:?} {} {:?} {} {holders:?} {changes:?}", seen.paused, seen.closed, seen.alert)
    }

    #[test]
    fn a_change_in_json_does_what_its_method_does() -> Result<(), Box<dyn std::error::Error>> {
        type Method = fn(&Semaphore, u64) -> Result<(), AdminError>;
        let client = Client::connect("memory:").wait()?;
        // Makes a semaphore with a holder `h`, and a grant of `c` that cools and has this token.
        let semaphore = |name: &str| -> Result<_, Box<dyn std::error::Error>> {
            let semaphore = client.semaphore(name, 3)?;
            let cooling = AcquireOptions::new().holder("c").at_least(Duration::from_secs(3600));
            let permit = semaphore.acquire_with(cooling).wait()?;
            let token = permit.token();
            permit.release().wait()?;
            let held = semaphore.acquire_with(AcquireOptions::new().holder("h")).wait()?;
            Ok((semaphore, token, held))
        };
        let (by_method, method_token, _held) = semaphore("method")?;
        let (by_json, token, _held) = semaphore("json")?;
        let (reason, freed) = (|| "late".to_owned(), format!("free the grant {token} of c that cools"));
        let rows: Vec<(_, Change, Method, &str)> = vec![
            (
                json!({ "change": "set_limit", "limit": 5 }),
                Change::SetLimit { limit: 5, if_version: None },
                |semaphore, _| semaphore.set_limit(5).wait().map(drop),
                "set the limit to 5",
            ),
            (
                json!({ "change": "set_limit", "limit": 7, "if_version": 99 }),
                Change::SetLimit { limit: 7, if_version: Some(99) },
                |semaphore, _| semaphore.set_limit_if_version(7, 99).wait().map(drop),
                "set the limit to 7 if it is at version 99",
            ),
            (
                json!({ "change": "adjust_limit", "by": -2 }),
                Change::AdjustLimit { by: -2 },
                |semaphore, _| semaphore.adjust_limit(-2).wait().map(drop),
                "lower the limit by 2",
            ),
            (
                json!({ "change": "unpin" }),
                Change::Unpin,
                |semaphore, _| semaphore.unpin().wait().map(drop),
                "unpin the limit",
            ),
            (
                json!({ "change": "pause", "time_ms": 3_600_000, "reason": "late" }),
                Change::Pause { time: Some(Duration::from_secs(3600)), reason: reason() },
                |semaphore, _| semaphore.pause_for(Duration::from_secs(3600), "late").wait(),
                "pause for 1 h: late",
            ),
            (
                json!({ "change": "pause", "time_ms": null, "limit": null }),
                Change::Pause { time: None, reason: String::new() },
                |semaphore, _| semaphore.pause("").wait(),
                "pause",
            ),
            (
                json!({ "change": "resume" }),
                Change::Resume,
                |semaphore, _| semaphore.resume().wait(),
                "resume",
            ),
            (
                json!({ "change": "close_line", "reason": "late" }),
                Change::CloseLine { reason: reason() },
                |semaphore, _| semaphore.close_line("late").wait(),
                "close the line: late",
            ),
            (
                json!({ "change": "open_line" }),
                Change::OpenLine,
                |semaphore, _| semaphore.open_line().wait(),
                "open the line",
            ),
            (
                json!({ "change": "set_alert", "wait_ms": 30_000, "waiting": 100 }),
                Change::SetAlert(Alert::of(30_000, 100)),
                |semaphore, _| {
                    semaphore.set_alert(Alert::new(Some(Duration::from_secs(30)), Some(100))?).wait()
                },
                "set the alert to a wait of 30s or 100 waiting",
            ),
            (
                json!({ "change": "set_alert" }),
                Change::SetAlert(Alert::default()),
                |semaphore, _| semaphore.set_alert(Alert::default()).wait(),
                "remove the alert",
            ),
            (
                json!({ "change": "revoke", "holder": "h", "reason": "late" }),
                Change::Revoke { holder: "h".into(), token: None, reason: reason() },
                |semaphore, _| semaphore.revoke("h", "late").wait().map(drop),
                "revoke h: late",
            ),
            (
                json!({ "change": "delete" }),
                Change::Delete { unreadable: false },
                |semaphore, _| semaphore.delete().wait().map(drop),
                "delete",
            ),
            (
                json!({ "change": "set_lane", "lane": "vip", "limit": 2, "floor": 1 }),
                Change::SetLane { lane: "vip".into(), limit: Some(2), floor: Some(1) },
                |semaphore, _| semaphore.set_lane("vip", Some(2), Some(1)).wait(),
                "pin a limit of 2 and a floor of 1 of lane vip",
            ),
            (
                json!({ "change": "set_lane", "lane": "low", "floor": 9 }),
                Change::SetLane { lane: "low".into(), limit: None, floor: Some(9) },
                |semaphore, _| semaphore.set_lane("low", None, Some(9)).wait(),
                "pin a floor of 9 of lane low",
            ),
            (
                json!({ "change": "unpin_lane", "lane": "vip" }),
                Change::UnpinLane { lane: "vip".into() },
                |semaphore, _| semaphore.unpin_lane("vip").wait(),
                "unpin lane vip",
            ),
            (
                json!({ "change": "revoke", "holder": "c", "token": token }),
                Change::Revoke { holder: "c".into(), token: Some(token), reason: String::new() },
                |semaphore, token| semaphore.revoke_cooling("c", token).wait().map(drop),
                &freed,
            ),
            (
                json!({ "change": "delete", "unreadable": true }),
                Change::Delete { unreadable: true },
                |semaphore, _| semaphore.delete_unreadable().wait().map(drop),
                "delete, also if it cannot be read",
            ),
        ];
        for (json, change, method, text) in rows {
            assert_eq!(parse(&json).as_ref(), Ok(&change), "{json}");
            assert_eq!(parse(&serde_json::to_value(&change)?).as_ref(), Ok(&change), "as it is written");
            assert_eq!(change.to_string(), text);
            let expected = method(&by_method, method_token).map_err(|error| error.to_string());
            let changed = by_json.change(change).wait().map(drop).map_err(|error| error.to_string());
            assert_eq!(changed, expected.map_err(|error| error.replace("method", "json")), "{json}");
            assert_eq!(state(&by_json), state(&by_method), "{json}");
        }
        assert!(!by_json.change(Change::Delete { unreadable: false }).wait()?.found, "nothing is left");
        Ok(())
    }

    #[test]
    fn an_alert_that_is_read_is_checked() {
        let read = |alert| serde_json::from_value::<Alert>(alert).map_err(|error| error.to_string());
        let alert = Alert::new(None, Some(100)).expect("it is in range");
        assert_eq!(read(json!(alert)), Ok(alert));
        for wrong in [json!({ "wait_ms": 0 }), json!({ "waiting": 0 }), json!({ "wait_ms": u64::MAX })] {
            assert!(read(wrong.clone()).is_err_and(|error| error.contains("out of range")), "{wrong}");
        }
    }

    #[test]
    fn a_wrong_field_is_refused_with_the_reason() {
        for (fields, reason) in [
            (json!({ "change": "puase" }), "\"puase\" is unknown: write \"pause\""),
            (json!({ "change": "explode" }), "\"explode\" is unknown: there are set_limit, adjust_limit,"),
            (json!({ "change": 1 }), "change is a string, not 1"),
            (json!({ "limit": 1 }), "\"change\" is missing"),
            (json!({ "change": "pause", "raeson": "" }), "\"raeson\" is unknown: write \"reason\""),
            (json!({ "change": "resume", "reason": "" }), "\"reason\" is no field of resume"),
            (json!({ "change": "set_limit" }), "\"limit\" is missing"),
            (json!({ "change": "set_limit", "limit": 0 }), "the limit is 0"),
            (
                json!({ "change": "set_limit", "limit": "3" }),
                "limit is a whole number from 1 to 4294967295, not the string \"3\"",
            ),
            (
                json!({ "change": "set_limit", "limit": 3, "if_version": -1 }),
                "if_version is a whole number from 0 to 9223372036854775807, not -1",
            ),
            (
                json!({ "change": "adjust_limit", "by": 1.5 }),
                "by is a whole number from -4294967295 to 4294967295, not 1.5",
            ),
            (json!({ "change": "pause", "time_ms": "1h" }), "time_ms is a time of at least 0 ms, not"),
            (json!({ "change": "pause", "time_ms": 0 }), "a pause of 0 ms is out of range: 1 ms to 366 days"),
            (json!({ "change": "close_line", "reason": "x".repeat(1_001) }), "the reason has 1001 bytes"),
            (json!({ "change": "set_alert", "wait_ms": 0 }), "an alert at a wait of 0 ms is out of range"),
            (
                json!({ "change": "set_alert", "waiting": 0 }),
                "an alert at 0 waiters is out of range: at least 1",
            ),
            (
                json!({ "change": "set_alert", "waiting": 1_u64 << 32 }),
                "waiting is a whole number from 1 to 4294967295, not 4294967296",
            ),
            (json!({ "change": "set_lane", "limit": 1 }), "\"lane\" is missing"),
            (json!({ "change": "set_lane", "lane": "", "limit": 1 }), "the lane is empty: give it 1 to 120"),
            (
                json!({ "change": "set_lane", "lane": "a" }),
                "neither a limit nor a floor of the lane is given",
            ),
            (json!({ "change": "set_lane", "lane": "a", "floor": 0 }), "neither a limit nor a floor"),
            (json!({ "change": "set_lane", "lane": "a", "limit": 0 }), "the limit of the lane is 0"),
            (
                json!({ "change": "set_lane", "lane": "a", "limit": 1, "floor": 2 }),
                "the floor of the lane is 2: it must be at most 1, its limit",
            ),
            (
                json!({ "change": "set_lane", "lane": "a", "floor": -1 }),
                "floor is a whole number from 0 to 4294967295, not -1",
            ),
            (json!({ "change": "unpin_lane" }), "\"lane\" is missing"),
            (
                json!({ "change": "unpin_lane", "lane": "a", "limit": 1 }),
                "\"limit\" is no field of unpin_lane",
            ),
            (json!({ "change": "revoke" }), "\"holder\" is missing"),
            (json!({ "change": "revoke", "holder": "" }), "the holder is empty: give it 1 to 200 bytes"),
            (json!({ "change": "revoke", "holder": "h", "token": true }), "not true"),
            (json!({ "change": "delete", "unreadable": 1 }), "unreadable is true or false, not 1"),
            (json!("pause"), "invalid type: string \"pause\", expected an object with a change"),
        ] {
            let refused = parse(&fields).expect_err("it is wrong");
            assert!(refused.contains(reason), "{fields}: {refused}");
        }
    }
}
