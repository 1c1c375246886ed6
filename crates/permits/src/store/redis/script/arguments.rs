//! The arguments of a recorded command, read in the order in which they were encoded.

use super::values::{Decoded, Malformed};
use crate::protocol::{Grant, Holder, Label, RequestId, SessionId};

/// The arguments, and the number of the next one.
pub(crate) struct Arguments {
    all: Vec<String>,
    next: usize,
}

impl Arguments {
    pub(crate) fn new(all: Vec<String>) -> Self {
        Self { all, next: 0 }
    }

    pub(crate) fn all(&self) -> &[String] {
        &self.all
    }

    pub(crate) fn is_left(&self) -> bool {
        self.next < self.all.len()
    }

    /// Reads values until no argument is left.
    pub(crate) fn each<T>(&mut self, read: fn(&mut Self) -> Decoded<T>) -> Decoded<Vec<T>> {
        let mut all = Vec::new();
        while self.is_left() {
            all.push(read(self)?);
        }
        Ok(all)
    }

    pub(crate) fn text(&mut self) -> Decoded<String> {
        let text = self.all.get(self.next).cloned();
        self.next += 1;
        text.ok_or_else(|| Malformed(format!("too few arguments: {:?}", self.all)))
    }

    pub(crate) fn parsed<T>(&mut self, parse: impl FnOnce(&str) -> Option<T>) -> Decoded<T> {
        let text = self.text()?;
        parse(&text).ok_or_else(|| Malformed(format!("the argument {text:?}")))
    }

    pub(crate) fn number<T: std::str::FromStr>(&mut self) -> Decoded<T> {
        self.parsed(|text| text.parse().ok())
    }

    pub(crate) fn session(&mut self) -> Decoded<SessionId> {
        self.parsed(|text| SessionId::new(text).ok())
    }

    pub(crate) fn request(&mut self) -> Decoded<RequestId> {
        self.parsed(|text| RequestId::new(text).ok())
    }

    pub(crate) fn holder(&mut self) -> Decoded<Holder> {
        self.parsed(|text| Holder::new(text).ok())
    }

    pub(crate) fn label(&mut self) -> Decoded<Label> {
        self.parsed(|text| Label::new(text).ok())
    }

    pub(crate) fn grant(&mut self) -> Decoded<Grant> {
        Ok(Grant { token: self.number()?, slot: self.number()? })
    }
}
