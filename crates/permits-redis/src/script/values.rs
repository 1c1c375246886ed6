//! The values that scripts return, read one after the other.

use std::sync::Arc;

use crate::protocol::{Grant, Holder, Label, LaneName, LanePin, ReleaseOutcome, check_reason};
use crate::resp::Value;

/// A value from a script that does not fit the script's header.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) String);

pub(crate) type Decoded<T> = Result<T, Malformed>;

/// The fault of a reply with an answer that the operation does not have.
pub(super) fn unknown_answer(operation: &str, tag: &str) -> Malformed {
    Malformed(format!("unknown answer to {operation}: {tag:?}"))
}

/// The fields of a reply that are left to read.
pub(super) struct Fields(std::vec::IntoIter<Value>);

impl Fields {
    pub(super) fn new(values: Vec<Value>) -> Self {
        Self(values.into_iter())
    }

    pub(super) fn next(&mut self) -> Decoded<Value> {
        self.0.next().ok_or_else(|| Malformed("shorter than expected".into()))
    }

    /// The number of fields that are left.
    pub(super) fn left(&self) -> usize {
        self.0.len()
    }

    pub(super) fn integer(&mut self) -> Decoded<i64> {
        match self.next()? {
            Value::Int(integer) => Ok(integer),
            other => Err(Malformed(format!("no integer: {other:?}"))),
        }
    }

    pub(super) fn number<T: TryFrom<i64>>(&mut self) -> Decoded<T> {
        let integer = self.integer()?;
        T::try_from(integer).map_err(|_| Malformed(format!("out of range: {integer}")))
    }

    pub(super) fn numbers<T: TryFrom<i64> + Copy + Default, const N: usize>(&mut self) -> Decoded<[T; N]> {
        let mut numbers = [T::default(); N];
        for number in &mut numbers {
            *number = self.number()?;
        }
        Ok(numbers)
    }

    pub(super) fn flag(&mut self) -> Decoded<bool> {
        Ok(self.integer()? != 0)
    }

    pub(super) fn text(&mut self) -> Decoded<String> {
        match self.next()? {
            Value::BulkString(bytes) => {
                String::from_utf8(bytes).map_err(|_| Malformed("text that is not UTF-8".into()))
            }
            Value::SimpleString(text) => Ok(text),
            other => Err(Malformed(format!("no text: {other:?}"))),
        }
    }

    pub(super) fn reason(&mut self) -> Decoded<Arc<str>> {
        check_reason(&self.text()?).map_err(|invalid| Malformed(invalid.to_string()))
    }

    /// The reason of a closed line, in the place of two numbers.
    pub(super) fn line_closed(&mut self) -> Decoded<Arc<str>> {
        let (reason, _) = (self.reason()?, self.integer()?);
        Ok(reason)
    }

    pub(super) fn holder(&mut self) -> Decoded<Holder> {
        Holder::new(&self.text()?).map_err(|invalid| Malformed(invalid.to_string()))
    }

    pub(super) fn label(&mut self) -> Decoded<Label> {
        Label::new(&self.text()?).map_err(|invalid| Malformed(invalid.to_string()))
    }

    pub(super) fn lane(&mut self) -> Decoded<LaneName> {
        LaneName::new(&self.text()?).map_err(|invalid| Malformed(invalid.to_string()))
    }

    /// The limit that was replaced, or 0; and the bounds of a lane, if they were replaced.
    pub(super) fn replaced(&mut self) -> Decoded<(u32, Option<(LaneName, LanePin)>)> {
        if let Some(Value::Int(_)) = self.0.as_slice().first() {
            return Ok((self.number()?, None));
        }
        let text = self.text()?;
        let malformed = || Malformed(format!("no limit and bounds: {text:?}"));
        let mut parts = text.splitn(4, ' ');
        let mut number = || parts.next()?.parse().ok();
        let numbers = (number(), number(), number());
        let (Some(replaced), Some(limit), Some(floor)) = numbers else { return Err(malformed()) };
        let lane = LaneName::new(parts.next().ok_or_else(malformed)?).map_err(|_| malformed())?;
        Ok((replaced, Some((lane, LanePin { limit, floor }))))
    }

    pub(super) fn grant(&mut self) -> Decoded<Grant> {
        Ok(Grant { token: self.number()?, slot: self.number()? })
    }

    /// The state of an entry that `operation` has removed.
    pub(super) fn released(&mut self, operation: &str) -> Decoded<ReleaseOutcome> {
        match self.text()?.as_str() {
            "held" => Ok(ReleaseOutcome::Held),
            "waiting" => Ok(ReleaseOutcome::Waiting),
            "unknown" => Ok(ReleaseOutcome::Unknown),
            other => Err(unknown_answer(operation, other)),
        }
    }

    pub(super) fn each<T>(&mut self, count: usize, read: fn(&mut Self) -> Decoded<T>) -> Decoded<Vec<T>> {
        // Reserves no more than there are fields, because the count may come from the server.
        let mut all = Vec::with_capacity(count.min(self.left()));
        for _ in 0..count {
            all.push(read(self)?);
        }
        Ok(all)
    }
}
