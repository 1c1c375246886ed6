//! The parts of pages that programs write: text between two markers, and numbers.

use std::fs;
use std::path::Path;

use crate::Failure;

/// A part of a page, by the markers before and after it.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// The line before it.
    pub begin: &'a str,
    /// The line after it.
    pub end: &'a str,
}

impl Part<'_> {
    /// Puts text between the markers of a file, or into a new file.
    ///
    /// # Errors
    /// If the file lacks a marker, or cannot be written.
    pub fn put(&self, text: &str, path: &Path) -> Result<(), Failure> {
        let Self { begin, end } = self;
        let old = fs::read_to_string(path).unwrap_or_else(|_| format!("{begin}\n{end}\n"));
        let parts = old.split_once(begin).and_then(|(head, rest)| Some((head, rest.split_once(end)?.1)));
        let (head, tail) = parts.ok_or_else(|| format!("{} lacks {begin}, or its end", path.display()))?;
        Ok(fs::write(path, format!("{head}{begin}\n\n{}\n\n{end}{tail}", text.trim_end()))?)
    }
}

/// Three significant digits.
pub fn digits(value: f64) -> String {
    let size = value.abs();
    if size >= 100.0 || value.fract() == 0.0 {
        format!("{value:.0}")
    } else if size >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}
