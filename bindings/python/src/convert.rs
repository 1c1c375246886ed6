//! Arguments from Python, and results for it.

use std::time::Duration;

use permits::{AcquireOptions, Inspection};
use permits_bindings::Language;
use pyo3::prelude::*;

use crate::failure::Raise;

/// A time in seconds.
pub(crate) fn duration(name: &str, seconds: f64) -> PyResult<Duration> {
    Language::Python.duration(name, seconds).map_err(Raise::raised)
}

/// A number of units or another count, of at least `least`.
pub(crate) fn count(name: &str, least: u32, number: i64) -> PyResult<u32> {
    permits_bindings::count(name, least, number as f64).map_err(Raise::raised)
}

/// A limit.
pub(crate) fn limit(number: i64) -> PyResult<u32> {
    permits_bindings::limit(number as f64).map_err(Raise::raised)
}

/// A request of the options as JSON.
pub(crate) fn request(options: Option<&str>) -> PyResult<AcquireOptions> {
    Language::Python.request(options).map_err(Raise::raised)
}

/// An inspection as JSON, of which `_types.py` makes the classes.
pub(crate) fn inspection(found: &Inspection) -> String {
    serde_json::to_string(found).expect("numbers, texts and lists of them are JSON")
}
