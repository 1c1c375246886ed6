//! Arguments from another language: requests and settings as JSON, and numbers. They have the names and units
//! of that language.

use std::time::Duration;

use permits::{AcquireOptions, check};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::failure::Failure;

/// A text is cut to this many characters in a message.
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
    /// The name of an option: the name of its field, without the unit.
    pub(crate) fn option(self, field: &str) -> String {
        let field = field.strip_suffix("_ms").unwrap_or(field);
        match self {
            Self::Python => field.to_owned(),
            Self::JavaScript => camel_case(field),
        }
    }

    /// The name of the unit of times, and how many milliseconds it has.
    fn unit(self) -> (&'static str, f64) {
        match self {
            Self::Python => ("s", 1000.0),
            Self::JavaScript => ("ms", 1.0),
        }
    }

    /// Makes a request from a JSON object whose names and units are those of the language. `None` is the
    /// default request.
    ///
    /// # Errors
    /// A failure that says why the request is not valid.
    pub fn request(self, options: Option<&str>) -> Result<AcquireOptions, Failure> {
        self.read(self.options(options)?)
    }

    /// Makes a request from its own options and from `common`, which several requests share. Its own options
    /// precede; if both have a timeout, the shorter one counts.
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

    /// The options of a request, as fields; no fields if there is no text.
    pub(crate) fn options(self, options: Option<&str>) -> Result<Map<String, Value>, Failure> {
        let fields = |options| self.fields("the options of a request", options, AcquireOptions::FIELDS);
        options.map_or_else(|| Ok(Map::new()), fields)
    }

    /// Reads the fields that are set in a JSON object of the language. The result has their names in the
    /// library, of which `known` lists all. Names of times end with `_ms`, and the times are converted to
    /// milliseconds. If the text is not an object, the message says that `what` should be one.
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

    /// Makes a value of the library from its fields. If a field is wrong, the message has its name in the
    /// language.
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
    /// A failure if the time is negative, too long or not a number.
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

/// The time of a field that has been checked already.
pub(crate) fn duration(milliseconds: &Value) -> Duration {
    let seconds = milliseconds.as_f64().unwrap_or_default() / 1000.0;
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

/// Reads an argument in JSON. If the text is not valid JSON, as with a number of a thousand digits, the
/// argument becomes a string, which a check refuses.
pub(crate) fn argument(json: &str) -> Value {
    serde_json::from_str(json).unwrap_or_else(|_| json.into())
}

/// Turns a name such as `max_hold` into `maxHold`.
pub fn camel_case(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |name, word| format!("{name}{}{}", word[..1].to_uppercase(), &word[1..]))
}

/// The text of a setting.
pub(crate) fn text(name: &str, value: &Value) -> Result<String, Failure> {
    let text = value.as_str().map(str::to_owned);
    text.ok_or_else(|| Failure::invalid(format!("{name} is a string, not {}", shown(value))))
}

/// A setting that is true or false.
pub(crate) fn flag(name: &str, value: &Value) -> Result<bool, Failure> {
    value.as_bool().ok_or_else(|| Failure::invalid(format!("{name} is true or false, not {}", shown(value))))
}

/// Writes a value for a message.
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

/// Reads a number of units or another count, of at least `least`.
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
