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
        let milliseconds = value.as_f64().map(|time| time * self.unit().1);
        let number = milliseconds.and_then(|time| match time as i64 {
            whole if whole as f64 == time => Some(whole.into()),
            _ => Number::from_f64(time),
        });
        number.map_or(value, Value::Number)
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

/// A count of a setting.
pub(crate) fn number(name: &str, value: &Value) -> Result<u32, Failure> {
    match value.as_f64() {
        Some(number) => count(name, 0, number),
        None => Err(no_number(name, 0, &shown(value), "")),
    }
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
pub(crate) fn count(name: &str, least: u32, number: f64) -> Result<u32, Failure> {
    whole(name, least, number, "")
}

/// A limit.
pub(crate) fn limit(number: f64) -> Result<u32, Failure> {
    whole("the limit", 1, number, "; to stop all grants, pause the semaphore")
}

fn whole(name: &str, least: u32, number: f64, advice: &str) -> Result<u32, Failure> {
    if number.fract() == 0.0 && (f64::from(least)..=f64::from(u32::MAX)).contains(&number) {
        return Ok(number as u32);
    }
    Err(no_number(name, least, &number.to_string(), advice))
}

fn no_number(name: &str, least: u32, shown: &str, advice: &str) -> Failure {
    let most = u32::MAX;
    Failure::invalid(format!("{name} is a whole number from {least} to {most}, not {shown}{advice}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_language_has_every_option_in_its_own_spelling() {
        let expected = AcquireOptions::new()
            .weight(2)
            .timeout(Duration::from_millis(1_100))
            .holder("h")
            .label("l")
            .lane("tenant-7")
            .share(3)
            .lease(Duration::from_secs(20))
            .at_least(Duration::from_millis(60_500))
            .max_hold(Duration::from_secs(90))
            .auto_renew(false)
            .supersede("main");
        let python = json!({
            "weight": 2, "timeout": 1.1, "holder": "h", "label": "l", "lane": "tenant-7", "share": 3, "lease": 20,
            "at_least": 60.5, "max_hold": 90, "auto_renew": false, "supersede": "main",
        });
        let javascript = json!({
            "weight": 2, "timeout": 1100, "holder": "h", "label": "l", "lane": "tenant-7", "share": 3,
            "lease": 20_000, "atLeast": 60_500, "maxHold": 90_000, "autoRenew": false, "supersede": "main",
        });
        for (language, options) in [(Language::Python, python), (Language::JavaScript, javascript)] {
            let request = language.request(Some(&options.to_string())).expect("it is valid");
            assert_eq!(request, expected, "{language:?}");
            assert_eq!(options.as_object().map(Map::len), Some(AcquireOptions::FIELDS.len()), "{language:?}");
        }
    }

    #[test]
    fn a_name_of_another_spelling_is_unknown() {
        let unknown = |language: Language, options: &str| {
            language.request(Some(options)).expect_err("it is unknown").message
        };
        assert_eq!(
            unknown(Language::Python, r#"{"timeout_ms":1}"#),
            r#""timeout_ms" is unknown: write "timeout""#
        );
        assert_eq!(
            unknown(Language::JavaScript, r#"{"max_hold":1}"#),
            r#""max_hold" is unknown: write "maxHold""#
        );
        assert_eq!(unknown(Language::Python, "[1]"), "the options of a request are an object");
    }
}
