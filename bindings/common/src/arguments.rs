//! Arguments from another language: requests and settings as JSON, and numbers, in the names and units of the
//! language.

use std::time::Duration;

use permits::{AcquireOptions, check};
use serde::Deserialize;
use serde_json::{Map, Number, Value};

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
        let Some(options) = options else { return Ok(AcquireOptions::new()) };
        let fields = self.fields("the options of a request", options, AcquireOptions::FIELDS)?;
        let converted = fields.into_iter().map(|(field, value)| {
            let value = if field.ends_with("_ms") { self.milliseconds(value) } else { value };
            (field.to_owned(), value)
        });
        AcquireOptions::deserialize(Value::Object(converted.collect()))
            .map_err(|error| Failure::invalid(error.to_string()))
    }

    /// The fields of a JSON object that are set, each of them one of `known`, which end with `_ms` if they
    /// are times. `what` the object is, is for the message about one that is none.
    pub(crate) fn fields(
        self,
        what: &str,
        object: &str,
        known: &[&'static str],
    ) -> Result<Vec<(&'static str, Value)>, Failure> {
        let given = serde_json::from_str::<Map<String, Value>>(object)
            .map_err(|_| Failure::invalid(format!("{what} are an object")))?;
        let names: Vec<_> = known.iter().map(|field| self.option(field)).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let mut fields = Vec::new();
        for (name, value) in given {
            check::field(&name, &names)?;
            let field = names.iter().position(|known| *known == name).map(|at| known[at]);
            fields.extend(field.filter(|_| !value.is_null()).map(|field| (field, value)));
        }
        Ok(fields)
    }

    /// A time of a setting.
    pub(crate) fn time(self, name: &str, value: &Value) -> Result<Duration, Failure> {
        let time = value.as_f64().ok_or_else(|| self.no_time(name, &shown(value)))?;
        self.duration(name, time)
    }

    fn no_time(self, name: &str, shown: &str) -> Failure {
        Failure::invalid(format!("{name} is a time of at least 0 {}, not {shown}", self.unit().0))
    }

    /// A time in milliseconds. What is no time stays as it is, to be refused.
    fn milliseconds(self, value: Value) -> Value {
        value.as_f64().map_or(value, |time| in_json(time * self.unit().1))
    }

    /// A time in the unit of the language.
    ///
    /// # Errors
    /// A failure if it is negative, too long or no number.
    pub fn duration(self, name: &str, time: f64) -> Result<Duration, Failure> {
        Duration::try_from_secs_f64(time * self.unit().1 / 1000.0)
            .map_err(|_| self.no_time(name, &time.to_string()))
    }
}

/// A number in JSON. One that JSON cannot have becomes a text, to be refused.
pub(crate) fn in_json(number: f64) -> Value {
    match number as i64 {
        whole if whole as f64 == number => whole.into(),
        _ => Number::from_f64(number).map_or_else(|| number.to_string().into(), Value::Number),
    }
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

/// A value in a message.
pub(crate) fn shown(value: &Value) -> String {
    match value {
        Value::String(text) if text.chars().count() > SHOWN => {
            format!("the string {:?}", text.chars().take(SHOWN).chain(['…']).collect::<String>())
        }
        Value::String(text) => format!("the string {text:?}"),
        Value::Array(_) | Value::Object(_) => "a list or an object".to_owned(),
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
