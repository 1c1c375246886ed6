//! The lines of a program, as requests. A line that is not valid has no effect: its answer names the field.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use permits::{AcquireOptions, InvalidInput, Limit, check};
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::similar::similar;
use crate::text;

/// The longest id that is a string, in bytes.
const MAX_ID: usize = 64;

/// The greatest id that is a number: every parser of JSON keeps those up to 2^53 - 1.
const MAX_NUMBER: u64 = (1 << 53) - 1;

/// The columns of an unknown field in the answer.
const SHOWN_COLUMNS: usize = 40;

/// The fields of each kind of line. The second one says of which kind it is.
const ACQUIRE: [&str; 14] = [
    "id",
    "acquire",
    "limit",
    "weight",
    "timeout_ms",
    "holder",
    "label",
    "lane",
    "share",
    "lease_ms",
    "at_least_ms",
    "max_hold_ms",
    "supersede",
    "require_limit",
];
const RELEASE: [&str; 3] = ["id", "release", "count"];
const RENEW: [&str; 2] = ["id", "renew"];

/// The program's name for a request, from its line to its last event.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(untagged)]
pub(super) enum Id {
    Number(i64),
    Text(Box<str>),
}

/// A wish of the program.
#[derive(Debug)]
pub(super) enum Wish {
    Acquire(Box<Request>),
    Release { count: Option<u32> },
    Renew,
}

/// A request for a permit.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) name: String,
    pub(super) limit: Limit,
    pub(super) options: AcquireOptions,
    /// Its grant counts for some time, so its release may correct the units.
    pub(super) counts: bool,
}

/// The reason why a line has no effect.
#[derive(Debug)]
pub(super) struct Invalid {
    /// The id of the line, if it has one.
    pub(super) id: Option<Id>,
    pub(super) reason: String,
}

/// The wish of a line.
pub(super) fn parse(line: &[u8]) -> Result<(Id, Wish), Invalid> {
    let without_id = |reason: String| Invalid { id: None, reason };
    let line_text = std::str::from_utf8(line).map_err(|_| without_id("the line is not UTF-8".to_owned()))?;
    let object = serde_json::from_str::<Value>(line_text).map_err(|error| without_id(not_json(&error)))?;
    let Value::Object(mut fields) = object else {
        return Err(without_id("the line is not an object: write {\"id\":1,\"acquire\":NAME}".to_owned()));
    };
    let twice = serde_json::from_str::<Twice>(line_text).ok().and_then(|Twice(key)| key);
    if let Some(key) = twice {
        // Either of two ids may be meant.
        let id = id(fields.remove("id")).ok().filter(|_| key != "id");
        return Err(Invalid {
            id,
            reason: format!("{:?} is there twice", text::truncate(&key, SHOWN_COLUMNS)),
        });
    }
    let id = id(fields.remove("id")).map_err(without_id)?;
    match wish(Fields(fields)) {
        Ok(wish) => Ok((id, wish)),
        Err(reason) => Err(Invalid { id: Some(id), reason }),
    }
}

/// The first key that an object has twice. [`Value`] takes the last of its values.
struct Twice(Option<String>);

impl<'de> Deserialize<'de> for Twice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Keys;

        impl<'de> Visitor<'de> for Keys {
            type Value = Twice;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Twice, A::Error> {
                let (mut keys, mut twice) = (BTreeSet::new(), None);
                while let Some((key, IgnoredAny)) = object.next_entry::<String, _>()? {
                    if let Some(key) = keys.replace(key) {
                        twice.get_or_insert(key);
                    }
                }
                Ok(Twice(twice))
            }
        }

        deserializer.deserialize_map(Keys)
    }
}

/// The reason without the line, which is always the first.
fn not_json(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let what = text.split(" at line").next().unwrap_or_default();
    format!("the line is not JSON: {what} at byte {}", error.column())
}

fn id(value: Option<Value>) -> Result<Id, String> {
    match value {
        None => Err("\"id\" is missing".to_owned()),
        Some(Value::String(text)) if (1..=MAX_ID).contains(&text.len()) => Ok(Id::Text(text.into())),
        Some(value) => match value.as_i64().filter(|number| number.unsigned_abs() <= MAX_NUMBER) {
            Some(number) => Ok(Id::Number(number)),
            None => Err(format!(
                "\"id\" must be an integer up to {MAX_NUMBER} or a string of 1 to {MAX_ID} bytes"
            )),
        },
    }
}

fn wish(mut fields: Fields) -> Result<Wish, String> {
    let all = [&ACQUIRE[..], &RELEASE[..], &RENEW[..]];
    let kinds: Vec<_> = all.into_iter().filter(|kind| fields.0.contains_key(kind[1])).collect();
    let known = match kinds[..] {
        [known] => known,
        _ => &all.concat(),
    };
    if let Some(unknown) = fields.0.keys().find(|name| !known.contains(&name.as_str())) {
        return Err(unknown_field(unknown, known));
    }
    if kinds.len() != 1 {
        return Err("the line must have one of \"acquire\", \"release\" and \"renew\"".to_owned());
    }
    match known[1] {
        "acquire" => Ok(Wish::Acquire(Box::new(request(fields)?))),
        "release" => {
            fields.order("release")?;
            Ok(Wish::Release { count: fields.units("count", 0)? })
        }
        _ => fields.order("renew").map(|()| Wish::Renew),
    }
}

fn unknown_field(name: &str, known: &[&str]) -> String {
    let shown = text::truncate(name, SHOWN_COLUMNS);
    match similar(name, known.iter().map(|&name| name.to_owned()).collect()).first() {
        Some(meant) => format!("{shown:?} is no field here: write {meant:?}"),
        None => format!("{shown:?} is no field here: the fields are {}", known.join(", ")),
    }
}

fn request(mut fields: Fields) -> Result<Request, String> {
    let name = fields.text("acquire", check::name)?.unwrap_or_default();
    let required = fields.flag("require_limit")?;
    let limit = match fields.units("limit", 1)? {
        Some(limit) if required => Limit::Exactly(limit),
        Some(limit) => Limit::Declared(limit),
        None if required => return Err("\"require_limit\" needs a \"limit\"".to_owned()),
        None => Limit::Stored,
    };
    let at_least = fields.time("at_least_ms", check::at_least)?.unwrap_or_default();
    let mut options = AcquireOptions::new().at_least(at_least);
    if let Some(weight) = fields.units("weight", 1)? {
        options = options.weight(weight);
    }
    let timeout = fields.time("timeout_ms", |_| Ok(()))?;
    if let Some(timeout) = timeout {
        options = options.timeout(timeout);
    }
    let holder = fields.text("holder", check::holder)?;
    if fields.flag("supersede")? {
        if holder.is_none() || timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Err("\"supersede\" needs a \"holder\", and a wait".to_owned());
        }
        options = options.supersede();
    }
    if let Some(holder) = holder {
        options = options.holder(holder);
    }
    if let Some(label) = fields.text("label", check::label)? {
        options = options.label(label);
    }
    let lane = fields.text("lane", check::lane)?;
    if let Some(share) = fields.units("share", 1)? {
        check::share(share).map_err(|error| format!("\"share\": {error}"))?;
        if lane.is_none() {
            return Err("\"share\" needs a \"lane\"".to_owned());
        }
        options = options.share(share);
    }
    if let Some(lane) = lane {
        options = options.lane(lane);
    }
    if let Some(lease) = fields.time("lease_ms", check::lease)? {
        options = options.lease(lease);
    }
    if let Some(time) = fields.time("max_hold_ms", check::max_hold)? {
        options = options.max_hold(time);
    }
    Ok(Request { name, limit, options, counts: !at_least.is_zero() })
}

/// The fields of a line that are not read yet.
struct Fields(Map<String, Value>);

impl Fields {
    /// A field that must be true.
    fn order(&mut self, name: &str) -> Result<(), String> {
        if self.flag(name)? { Ok(()) } else { Err(format!("{name:?} must be true")) }
    }

    fn flag(&mut self, name: &str) -> Result<bool, String> {
        match self.0.remove(name) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(flag),
            Some(_) => Err(format!("{name:?} must be true or false")),
        }
    }

    fn text(
        &mut self,
        name: &str,
        check: impl Fn(&str) -> Result<(), InvalidInput>,
    ) -> Result<Option<String>, String> {
        match self.0.remove(name) {
            None => Ok(None),
            Some(Value::String(text)) => match check(&text) {
                Ok(()) => Ok(Some(text)),
                Err(error) => Err(format!("{name:?}: {error}")),
            },
            Some(_) => Err(format!("{name:?} must be a string")),
        }
    }

    fn units(&mut self, name: &str, least: u32) -> Result<Option<u32>, String> {
        let Some(value) = self.0.remove(name) else { return Ok(None) };
        let units =
            value.as_u64().and_then(|units| u32::try_from(units).ok()).filter(|units| *units >= least);
        units.map(Some).ok_or_else(|| format!("{name:?} must be an integer from {least} to {}", u32::MAX))
    }

    fn time(
        &mut self,
        name: &str,
        check: impl Fn(Duration) -> Result<(), InvalidInput>,
    ) -> Result<Option<Duration>, String> {
        let Some(value) = self.0.remove(name) else { return Ok(None) };
        let Some(time) = value.as_u64().map(Duration::from_millis) else {
            return Err(format!("{name:?} must be a number of milliseconds, an integer from 0"));
        };
        check(time).map(|()| Some(time)).map_err(|error| format!("{name:?}: {error}"))
    }
}
