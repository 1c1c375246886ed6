//! The arguments of a recorded command, read in the order in which they were encoded.

use super::entry;
use super::values::{Decoded, Malformed};
use crate::protocol::{ChangeOrigin, Grant, Holder, Label, RenewRequest, RequestId, SessionId};

/// The arguments, and the number of the next one.
pub(crate) struct Arguments {
    all: Vec<Vec<u8>>,
    next: usize,
}

impl Arguments {
    pub(crate) fn new(all: Vec<Vec<u8>>) -> Self {
        Self { all, next: 0 }
    }

    pub(crate) fn all(&self) -> &[Vec<u8>] {
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

    fn bytes(&mut self) -> Decoded<Vec<u8>> {
        let bytes = self.all.get(self.next).cloned();
        self.next += 1;
        bytes.ok_or_else(|| Malformed(format!("too few arguments: {:?}", self.all)))
    }

    pub(crate) fn text(&mut self) -> Decoded<String> {
        String::from_utf8(self.bytes()?).map_err(|_| Malformed("an argument that is not UTF-8".into()))
    }

    /// A holder and its entry, as the request that renews it.
    pub(super) fn entry(&mut self) -> Decoded<RenewRequest> {
        let holder = self.holder()?;
        Ok(entry::unpack(&holder, &self.bytes()?)?.0)
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

    /// The origin of a change by an operator.
    pub(super) fn origin(&mut self) -> Decoded<ChangeOrigin> {
        Ok(ChangeOrigin { request: self.request()?, by: self.parsed(|text| Label::new(text).ok())? })
    }

    pub(crate) fn holder(&mut self) -> Decoded<Holder> {
        self.parsed(|text| Holder::new(text).ok())
    }

    pub(crate) fn grant(&mut self) -> Decoded<Grant> {
        Ok(Grant { token: self.number()?, slot: self.number()? })
    }
}
