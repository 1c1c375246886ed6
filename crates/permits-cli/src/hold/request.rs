//! The lines of a program, as requests. A line that is not valid has no effect: its answer names the field.

use std::fmt;

use permits::{AcquireOptions, Limit, check};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::text;

/// The longest id that is a string, in bytes.
const MAX_ID: usize = 64;

/// The greatest id that is a number: every parser of JSON keeps those up to 2^53 - 1.
const MAX_NUMBER: u64 = (1 << 53) - 1;

/// The columns of a repeated field, and of a line of words, in the answer.
const SHOWN_COLUMNS: usize = 40;

/// The fields of each kind of line; of a request, those beside its options. The second one says of which kind
/// it is.
const ACQUIRE: [&str; 4] = ["id", "acquire", "limit", "require_limit"];
const RELEASE: [&str; 3] = ["id", "release", "count"];
const RENEW: [&str; 2] = ["id", "renew"];

/// The program's name for a request, from its line to its last event.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(untagged)]
pub(super) enum Id {
    Number(i64),
    Text(Box<str>),
}

impl Id {
    /// The id of the only request, which no line and no event has.
    pub(super) const ONE: Self = Self::Number(0);
}

/// A wish of the program.
#[derive(Debug)]
pub(super) enum Wish {
    Acquire(Box<Request>),
    Release {
        count: Option<u32>,
    },
    /// The units that the grant counts for.
    Count(u32),
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

/// The wish of a line of words, for the only request.
pub(super) fn parse_word(line: &str) -> Result<(Id, Wish), Invalid> {
    let wish = match (line, line.strip_prefix("count ").and_then(|units| units.parse().ok())) {
        ("release", _) => Wish::Release { count: None },
        ("renew", _) => Wish::Renew,
        (_, Some(units)) => Wish::Count(units),
        _ => {
            let line = text::truncate(line, SHOWN_COLUMNS);
            let reason = format!("{line:?} is no command: write release, renew, or count UNITS");
            return Err(Invalid { id: None, reason });
        }
    };
    Ok((Id::ONE, wish))
}

/// The wish of a line of JSON.
pub(super) fn parse(line: &str) -> Result<(Id, Wish), Invalid> {
    let without_id = |reason: String| Invalid { id: None, reason };
    let Object { mut fields, twice } =
        serde_json::from_str(line).map_err(|error| without_id(not_read(&error)))?;
    let id = id(fields.remove("id"));
    if let Some(key) = twice {
        let reason = format!("{:?} is there twice", text::truncate(&key, SHOWN_COLUMNS));
        // Either of two ids may be meant.
        return Err(Invalid { id: id.ok().filter(|_| key != "id"), reason });
    }
    let id = id.map_err(without_id)?;
    match wish(Fields(fields)) {
        Ok(wish) => Ok((id, wish)),
        Err(reason) => Err(Invalid { id: Some(id), reason }),
    }
}

/// A JSON object, and the first key that it has twice.
struct Object {
    fields: Map<String, Value>,
    twice: Option<String>,
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Keys;

        impl<'de> Visitor<'de> for Keys {
            type Value = Object;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Object, A::Error> {
                let (mut fields, mut twice) = (Map::new(), None);
                while let Some((key, value)) = object.next_entry::<String, _>()? {
                    if fields.insert(key.clone(), value).is_some() {
                        twice.get_or_insert(key);
                    }
                }
                Ok(Object { fields, twice })
            }
        }

        deserializer.deserialize_map(Keys)
    }
}

/// The reason without the line, which is always the first.
fn not_read(error: &serde_json::Error) -> String {
    if error.is_data() {
        return "the line is not an object: write {\"id\":1,\"acquire\":NAME}".to_owned();
    }
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
    let acquire = [&ACQUIRE, AcquireOptions::FIELDS].concat();
    let all = [&acquire[..], &RELEASE[..], &RENEW[..]];
    let kinds: Vec<_> = all.into_iter().filter(|kind| fields.0.contains_key(kind[1])).collect();
    let known = match kinds[..] {
        [known] => known,
        _ => &all.concat(),
    };
    for name in fields.0.keys() {
        check::field(name, known).map_err(|error| error.to_string())?;
    }
    if kinds.len() != 1 {
        return Err("the line must have one of \"acquire\", \"release\" and \"renew\"".to_owned());
    }
    match known[1] {
        "acquire" => Ok(Wish::Acquire(Box::new(request(fields)?))),
        "release" => {
            fields.order("release")?;
            Ok(Wish::Release { count: fields.count()? })
        }
        _ => fields.order("renew").map(|()| Wish::Renew),
    }
}

fn request(mut fields: Fields) -> Result<Request, String> {
    let name = match fields.0.remove("acquire") {
        Some(Value::String(name)) => name,
        _ => return Err("\"acquire\" must be a string".to_owned()),
    };
    check::name(&name).map_err(|error| error.to_string())?;
    let required = fields.flag("require_limit")?;
    let limit = Limit::deserialize(fields.0.remove("limit").unwrap_or_default());
    let limit = match limit.map_err(|error| error.to_string())? {
        Limit::Declared(limit) if required => Limit::Exactly(limit),
        _ if required => return Err("\"require_limit\" needs a \"limit\"".to_owned()),
        limit => limit,
    };
    let counts = fields.0.get("at_least_ms").and_then(Value::as_f64).is_some_and(|time| time > 0.0);
    let options = AcquireOptions::deserialize(Value::Object(fields.0)).map_err(|error| error.to_string())?;
    Ok(Request { name, limit, options, counts })
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
            None | Some(Value::Null) => Ok(false),
            Some(Value::Bool(flag)) => Ok(flag),
            Some(_) => Err(format!("{name:?} must be true or false")),
        }
    }

    fn count(&mut self) -> Result<Option<u32>, String> {
        let Some(value) = self.0.remove("count").filter(|value| !value.is_null()) else { return Ok(None) };
        let units = value.as_u64().and_then(|units| u32::try_from(units).ok());
        units.map(Some).ok_or_else(|| format!("\"count\" must be an integer from 0 to {}", u32::MAX))
    }
}
