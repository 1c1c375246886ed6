//! The forms of replies.

use axum::body::Bytes;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;

/// A reply in JSON.
pub(super) fn json(value: &impl Serialize) -> Response {
    in_json(line(value).into())
}

/// A reply of a text in JSON.
pub(super) fn in_json(text: Bytes) -> Response {
    ([(CONTENT_TYPE, "application/json")], text).into_response()
}

/// A line of JSON. The texts and numbers of a reply have no value that JSON lacks.
pub(super) fn line(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned()) + "\n"
}
