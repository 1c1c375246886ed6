//! [`Failure`] as an exception of Python.
//!
//! The exceptions are classes of `permits.errors`, one for each code, because a Python program distinguishes
//! reasons by class.

use permits_bindings::{Attribute, Kind};
use pyo3::prelude::*;
use pyo3::types::PyDict;

pub(crate) use permits_bindings::Failure;

/// The class of a failure: that of its code, unless Python has a word of its own.
fn class(failure: &Failure) -> String {
    match failure.code {
        "OTHER" if failure.kind == Kind::Store => "StoreError".into(),
        "OTHER" => "PermitsError".into(),
        "INVALID_URL" => "UrlError".into(),
        "TIMED_OUT" => "TimeoutError".into(),
        code => {
            let words = code.split('_').map(|word| format!("{}{}", &word[..1], word[1..].to_lowercase()));
            words.chain(["Error".to_owned()]).collect()
        }
    }
}

fn exception(failure: Failure, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let class = py.import("permits.errors")?.getattr(class(&failure))?;
    let attributes = PyDict::new(py);
    for (name, value) in failure.attributes {
        let name = if name == "loss" { "cause" } else { name };
        match value {
            Attribute::Text(text) => attributes.set_item(name, text),
            Attribute::Number(number) => attributes.set_item(name, number),
            Attribute::Time(time) => attributes.set_item(name, time.as_secs_f64()),
            Attribute::Flag(flag) => attributes.set_item(name, flag),
        }?;
    }
    class.call((failure.message,), Some(&attributes))
}

/// A failure that becomes an exception.
pub(crate) trait Raise {
    /// The exception.
    fn into_py(self, py: Python<'_>) -> PyErr;

    /// The exception, for a caller that is called by Python.
    fn raised(self) -> PyErr;
}

impl Raise for Failure {
    fn into_py(self, py: Python<'_>) -> PyErr {
        exception(self, py).map_or_else(|error| error, PyErr::from_value)
    }

    fn raised(self) -> PyErr {
        Python::attach(|py| self.into_py(py))
    }
}
