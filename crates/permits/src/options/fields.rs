//! A request as fields: the names, types and units that options have in JSON.
//!
//! `permits hold` and the packages for Python and Node make their requests from JSON, so an option has one
//! name, one unit and one check for all of them. A field that is `null` counts as not set. Times are in
//! milliseconds, and may have a fraction.

use std::time::Duration;

use serde::de::Error as _;
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{AcquireOptions, ClientTerms, Limit, Wait};
use crate::json::{Fields, Value};

impl AcquireOptions {
    /// The names of the options in JSON. Names of times end with `_ms`.
    pub const FIELDS: &'static [&'static str] = &[
        "weight",
        "timeout_ms",
        "holder",
        "label",
        "lane",
        "share",
        "lane_limit",
        "lane_floor",
        "lane_waiters",
        "lease_ms",
        "at_least_ms",
        "max_hold_ms",
        "auto_renew",
        "supersede",
    ];

    /// The options with one more, which the method of its name sets.
    fn with(self, field: &str, value: Value) -> Result<Self, String> {
        Ok(match field {
            "weight" => self.weight(value.whole(field, 1..=u32::MAX.into())?),
            "timeout_ms" => self.timeout(value.time(field)?),
            "holder" => self.holder(value.text(field)?),
            "label" => self.label(value.text(field)?),
            "lane" => self.lane(value.text(field)?),
            "share" => self.share(value.whole(field, 1..=1_000)?),
            "lane_limit" => self.lane_limit(value.whole(field, 1..=u32::MAX.into())?),
            "lane_floor" => self.lane_floor(value.whole(field, 0..=u32::MAX.into())?),
            "lane_waiters" => self.lane_waiters(value.whole(field, 1..=u32::MAX.into())?),
            "lease_ms" => self.lease(value.time(field)?),
            "at_least_ms" => self.at_least(value.time(field)?),
            "max_hold_ms" => self.max_hold(value.time(field)?),
            "auto_renew" => self.auto_renew(value.flag(field)?),
            "supersede" => self.supersede(value.text(field)?),
            _ => unreachable!("{field} is none of the fields"),
        })
    }
}

/// Reading checks the options as [`AcquireOptions::checked`] does. A field that is unknown or there twice is
/// an error.
impl<'de> Deserialize<'de> for AcquireOptions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let fields = Fields::read(deserializer, "an object with the options of a request", Self::FIELDS)?;
        let mut options = Self::new();
        for (field, value) in fields.0 {
            options = options.with(&field, value).map_err(D::Error::custom)?;
        }
        options.checked().map_err(D::Error::custom)
    }
}

/// A limit is a number in JSON, which is declared, or null, which is [`Limit::Stored`].
impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let limit = match Option::<Value>::deserialize(deserializer)? {
            None => Self::Stored,
            Some(value) => {
                value.whole("limit", 1..=u32::MAX.into()).map(Self::Declared).map_err(D::Error::custom)?
            }
        };
        limit.declaration().map(|_| limit).map_err(D::Error::custom)
    }
}

/// Writes the options that differ from the defaults of [`AcquireOptions::new`].
impl Serialize for AcquireOptions {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self {
            weight,
            holder,
            label,
            lease,
            at_least,
            lane,
            share,
            lane_limit,
            lane_floor,
            supersede,
            client,
        } = self;
        let ClientTerms { wait, auto_renew, max_hold, lane_waiters } = client;
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
        put("lane_limit", lane_limit.map(|limit| Value::Whole(limit.into())))?;
        put("lane_floor", lane_floor.map(|floor| Value::Whole(floor.into())))?;
        put("lane_waiters", lane_waiters.map(|count| Value::Whole(count.into())))?;
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
    use std::collections::BTreeSet;

    use serde_json::{Map, json};

    use super::*;

    /// The table of requests. The tests of every way to make a request walk it.
    fn table(rows: &str) -> Vec<serde_json::Value> {
        let table = include_str!("../../../permits-testkit/requests.json");
        let mut table: Map<_, _> = serde_json::from_str(table).expect("it is an object");
        serde_json::from_value(table.remove(rows).expect("it has them")).expect("a list")
    }

    fn read(fields: serde_json::Value) -> Result<AcquireOptions, String> {
        serde_json::from_value(fields).map_err(|error| error.to_string())
    }

    #[test]
    fn every_option_is_written_as_it_is_read() {
        let mut fields = BTreeSet::new();
        for row in table("options") {
            let json = &row["json"];
            let options = read(json.clone()).expect("it is valid");
            assert_eq!(serde_json::to_value(&options).expect("texts and numbers"), *json);
            assert_ne!(options, AcquireOptions::new(), "{json}");
            fields.extend(json.as_object().expect("an object").keys().cloned());
        }
        assert_eq!(fields, AcquireOptions::FIELDS.iter().map(|field| (*field).to_owned()).collect());
    }

    #[test]
    fn no_field_means_the_default() {
        assert_eq!(read(json!({})), Ok(AcquireOptions::new()));
        let null: Map<_, _> =
            AcquireOptions::FIELDS.iter().map(|field| ((*field).into(), json!(null))).collect();
        assert_eq!(read(null.into()), Ok(AcquireOptions::new()));
        assert_eq!(serde_json::to_value(AcquireOptions::new()).expect("an object"), json!({}));
    }

    #[test]
    fn a_wrong_field_is_refused_with_the_reason() {
        for row in table("wrong").into_iter().filter(|row| !row["json"].is_null()) {
            let refused = read(row["json"].clone()).expect_err("it is wrong");
            assert!(refused.contains(row["words"].as_str().expect("a text")), "{row}: {refused}");
        }
        let limit = |json| serde_json::from_value::<Limit>(json).map_err(|error| error.to_string());
        assert_eq!((limit(json!(null)), limit(json!(4))), (Ok(Limit::Stored), Ok(Limit::Declared(4))));
        assert_eq!(
            limit(json!("4")),
            Err("limit is a whole number from 1 to 4294967295, not the string \"4\"".into())
        );
        assert!(limit(json!(0)).expect_err("it is 0").starts_with("the limit is 0: it must be at least 1"));
        let list = read(json!([1])).expect_err("no object");
        assert_eq!(list, "invalid type: sequence, expected an object with the options of a request");
        let twice = serde_json::from_str::<AcquireOptions>(r#"{"weight": 1, "weight": 2}"#);
        assert!(twice.expect_err("twice").to_string().contains("\"weight\" is there twice"));
    }
}
