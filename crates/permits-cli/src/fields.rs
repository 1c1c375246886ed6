//! Objects in JSON that programs send, on the lines of `permits hold` and in the bodies of `permits serve`.
//!
//! An object that cannot be read has no effect, and the message names the field and the fault.

use std::fmt;
use std::time::Duration;

use permits::check;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// A JSON object, and the first key that it, or an object in its field `also`, has twice.
pub(crate) struct Object {
    pub(crate) fields: Map<String, Value>,
    pub(crate) twice: Option<String>,
}

impl Object {
    /// Reads an object. `what` is its name in a message: `the line`.
    pub(crate) fn read(text: &[u8], what: &str, example: &str) -> Result<Self, String> {
        serde_json::from_slice(text).map_err(|error| {
            if error.is_data() {
                return format!("{what} is not an object: write {example}");
            }
            // Leave line 1 out: `permits hold` reads each line by itself, so the number would always be 1.
            let text = error.to_string();
            let fault = text.split(" at line").next().unwrap_or_default();
            let at = match error.line() {
                0 | 1 => String::new(),
                line => format!("line {line}, "),
            };
            format!("{what} is not JSON: {fault} at {at}byte {}", error.column())
        })
    }
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
                while let Some(key) = object.next_key::<String>()? {
                    let value = match key == "also" {
                        true => object.next_value::<Also>()?.into_value(&mut twice),
                        false => object.next_value()?,
                    };
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

/// The value of the field `also`, the only one that has objects in it.
#[derive(Deserialize)]
#[serde(untagged)]
enum Also {
    Objects(Vec<Object>),
    Other(Value),
}

impl Also {
    fn into_value(self, twice: &mut Option<String>) -> Value {
        match self {
            Self::Objects(objects) => {
                let fields = objects.into_iter().map(|Object { fields, twice: here }| {
                    *twice = twice.take().or(here);
                    Value::Object(fields)
                });
                fields.collect()
            }
            Self::Other(value) => value,
        }
    }
}

/// The fields of an object that are not read yet.
pub(crate) struct Fields(pub(crate) Map<String, Value>);

impl Fields {
    /// Checks that each field is one of `known`.
    pub(crate) fn check(&self, known: &[&str]) -> Result<(), String> {
        let mut names = self.0.keys();
        names.try_for_each(|name| check::field(name, known)).map_err(|error| error.to_string())
    }

    /// A field that must be true.
    pub(crate) fn order(&mut self, name: &str) -> Result<(), String> {
        if self.flag(name)? { Ok(()) } else { Err(format!("{name:?} must be true")) }
    }

    pub(crate) fn flag(&mut self, name: &str) -> Result<bool, String> {
        match self.0.remove(name) {
            None | Some(Value::Null) => Ok(false),
            Some(Value::Bool(flag)) => Ok(flag),
            Some(_) => Err(format!("{name:?} must be true or false")),
        }
    }

    /// A text that must be there.
    pub(crate) fn text(&mut self, name: &str) -> Result<String, String> {
        match self.0.remove(name) {
            Some(Value::String(text)) => Ok(text),
            _ => Err(format!("{name:?} must be a string")),
        }
    }

    /// The name of a semaphore.
    pub(crate) fn name(&mut self, field: &str) -> Result<String, String> {
        let name = self.text(field)?;
        check::name(&name).map_err(|error| error.to_string())?;
        Ok(name)
    }

    /// A number of at least `least`, if it is there.
    pub(crate) fn number(&mut self, name: &str, least: u32) -> Result<Option<u32>, String> {
        let Some(value) = self.0.remove(name).filter(|value| !value.is_null()) else { return Ok(None) };
        let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
        match number.filter(|number| *number >= least) {
            Some(number) => Ok(Some(number)),
            None => Err(format!("{name:?} must be an integer from {least} to {}", u32::MAX)),
        }
    }

    /// A time that must be there, in milliseconds.
    pub(crate) fn time(&mut self, name: &str) -> Result<Duration, String> {
        let time = self.0.remove(name).and_then(|value| value.as_f64());
        let time = time.and_then(|time| Duration::try_from_secs_f64(time / 1000.0).ok());
        time.ok_or_else(|| format!("{name:?} must be a time in milliseconds"))
    }
}
