//! A request as fields: the names, types and units that options have in JSON.
//!
//! `permits hold` and the packages for Python and Node make their requests of JSON, so an option has one
//! name, one unit and one check for all of them. A field that is `null` is not set. Times are milliseconds,
//! and may have a fraction.

use std::time::Duration;

use serde::de::Error as _;
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{AcquireOptions, ClientTerms, Wait};
use crate::json::{Fields, Value};

impl AcquireOptions {
    /// The names of the options in JSON. Those of times end with `_ms`.
    pub const FIELDS: &'static [&'static str] = &[
        "weight",
        "timeout_ms",
        "holder",
        "label",
        "lane",
        "share",
        "lease_ms",
        "at_least_ms",
        "max_hold_ms",
        "auto_renew",
        "supersede",
    ];

    fn set(&mut self, field: &str, value: Value) -> Result<(), String> {
        match field {
            "weight" => self.weight = value.whole("the weight", 1..=u32::MAX.into())?,
            "timeout_ms" => *self = std::mem::take(self).timeout(value.time("the timeout")?),
            "holder" => self.holder = Some(value.text("the holder")?),
            "label" => self.label = Some(value.text("the label")?),
            "lane" => self.lane = Some(value.text("the lane")?),
            "share" => self.share = Some(value.whole("the share", 1..=1_000)?),
            "lease_ms" => self.lease = Some(value.time("the lease")?),
            "at_least_ms" => self.at_least = value.time("the time that the grant counts for")?,
            "max_hold_ms" => self.client.max_hold = Some(value.time("the longest hold")?),
            "auto_renew" => self.client.auto_renew = value.flag("the automatic renewal")?,
            "supersede" => self.supersede = Some(value.text("the supersede key")?),
            _ => unreachable!("{field} is none of the fields"),
        }
        Ok(())
    }
}

/// Checked as by [`AcquireOptions::checked`]. A field that is unknown or there twice is an error.
impl<'de> Deserialize<'de> for AcquireOptions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let fields = Fields::read(deserializer, "an object with the options of a request", Self::FIELDS)?;
        let mut options = Self::new();
        for (field, value) in fields.0 {
            options.set(&field, value).map_err(D::Error::custom)?;
        }
        options.checked().map_err(D::Error::custom)
    }
}

/// The options that differ from those of [`AcquireOptions::new`].
impl Serialize for AcquireOptions {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { weight, holder, label, lease, at_least, lane, share, supersede, client } = self;
        let ClientTerms { wait, auto_renew, max_hold } = client;
        let timeout = match wait {
            Wait::No => Some(Duration::ZERO),
            Wait::AtMost(limit) => Some(*limit),
            Wait::Forever => None,
        };
        let mut fields = serializer.serialize_map(None)?;
        let mut put = |name, value: Option<Value>| match value {
            Some(value) => fields.serialize_entry(name, &value),
            None => Ok(()),
        };
        let text = |text: &Option<String>| text.clone().map(Value::Text);
        put("weight", (*weight != 1).then_some(Value::Whole((*weight).into())))?;
        put("timeout_ms", timeout.map(Value::of_time))?;
        put("holder", text(holder))?;
        put("label", text(label))?;
        put("lane", text(lane))?;
        put("share", share.map(|share| Value::Whole(share.into())))?;
        put("lease_ms", lease.map(Value::of_time))?;
        put("at_least_ms", (!at_least.is_zero()).then(|| Value::of_time(*at_least)))?;
        put("max_hold_ms", max_hold.map(Value::of_time))?;
        put("auto_renew", (!auto_renew).then_some(Value::Flag(false)))?;
        put("supersede", text(supersede))?;
        fields.end()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;

    fn read(fields: serde_json::Value) -> Result<AcquireOptions, String> {
        serde_json::from_value(fields).map_err(|error| error.to_string())
    }

    fn every_option() -> AcquireOptions {
        AcquireOptions::new()
            .weight(2)
            .timeout(Duration::from_millis(1_500))
            .holder("h")
            .label("l")
            .lane("tenant-7")
            .share(3)
            .lease(Duration::from_secs(20))
            .at_least(Duration::from_secs(60))
            .max_hold(Duration::from_secs(90))
            .auto_renew(false)
            .supersede("main")
    }

    #[test]
    fn every_option_is_a_field() {
        let json = serde_json::to_value(every_option()).expect("texts and numbers");
        let expected = json!({
            "weight": 2, "timeout_ms": 1500, "holder": "h", "label": "l", "lane": "tenant-7", "share": 3,
            "lease_ms": 20_000, "at_least_ms": 60_000, "max_hold_ms": 90_000, "auto_renew": false,
            "supersede": "main",
        });
        assert_eq!(json, expected);
        let fields: Map<String, serde_json::Value> = serde_json::from_value(json.clone()).expect("an object");
        for field in AcquireOptions::FIELDS {
            assert!(fields.contains_key(*field), "{field}");
        }
        assert_eq!(fields.len(), AcquireOptions::FIELDS.len());
        assert_eq!(read(json), Ok(every_option()));
    }

    #[test]
    fn no_field_means_the_default() {
        assert_eq!(read(json!({})), Ok(AcquireOptions::new()));
        let null: Map<_, _> =
            AcquireOptions::FIELDS.iter().map(|field| ((*field).into(), json!(null))).collect();
        assert_eq!(read(null.into()), Ok(AcquireOptions::new()));
        assert_eq!(serde_json::to_value(AcquireOptions::new()).expect("an object"), json!({}));
        assert_eq!(read(json!({ "timeout_ms": 0 })), Ok(AcquireOptions::new().no_wait()));
        let half = AcquireOptions::new().timeout(Duration::from_micros(500));
        assert_eq!(read(json!({ "timeout_ms": 0.5 })), Ok(half.clone()));
        assert_eq!(serde_json::to_value(half).expect("an object"), json!({ "timeout_ms": 0.5 }));
    }

    #[test]
    fn a_wrong_field_is_refused_with_the_reason() {
        let long = "x".repeat(200);
        for (fields, reason) in [
            (json!({ "wieght": 2 }), "\"wieght\" is unknown: write \"weight\""),
            (json!({ "lease": 2 }), "\"lease\" is unknown: write \"lease_ms\""),
            (json!({ "colour": null }), "\"colour\" is unknown: there are weight, timeout_ms, holder,"),
            (json!({ "weight": 0 }), "the weight is 0: a permit takes at least 1 unit"),
            (
                json!({ "weight": "2" }),
                "the weight is a whole number from 1 to 4294967295, not the string \"2\"",
            ),
            (json!({ "weight": 1.5 }), "the weight is a whole number from 1 to 4294967295, not 1.5"),
            (json!({ "weight": -1 }), "the weight is a whole number from 1 to 4294967295, not -1"),
            (json!({ "weight": 4_294_967_296_u64 }), "not 4294967296"),
            (json!({ "weight": u64::MAX }), "not 1.8446744073709552e19"),
            (json!({ "weight": true }), "not true"),
            (json!({ "weight": [1] }), "not a list or an object"),
            (json!({ "timeout_ms": -1 }), "the timeout is a time of at least 0 ms, not -1"),
            (json!({ "timeout_ms": 1e300 }), "the timeout is a time of at least 0 ms, not 1e300"),
            (json!({ "timeout_ms": "1s" }), "the timeout is a time of at least 0 ms, not the string \"1s\""),
            (json!({ "holder": 7 }), "the holder is a string, not 7"),
            (json!({ "holder": "" }), "the holder is empty: give it 1 to 200 bytes"),
            (json!({ "label": long }), "the label has 200 bytes: at most 120 are allowed"),
            (json!({ "lease_ms": long }), "xxx…\""),
            (json!({ "lease_ms": 1 }), "a lease of 1 ms is out of range: 100 ms to 1 day"),
            (json!({ "at_least_ms": 86_400_001 }), "a grant that counts for at least 86400001 ms is out of"),
            (json!({ "max_hold_ms": 99 }), "a longest hold of 99ms is out of range: at least 100 ms"),
            (json!({ "auto_renew": 1 }), "the automatic renewal is true or false, not 1"),
            (json!({ "lane": "" }), "the lane is empty: give it 1 to 120 bytes"),
            (json!({ "lane": "a", "share": 0 }), "a share of 0 is out of range: 1 to 1000"),
            (json!({ "share": 2 }), "a share is that of a lane: name the lane"),
            (json!({ "supersede": true }), "the supersede key is a string, not true"),
            (json!({ "supersede": "" }), "the supersede key is empty: give it 1 to 120 bytes"),
            (
                json!({ "supersede": "main", "timeout_ms": 0 }),
                "a request that does not wait cannot supersede another",
            ),
            (json!([1]), "invalid type: sequence, expected an object with the options of a request"),
        ] {
            let refused = read(fields.clone()).expect_err("it is wrong");
            assert!(refused.contains(reason), "{fields}: {refused}");
        }
        let twice = serde_json::from_str::<AcquireOptions>(r#"{"weight": 1, "weight": 2}"#);
        assert!(twice.expect_err("twice").to_string().contains("\"weight\" is there twice"));
    }
}
