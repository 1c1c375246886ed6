//! Arguments from another language: requests and settings as JSON, and numbers, in the names and units of the
//! language.

use std::time::Duration;

use permits::{AcquireOptions, check};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::failure::Failure;

/// The longest text in a message, in characters.
const SHOWN: usize = 40;

/// A language: its spelling of options, and its unit of times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// `max_hold`, in seconds.
    Python,
    /// `maxHold`, in milliseconds.
    JavaScript,
}

impl Language {
    /// The name of an option: that of the field, without its unit.
    pub(crate) fn option(self, field: &str) -> String {
        let field = field.strip_suffix("_ms").unwrap_or(field);
        match self {
            Self::Python => field.to_owned(),
            Self::JavaScript => camel_case(field),
        }
    }

    /// The unit of times, and its milliseconds.
    fn unit(self) -> (&'static str, f64) {
        match self {
            Self::Python => ("s", 1000.0),
            Self::JavaScript => ("ms", 1.0),
        }
    }

    /// The request of a JSON object whose names and units are those of the language; without one, the
    /// default.
    ///
    /// # Errors
    /// A failure with the reason for which a request is not valid.
    pub fn request(self, options: Option<&str>) -> Result<AcquireOptions, Failure> {
        self.read(self.options(options)?)
    }

    /// A request of these options and of those that are common to several requests: its own precede, and of
    /// two timeouts the shorter one counts.
    pub(crate) fn request_with(
        self,
        common: &Map<String, Value>,
        options: Option<&str>,
    ) -> Result<AcquireOptions, Failure> {
        let mut own = self.options(options)?;
        let timeout = |options: &Map<_, Value>| options.get("timeout_ms").and_then(Value::as_f64);
        if timeout(common).zip(timeout(&own)).is_some_and(|(common, own)| common < own) {
            own.remove("timeout_ms");
        }
        let mut options = common.clone();
        options.extend(own);
        self.read(options)
    }

    /// The options of a request as its fields; without a text, none.
    pub(crate) fn options(self, options: Option<&str>) -> Result<Map<String, Value>, Failure> {
        let fields = |options| self.fields("the options of a request", options, AcquireOptions::FIELDS);
        options.map_or_else(|| Ok(Map::new()), fields)
    }

    /// The fields that are set in a JSON object of the language, by their names in the library, which are
    /// `known`. Those of times end with `_ms`, and have milliseconds here. `what` the object is, is for the
    /// message about one that is none.
    pub(crate) fn fields(
        self,
        what: &str,
        object: &str,
        known: &[&str],
    ) -> Result<Map<String, Value>, Failure> {
        let given = serde_json::from_str::<Map<String, Value>>(object)
            .map_err(|_| Failure::invalid(format!("{what} are an object")))?;
        let names: Vec<_> = known.iter().map(|field| self.option(field)).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let mut fields = Map::new();
        for (name, value) in given {
            check::field(&name, &names)?;
            let field = names.iter().position(|known| *known == name).map(|at| known[at]);
            match field.filter(|_| !value.is_null()) {
                None => {}
                Some(time) if time.ends_with("_ms") => {
                    fields.insert(time.to_owned(), milliseconds(self.time(&name, &value)?));
                }
                Some(field) => {
                    fields.insert(field.to_owned(), value);
                }
            }
        }
        Ok(fields)
    }

    /// A value of the library, made of its fields. The message about a field has its name in the language.
    pub(crate) fn read<T: DeserializeOwned>(self, fields: Map<String, Value>) -> Result<T, Failure> {
        T::deserialize(Value::Object(fields)).map_err(|error| {
            let message = error.to_string();
            Failure::invalid(match message.split_once(' ') {
                Some((field, fault)) if field.contains('_') => format!("{} {fault}", self.option(field)),
                _ => message,
            })
        })
    }

    /// A time in the unit of the language.
    ///
    /// # Errors
    /// A failure if it is negative, too long or no number.
    pub(crate) fn time(self, name: &str, value: &Value) -> Result<Duration, Failure> {
        let (unit, factor) = self.unit();
        let time = value.as_f64().and_then(|time| Duration::try_from_secs_f64(time * factor / 1000.0).ok());
        time.ok_or_else(|| {
            Failure::invalid(format!("{name} is a time of at least 0 {unit}, not {}", shown(value)))
        })
    }
}

/// A time as milliseconds in JSON.
fn milliseconds(time: Duration) -> Value {
    let number = time.as_nanos() as f64 / 1e6;
    match number as i64 {
        whole if whole as f64 == number => whole.into(),
        _ => number.into(),
    }
}

/// The time of a field, which has been checked.
pub(crate) fn duration(milliseconds: &Value) -> Duration {
    let seconds = milliseconds.as_f64().unwrap_or_default() / 1000.0;
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

/// An argument in JSON. A text that is none, as of a number of a thousand digits, is a string, to be refused.
pub(crate) fn argument(json: &str) -> Value {
    serde_json::from_str(json).unwrap_or_else(|_| json.into())
}

/// A name such as `maxHold`, for `max_hold`.
pub fn camel_case(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |name, word| format!("{name}{}{}", word[..1].to_uppercase(), &word[1..]))
}

/// A text of a setting.
pub(crate) fn text(name: &str, value: &Value) -> Result<String, Failure> {
    let text = value.as_str().map(str::to_owned);
    text.ok_or_else(|| Failure::invalid(format!("{name} is a string, not {}", shown(value))))
}

/// A setting that is true or false.
pub(crate) fn flag(name: &str, value: &Value) -> Result<bool, Failure> {
    value.as_bool().ok_or_else(|| Failure::invalid(format!("{name} is true or false, not {}", shown(value))))
}

/// A value in a message.
pub(crate) fn shown(value: &Value) -> String {
    match value {
        Value::String(text) if text.chars().count() > SHOWN => {
            format!("the string {:?}", text.chars().take(SHOWN).chain(['…']).collect::<String>())
        }
        Value::String(text) => format!("the string {text:?}"),
        Value::Array(_) | Value::Object(_) => "a list or an object".to_owned(),
        Value::Number(number) if number.is_f64() => format!("{:?}", number.as_f64().unwrap_or_default()),
        other => other.to_string(),
    }
}

/// A number of units or another count, of at least `least`.
pub(crate) fn count(name: &str, least: u32, number: &Value) -> Result<u32, Failure> {
    let range = f64::from(least)..=f64::from(u32::MAX);
    match number.as_f64().filter(|number| number.fract() == 0.0 && range.contains(number)) {
        Some(number) => Ok(number as u32),
        None => Err(Failure::invalid(format!(
            "{name} is a whole number from {least} to {}, not {}",
            u32::MAX,
            shown(number)
        ))),
    }
}
