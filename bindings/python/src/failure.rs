//! [`Failure`] as an exception of Python.
//!
//! The exceptions are classes of `permits.errors`, one for each keyword, because a Python program tells
//! reasons apart by class.

use permits_bindings::{Attribute, Failure};
use pyo3::prelude::*;
use pyo3::types::PyDict;

fn made(failure: Failure, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let classes = py.import("permits.errors")?.getattr("CLASSES")?;
    let class = classes.get_item(failure.keyword)?;
    let attributes = PyDict::new(py);
    for (name, value) in failure.attributes {
        let name = if name == "loss" { "cause" } else { name };
        match value {
            Attribute::Text(text) => attributes.set_item(name, text),
            Attribute::Number(number) => attributes.set_item(name, number),
            Attribute::Time(time) => attributes.set_item(name, time.as_secs_f64()),
            Attribute::Flag(flag) => attributes.set_item(name, flag),
            Attribute::Inspection(json) => attributes.set_item(name, inspection(&json, py)?),
        }?;
    }
    class.call((in_python(failure.message),), Some(&attributes))
}

/// Makes the object of an inspection.
fn inspection<'py>(json: &str, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
    let class = py.import("permits._inspection")?.getattr("Inspection")?;
    py.import("permits._types")?.getattr("made")?.call1((class, json))
}

/// Messages end with the refused value as JSON writes it. Returns the message with the value as Python writes
/// it.
fn in_python(message: String) -> String {
    for (json, python) in [("true", "True"), ("false", "False"), ("null", "None")] {
        if let Some(rest) = message.strip_suffix(json).filter(|rest| rest.ends_with(", not ")) {
            return format!("{rest}{python}");
        }
    }
    message
}

/// A failure to raise.
pub(crate) struct Raised(pub(crate) Failure);

impl From<Failure> for Raised {
    fn from(failure: Failure) -> Self {
        Self(failure)
    }
}

impl From<Raised> for PyErr {
    fn from(Raised(failure): Raised) -> Self {
        Python::attach(|py| match made(failure, py) {
            // Raise by the type: an exception object that is raised as it is gets no `__context__`.
            Ok(exception) => PyErr::from_type(exception.get_type(), exception.unbind()),
            Err(error) => error,
        })
    }
}

/// Makes an exception to return, not to raise.
pub(crate) fn exception(failure: Option<Failure>, py: Python<'_>) -> Option<Py<PyAny>> {
    let made =
        |failure| made(failure, py).map_or_else(|error| error.into_value(py).into_any(), Bound::unbind);
    failure.map(made)
}
