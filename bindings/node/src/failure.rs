//! [`Failure`] as an error of JavaScript.
//!
//! A JavaScript program tells reasons apart by `code`, and kinds of reasons by class. A failure crosses over
//! as JSON in the message of an error, from which `lib/errors.ts` makes an error of the right class.

use napi::Status;
use permits_bindings::{Attribute, Kind, camel_case};
use serde_json::{Map, Value, json};

pub(crate) use permits_bindings::Failure;

/// The class in `lib/errors.ts`.
fn class(failure: &Failure) -> &'static str {
    match failure.kind {
        Kind::NotNow => "NotNowError",
        Kind::Invalid => "InvalidInputError",
        Kind::Lost => "LostError",
        Kind::Store => "StoreError",
        Kind::Other => "PermitsError",
    }
}

/// The property for an attribute: in camel case, times in milliseconds.
fn property((name, value): &(&'static str, Attribute)) -> (String, Value) {
    let name = camel_case(name);
    match value {
        Attribute::Text(text) => (name, text.as_str().into()),
        Attribute::Number(number) => (name, (*number).into()),
        Attribute::Time(time) => (format!("{name}Ms"), (time.as_secs_f64() * 1000.0).into()),
        Attribute::Flag(flag) => (name, (*flag).into()),
        Attribute::Inspection(json) => (name, serde_json::from_str(json).unwrap_or_default()),
    }
}

/// The JSON from which `lib/errors.ts` makes the error.
pub(crate) fn json_of(failure: impl Into<Failure>) -> String {
    let failure = failure.into();
    let properties: Map<String, Value> = failure.attributes.iter().map(property).collect();
    let class = class(&failure);
    json!({ "class": class, "code": failure.code(), "message": failure.message, "properties": properties })
        .to_string()
}

/// The error that is thrown.
pub(crate) fn thrown(failure: impl Into<Failure>) -> napi::Error {
    napi::Error::new(Status::GenericFailure, json_of(failure))
}
