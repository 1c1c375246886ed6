//! The lines of a program, as requests. A line that is not valid has no effect: its answer names the field.

use std::time::Duration;

use permits::{AcquireOptions, Change, Limit, PermitHandle};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::calls::Call;
use crate::fields::{Fields, Object};
use crate::text;

/// The longest id that is a string, in bytes.
const MAX_ID: usize = 64;

/// The greatest id that is a number: every parser of JSON keeps those up to 2^53 - 1.
const MAX_NUMBER: u64 = (1 << 53) - 1;

/// The columns of a repeated field, and of a line of words, in the answer.
const SHOWN_COLUMNS: usize = 40;

/// The field that says of which kind a line is, and the fields that it may have beside that and its id. A
/// request for a permit also has its options, and a change has its own fields.
const KINDS: [(&str, &[&str]); 11] = [
    ("acquire", &["limit", "require_limit", "also"]),
    ("renew", &[]),
    ("release", &["count"]),
    ("count", &[]),
    ("release_part", &[]),
    ("set_lease_ms", &[]),
    ("hand_over", &[]),
    ("adopt", &[]),
    ("inspect", &["max"]),
    ("list", &[]),
    ("change", &["name"]),
];

/// The fields of a request for a permit of one semaphore, beside its options.
const OF_ONE: [&str; 3] = ["acquire", "limit", "require_limit"];

/// The kinds of lines and the options of a request that a program may write. The first event lists them.
pub(super) fn known() -> Vec<&'static str> {
    let (_, of_acquire) = KINDS[0];
    let kinds = KINDS.iter().map(|(kind, _)| *kind);
    kinds.chain(of_acquire.iter().copied()).chain(AcquireOptions::FIELDS.iter().copied()).collect()
}

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
    Adopt(Box<PermitHandle>),
    Call(Call),
    Release {
        count: Option<u32>,
    },
    /// The units that the grant counts for.
    Count(u32),
    HandOver,
    Operate(Operation),
}

/// An operation on a permit that stays held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Renew,
    ReleasePart(u32),
    SetLease(Duration),
}

impl Operation {
    /// The kind of the line that asked for it.
    pub(super) fn kind(self) -> &'static str {
        match self {
            Self::Renew => "renew",
            Self::ReleasePart(_) => "release_part",
            Self::SetLease(_) => "set_lease_ms",
        }
    }
}

/// A request for a permit, or for several, all or none.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) first: One,
    pub(super) also: Vec<One>,
}

/// A request for a permit of one semaphore.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct One {
    pub(crate) name: String,
    pub(crate) limit: Limit,
    pub(crate) options: AcquireOptions,
    /// True if the request has `at_least`, so its release may correct the units.
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
        ("renew", _) => Wish::Operate(Operation::Renew),
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
    let object = Object::read(line.as_bytes(), "the line", "{\"id\":1,\"acquire\":NAME}");
    let Object { mut fields, twice } = object.map_err(without_id)?;
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
    let has = |kind: &str| fields.0.contains_key(kind);
    // A release may have a count.
    let is_there = |kind: &str| has(kind) && !(kind == "count" && has("release"));
    let kinds: Vec<_> = KINDS.iter().filter(|(kind, _)| is_there(kind)).collect();
    let kind = if let [(kind, _)] = kinds[..] { Some(*kind) } else { None };
    let known: Vec<&str> = match kind {
        Some(kind) => fields_of(kind),
        None => KINDS.iter().flat_map(|(kind, _)| fields_of(kind)).collect(),
    };
    fields.check(&known)?;
    match kind {
        Some("acquire") => Ok(Wish::Acquire(Box::new(request(fields)?))),
        Some("renew") => fields.order("renew").map(|()| Wish::Operate(Operation::Renew)),
        Some("release") => {
            fields.order("release")?;
            Ok(Wish::Release { count: fields.number("count", 0)? })
        }
        Some("count") => fields.number("count", 0)?.map(Wish::Count).ok_or_else(|| not_null("count")),
        Some("release_part") => {
            let units = fields.number("release_part", 1)?.ok_or_else(|| not_null("release_part"))?;
            Ok(Wish::Operate(Operation::ReleasePart(units)))
        }
        Some("set_lease_ms") => Ok(Wish::Operate(Operation::SetLease(fields.time("set_lease_ms")?))),
        Some("hand_over") => fields.order("hand_over").map(|()| Wish::HandOver),
        Some("adopt") => {
            let handle = fields.text("adopt")?.parse::<PermitHandle>();
            Ok(Wish::Adopt(Box::new(handle.map_err(|error| error.to_string())?)))
        }
        Some("inspect") => {
            Ok(Wish::Call(Call::Inspect { name: fields.name("inspect")?, max: fields.number("max", 0)? }))
        }
        Some("list") => fields.order("list").map(|()| Wish::Call(Call::List)),
        Some(_) => {
            let name = fields.name("name")?;
            let change = Change::deserialize(Value::Object(fields.0)).map_err(|error| error.to_string())?;
            Ok(Wish::Call(Call::Change { name, change }))
        }
        None => {
            let names: Vec<_> = KINDS.iter().map(|(kind, _)| format!("{kind:?}")).collect();
            Err(format!("the line must have one of {}", names.join(", ")))
        }
    }
}

/// All fields of a kind of line.
fn fields_of(kind: &'static str) -> Vec<&'static str> {
    let own = KINDS.iter().find(|(name, _)| *name == kind).map_or(&[][..], |(_, own)| own);
    let others = match kind {
        "acquire" => AcquireOptions::FIELDS,
        "change" => Change::FIELDS,
        _ => &[],
    };
    // The fields of a change have its kind, too.
    ["id", kind].iter().chain(own).chain(others.iter().filter(|field| **field != kind)).copied().collect()
}

fn request(mut fields: Fields) -> Result<Request, String> {
    let also = match fields.0.remove("also") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(requests)) => requests.into_iter().map(one_of_also).collect::<Result<_, _>>()?,
        Some(_) => return Err("\"also\" must be a list of objects".to_owned()),
    };
    Ok(Request { first: one(fields)?, also })
}

fn one_of_also(request: Value) -> Result<One, String> {
    let of_also = |reason: String| format!("\"also\": {reason}");
    let Value::Object(fields) = request else { return Err("\"also\" must be a list of objects".to_owned()) };
    One::read(Fields(fields)).map_err(of_also)
}

impl One {
    /// The request that these fields are, which have neither an id nor others with it.
    pub(crate) fn read(fields: Fields) -> Result<Self, String> {
        fields.check(&[&OF_ONE, AcquireOptions::FIELDS].concat())?;
        one(fields)
    }
}

fn one(mut fields: Fields) -> Result<One, String> {
    let name = fields.name("acquire")?;
    let required = fields.flag("require_limit")?;
    let limit = Limit::deserialize(fields.0.remove("limit").unwrap_or_default());
    let limit = match limit.map_err(|error| error.to_string())? {
        Limit::Declared(limit) if required => Limit::Exactly(limit),
        _ if required => return Err("\"require_limit\" needs a \"limit\"".to_owned()),
        limit => limit,
    };
    let counts = fields.0.get("at_least_ms").and_then(Value::as_f64).is_some_and(|time| time > 0.0);
    let options = AcquireOptions::deserialize(Value::Object(fields.0)).map_err(|error| error.to_string())?;
    Ok(One { name, limit, options, counts })
}

fn not_null(name: &str) -> String {
    format!("{name:?} must be a number")
}
