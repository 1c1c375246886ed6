//! Reads requests and changes from objects in JSON, and words the messages for objects that are wrong.
//!
//! The command and programs in other languages pass on what their callers have written, so a message names
//! the field and says what is wrong with it. A field that is `null` counts as not set.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use serde::de::{Error as _, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::check;

/// A text is cut to this many characters in a message.
const SHOWN: usize = 40;

/// The fields of an object that are set, in their order.
pub(crate) struct Fields(pub(crate) Vec<(String, Value)>);

impl Fields {
    /// Reads an object. A field that is unknown, or is there twice, is an error. `what` completes the message
    /// about a value that is not an object.
    pub(crate) fn read<'de, D: Deserializer<'de>>(
        deserializer: D,
        what: &'static str,
        known: &'static [&'static str],
    ) -> Result<Self, D::Error> {
        struct Object(&'static str, &'static [&'static str]);

        impl<'de> Visitor<'de> for Object {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.0)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Fields, A::Error> {
                let (mut fields, mut seen) = (Vec::new(), Vec::new());
                while let Some((field, value)) = entries.next_entry::<String, Option<Value>>()? {
                    check::field(&field, self.1).map_err(A::Error::custom)?;
                    if seen.contains(&field) {
                        return Err(A::Error::custom(format_args!("{field:?} is there twice")));
                    }
                    fields.extend(value.map(|value| (field.clone(), value)));
                    seen.push(field);
                }
                Ok(Fields(fields))
            }
        }

        deserializer.deserialize_map(Object(what, known))
    }

    /// Takes the value of a field, if it is set.
    pub(crate) fn take<T>(
        &mut self,
        field: &str,
        read: impl FnOnce(Value) -> Result<T, String>,
    ) -> Result<Option<T>, String> {
        let at = self.0.iter().position(|(name, _)| name == field);
        at.map(|at| read(self.0.remove(at).1)).transpose()
    }

    /// Takes the value of a field that has to be set.
    pub(crate) fn needed<T>(
        &mut self,
        field: &str,
        read: impl FnOnce(Value) -> Result<T, String>,
    ) -> Result<T, String> {
        self.take(field, read)?.ok_or_else(|| format!("{field:?} is missing"))
    }
}

/// The value of a field.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Value {
    Flag(bool),
    Whole(i64),
    Number(f64),
    Text(String),
    #[serde(skip_serializing)]
    Other(IgnoredAny),
}

impl Value {
    pub(crate) fn of_time(time: Duration) -> Self {
        match i64::try_from(time.as_millis()) {
            Ok(milliseconds) if time.subsec_nanos().is_multiple_of(1_000_000) => Self::Whole(milliseconds),
            _ => Self::Number(time.as_millis() as f64 + f64::from(time.subsec_nanos() % 1_000_000) / 1e6),
        }
    }

    /// Reads a number of the type `T`. The message names `range`; numbers outside of it that fit into `T`
    /// pass here, and the rules of the options refuse them.
    pub(crate) fn whole<T: TryFrom<i64>>(self, what: &str, range: RangeInclusive<i64>) -> Result<T, String> {
        let number = if let Self::Whole(number) = self { T::try_from(number).ok() } else { None };
        number.ok_or_else(|| {
            format!("{what} is a whole number from {} to {}, not {self}", range.start(), range.end())
        })
    }

    pub(crate) fn time(self, what: &str) -> Result<Duration, String> {
        let milliseconds = match self {
            Self::Whole(milliseconds) => u64::try_from(milliseconds).ok().map(Duration::from_millis),
            Self::Number(milliseconds) => Duration::try_from_secs_f64(milliseconds / 1000.0).ok(),
            _ => None,
        };
        milliseconds.ok_or_else(|| format!("{what} is a time of at least 0 ms, not {self}"))
    }

    pub(crate) fn text(self, what: &str) -> Result<String, String> {
        match self {
            Self::Text(text) => Ok(text),
            other => Err(format!("{what} is a string, not {other}")),
        }
    }

    pub(crate) fn flag(self, what: &str) -> Result<bool, String> {
        match self {
            Self::Flag(flag) => Ok(flag),
            other => Err(format!("{what} is true or false, not {other}")),
        }
    }
}

/// Writes a time in milliseconds, or null.
pub(crate) fn time<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    time.map(Value::of_time).serialize(serializer)
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => write!(f, "{flag}"),
            Self::Whole(number) => write!(f, "{number}"),
            Self::Number(number) => write!(f, "{number:?}"),
            Self::Text(text) => match text.char_indices().nth(SHOWN) {
                None => write!(f, "the string {text:?}"),
                Some((end, _)) => write!(f, "the string {:?}", format!("{}…", &text[..end])),
            },
            Self::Other(_) => f.write_str("a list or an object"),
        }
    }
}
