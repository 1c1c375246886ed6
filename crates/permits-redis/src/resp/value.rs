//! The values of replies and messages, and their conversion to the types that callers read.

use std::collections::BTreeMap;

use super::error::{RespError, RespResult, ServerError};

/// A value that a server has sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    /// The null value.
    Nil,
    /// An integer; 1 or 0 for a boolean.
    Int(i64),
    /// A string of bytes, or a verbatim string without its format.
    BulkString(Vec<u8>),
    /// A status. Also a double or a big number, as its text, since no command of the store returns one.
    SimpleString(String),
    /// An array or a set.
    Array(Vec<Value>),
    /// A map, in the server's order.
    Map(Vec<(Value, Value)>),
    /// A message outside of the order of replies. Its first member is its kind.
    Push(Vec<Value>),
    /// An error.
    Error(ServerError),
}

/// A type that a value can be read as.
pub(crate) trait FromValue: Sized {
    /// Fails with the server's error if `value` is one, and with [`RespError::Malformed`] if it is of another
    /// type.
    fn from_value(value: Value) -> RespResult<Self>;
}

impl Value {
    /// The error for a value of another type than expected.
    fn unexpected(self) -> RespError {
        match self {
            Self::Error(error) => error.into(),
            _ => RespError::Malformed,
        }
    }
}

impl FromValue for Value {
    fn from_value(value: Value) -> RespResult<Self> {
        match value {
            Value::Error(error) => Err(error.into()),
            value => Ok(value),
        }
    }
}

impl FromValue for Vec<u8> {
    fn from_value(value: Value) -> RespResult<Self> {
        match value {
            Value::BulkString(bytes) => Ok(bytes),
            Value::SimpleString(text) => Ok(text.into_bytes()),
            other => Err(other.unexpected()),
        }
    }
}

impl FromValue for String {
    fn from_value(value: Value) -> RespResult<Self> {
        String::from_utf8(FromValue::from_value(value)?).map_err(|_| RespError::Malformed)
    }
}

impl FromValue for u64 {
    fn from_value(value: Value) -> RespResult<Self> {
        let number = match value {
            Value::Int(integer) => u64::try_from(integer).ok(),
            text => String::from_value(text)?.parse().ok(),
        };
        number.ok_or(RespError::Malformed)
    }
}

impl FromValue for u32 {
    fn from_value(value: Value) -> RespResult<Self> {
        u64::from_value(value)?.try_into().map_err(|_| RespError::Malformed)
    }
}

impl<T: FromValue> FromValue for Vec<T> {
    fn from_value(value: Value) -> RespResult<Self> {
        match value {
            Value::Array(members) => members.into_iter().map(T::from_value).collect(),
            other => Err(other.unexpected()),
        }
    }
}

impl<A: FromValue, B: FromValue> FromValue for (A, B) {
    fn from_value(value: Value) -> RespResult<Self> {
        let Value::Array(members) = value else { return Err(value.unexpected()) };
        let [first, second] = <[Value; 2]>::try_from(members).map_err(|_| RespError::Malformed)?;
        Ok((A::from_value(first)?, B::from_value(second)?))
    }
}

impl FromValue for BTreeMap<String, String> {
    fn from_value(value: Value) -> RespResult<Self> {
        let Value::Map(pairs) = value else { return Err(value.unexpected()) };
        let text = String::from_value;
        pairs.into_iter().map(|(key, value)| Ok((text(key)?, text(value)?))).collect()
    }
}
