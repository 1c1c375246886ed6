//! Arguments from another language: requests as JSON, and numbers, in the names and units of the language.

use std::ops::RangeInclusive;
use std::time::Duration;

use permits::{AcquireOptions, check};
use serde::Deserialize;
use serde_json::{Map, Number, Value};

use crate::failure::Failure;

/// A language: its spelling of options, and its unit of times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// `max_hold`, in seconds.
    Python,
    /// `maxHold`, in milliseconds.
    JavaScript,
}

impl Language {
    /// The name of an option: that of the [field](AcquireOptions::FIELDS), without its unit.
    fn option(self, field: &str) -> String {
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
        let given = serde_json::from_str::<Map<String, Value>>(options)
            .map_err(|_| Failure::invalid("the options of a request are an object".to_owned()))?;
        let names: Vec<_> = AcquireOptions::FIELDS.iter().map(|field| self.option(field)).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let mut fields = Map::new();
        for (name, value) in given {
            check::field(&name, &names)?;
            let field = names.iter().position(|known| *known == name).map(|at| AcquireOptions::FIELDS[at]);
            let field = field.unwrap_or_default();
            let value = if field.ends_with("_ms") { self.milliseconds(value) } else { value };
            fields.insert(field.to_owned(), value);
        }
        AcquireOptions::deserialize(Value::Object(fields))
            .map_err(|error| Failure::invalid(error.to_string()))
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
        let (unit, milliseconds) = self.unit();
        Duration::try_from_secs_f64(time * milliseconds / 1000.0)
            .map_err(|_| Failure::invalid(format!("{name} is a time of at least 0 {unit}, not {time}")))
    }
}

/// A name such as `maxHold`, for `max_hold`.
pub fn camel_case(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |name, word| format!("{name}{}{}", word[..1].to_uppercase(), &word[1..]))
}

/// A number of units or another count, of at least `least`.
///
/// # Errors
/// A failure if it is out of range.
pub fn count(name: &str, least: u32, number: f64) -> Result<u32, Failure> {
    ranged(name, least..=u32::MAX, number, "")
}

/// A limit.
///
/// # Errors
/// A failure if it is out of range.
pub fn limit(number: f64) -> Result<u32, Failure> {
    ranged("the limit", 1..=u32::MAX, number, "; to stop all grants, pause the semaphore")
}

fn ranged(name: &str, allowed: RangeInclusive<u32>, number: f64, advice: &str) -> Result<u32, Failure> {
    let (least, most) = (*allowed.start(), *allowed.end());
    if number.fract() == 0.0 && (f64::from(least)..=f64::from(most)).contains(&number) {
        return Ok(number as u32);
    }
    Err(Failure::invalid(format!("{name} is a whole number from {least} to {most}, not {number}{advice}")))
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
