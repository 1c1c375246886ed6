//! The bytes of a connection as values.
//!
//! A read may end anywhere. A value that is cut off continues with the next read at the item where it was
//! cut, so that all reads together take time in proportion to their bytes: the arrays that are open are on a
//! stack of the parser's own, and only the bytes of one item, a line or a string, are buffered. The stack
//! also lets no nesting, however deep, use up the stack of the thread.
//!
//! The other side may be no Redis server, or a hostile one. Memory is taken for bytes that have arrived, and
//! for at most [`RESERVED`] members of an array that was announced. A value has at most [`LARGEST`] bytes.

use super::error::{RespError, RespResult, ServerError};
use super::value::Value;

/// The most bytes of a value. The largest replies that a command of the store has, the inspection of a long
/// queue and the map of a cluster, have a few megabytes.
const LARGEST: usize = 32 << 20;

/// The most bytes of a line, which is a status, an error or a number.
const LONGEST_LINE: usize = 64 << 10;

/// The most arrays inside one another. Replies have up to four.
const DEEPEST: usize = 32;

/// The most members of an array that memory is reserved for in advance.
const RESERVED: usize = 1024;

/// The capacity that an empty buffer `cut_off` retains.
const SPARE: usize = 64 << 10;

/// Reads values from the bytes of one connection. It must not be used after an error.
#[derive(Default)]
pub(crate) struct Parser {
    /// The beginning of an item that was cut off.
    cut_off: Vec<u8>,
    /// The arrays that are not complete, the outermost first.
    open: Vec<Open>,
    /// The bytes of the value that is not complete, without those in `cut_off`.
    read: usize,
}

/// An array, or another group of values, that is not complete.
struct Open {
    group: Group,
    count: usize,
    members: Vec<Value>,
}

/// The kinds of groups.
#[derive(Clone, Copy, PartialEq)]
enum Group {
    Array,
    Map,
    Push,
    /// Remarks about the value that follows them, which are skipped.
    Attributes,
}

/// A value, or the beginning of a group with the number of its members.
enum Item {
    Value(Value),
    Begin(Group, usize),
}

impl Parser {
    /// Appends to `values` each value that is complete with `bytes`. Values before a fault are appended, too.
    pub(crate) fn feed(&mut self, bytes: &[u8], values: &mut Vec<Value>) -> RespResult<()> {
        let mut cut_off = std::mem::take(&mut self.cut_off);
        if cut_off.is_empty() {
            let used = self.read_items(bytes, values)?;
            cut_off.extend_from_slice(&bytes[used..]);
        } else {
            cut_off.extend_from_slice(bytes);
            let used = self.read_items(&cut_off, values)?;
            cut_off.drain(..used);
            // The buffer keeps its room while a value is cut off: otherwise each read of a long string would
            // copy all of it.
            if cut_off.is_empty() {
                cut_off.shrink_to(SPARE);
            }
        }
        self.cut_off = cut_off;
        Ok(())
    }

    /// Reads the items that are complete. Returns the number of their bytes.
    fn read_items(&mut self, input: &[u8], values: &mut Vec<Value>) -> RespResult<usize> {
        let mut left = input;
        while let Some((item, rest)) = next(left)? {
            self.read += left.len() - rest.len();
            left = rest;
            self.take(item, values)?;
        }
        if self.read + left.len() > LARGEST {
            Err(RespError::Malformed)
        } else {
            Ok(input.len() - left.len())
        }
    }

    /// Puts an item into the group that it belongs to, and completes the groups that end with it.
    fn take(&mut self, item: Item, values: &mut Vec<Value>) -> RespResult<()> {
        let mut complete = match item {
            Item::Value(value) => Some(value),
            // A push is never inside of another value.
            Item::Begin(group, _)
                if self.open.len() == DEEPEST || (group == Group::Push && !self.open.is_empty()) =>
            {
                return Err(RespError::Malformed);
            }
            Item::Begin(group, 0) => group.value(Vec::new()),
            Item::Begin(group, count) => {
                let members = Vec::with_capacity(count.min(RESERVED));
                self.open.push(Open { group, count, members });
                None
            }
        };
        while let Some(value) = complete {
            let Some(mut open) = self.open.pop() else {
                values.push(value);
                self.read = 0;
                break;
            };
            open.members.push(value);
            complete = if open.members.len() == open.count {
                open.group.value(open.members)
            } else {
                self.open.push(open);
                None
            };
        }
        Ok(())
    }
}

impl Group {
    /// The value of a complete group, if it is one.
    fn value(self, members: Vec<Value>) -> Option<Value> {
        match self {
            Self::Array => Some(Value::Array(members)),
            Self::Push => Some(Value::Push(members)),
            Self::Map => {
                let mut members = members.into_iter();
                let pair = || Some((members.next()?, members.next()?));
                Some(Value::Map(std::iter::from_fn(pair).collect()))
            }
            Self::Attributes => None,
        }
    }
}

/// The first item of `input` and the bytes behind it; `None` if it is cut off.
fn next(input: &[u8]) -> RespResult<Option<(Item, &[u8])>> {
    let Some((mark, rest)) = input.split_first() else { return Ok(None) };
    // Known before the end of the line, which may never come from a server of another kind.
    if !b"+-:_#,($=!*~%>|".contains(mark) {
        return Err(RespError::Malformed);
    }
    let Some((line, rest)) = line(rest)? else { return Ok(None) };
    let value = match mark {
        b'+' | b',' | b'(' => Value::SimpleString(String::from_utf8_lossy(line).into_owned()),
        b'-' => Value::Error(ServerError::new(line)),
        b':' => Value::Int(number(line)?),
        b'_' => Value::Nil,
        b'#' => match line {
            b"t" => Value::Int(1),
            b"f" => Value::Int(0),
            _ => return Err(RespError::Malformed),
        },
        _ => {
            let length = match usize::try_from(number(line)?) {
                Ok(length) if length <= LARGEST => length,
                // The null of RESP2.
                Err(_) if matches!(mark, b'$' | b'*') => return Ok(Some((Item::Value(Value::Nil), rest))),
                _ => return Err(RespError::Malformed),
            };
            let group = match mark {
                b'*' | b'~' => Item::Begin(Group::Array, length),
                b'%' => Item::Begin(Group::Map, 2 * length),
                b'>' => Item::Begin(Group::Push, length),
                b'|' => Item::Begin(Group::Attributes, 2 * length),
                _ => return string(*mark, length, rest),
            };
            return Ok(Some((group, rest)));
        }
    };
    Ok(Some((Item::Value(value), rest)))
}

/// A string of `length` bytes, and the bytes behind it.
fn string(mark: u8, length: usize, input: &[u8]) -> RespResult<Option<(Item, &[u8])>> {
    let Some((string, rest)) = input.split_at_checked(length) else { return Ok(None) };
    let Some((end, rest)) = rest.split_at_checked(2) else { return Ok(None) };
    let value = match mark {
        b'!' => Value::Error(ServerError::new(string)),
        // `txt:`, or another format of three letters.
        b'=' if string.get(3) == Some(&b':') => Value::BulkString(string[4..].to_vec()),
        b'=' => return Err(RespError::Malformed),
        _ => Value::BulkString(string.to_vec()),
    };
    if end == b"\r\n" { Ok(Some((Item::Value(value), rest))) } else { Err(RespError::Malformed) }
}

/// The first line of `input`, and the bytes behind it.
fn line(input: &[u8]) -> RespResult<Option<(&[u8], &[u8])>> {
    match input.iter().position(|byte| *byte == b'\n') {
        Some(end) => {
            let line = input[..end].strip_suffix(b"\r").ok_or(RespError::Malformed)?;
            Ok(Some((line, &input[end + 1..])))
        }
        None if input.len() > LONGEST_LINE => Err(RespError::Malformed),
        None => Ok(None),
    }
}

fn number(line: &[u8]) -> RespResult<i64> {
    std::str::from_utf8(line).ok().and_then(|text| text.parse().ok()).ok_or(RespError::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    fn parse(bytes: &[u8]) -> RespResult<Vec<Value>> {
        let mut values = Vec::new();
        Parser::default().feed(bytes, &mut values).map(|()| values)
    }

    /// Every kind of value, and their bytes.
    fn samples() -> Vec<(Vec<u8>, Vec<Value>)> {
        let status = |text: &str| Value::SimpleString(text.into());
        let error = |text: &str| Value::Error(ServerError::new(text.as_bytes()));
        let long = "0123456789".repeat(1000);
        [
            ("+OK\r\n+\r\n".to_owned(), vec![status("OK"), status("")]),
            ("-ERR no\r\n!7\r\nBUSY\r\nx\r\n".into(), vec![error("ERR no"), error("BUSY\r\nx")]),
            (format!(":-7\r\n:{}\r\n", i64::MIN), vec![Value::Int(-7), Value::Int(i64::MIN)]),
            ("$-1\r\n*-1\r\n_\r\n".into(), vec![Value::Nil, Value::Nil, Value::Nil]),
            (
                "#t\r\n#f\r\n,1.5\r\n(12\r\n".into(),
                vec![Value::Int(1), Value::Int(0), status("1.5"), status("12")],
            ),
            (
                "$0\r\n\r\n$4\r\na\r\nb\r\n=7\r\ntxt:a:b\r\n".into(),
                vec![text(""), text("a\r\nb"), text("a:b")],
            ),
            (format!("$10000\r\n{long}\r\n"), vec![text(&long)]),
            (
                "*3\r\n:1\r\n~2\r\n*0\r\n-ERR in\r\n$1\r\nx\r\n".into(),
                vec![Value::Array(vec![
                    Value::Int(1),
                    Value::Array(vec![Value::Array(vec![]), error("ERR in")]),
                    text("x"),
                ])],
            ),
            (
                "%2\r\n+a\r\n%0\r\n+b\r\n:2\r\n".into(),
                vec![Value::Map(vec![(status("a"), Value::Map(vec![])), (status("b"), Value::Int(2))])],
            ),
            (
                ">2\r\n$7\r\nmessage\r\n:1\r\n>0\r\n".into(),
                vec![Value::Push(vec![text("message"), Value::Int(1)]), Value::Push(vec![])],
            ),
            (
                "|1\r\n+ttl\r\n:7\r\n*2\r\n|0\r\n:1\r\n|1\r\n+a\r\n*1\r\n_\r\n:2\r\n".into(),
                vec![Value::Array(vec![Value::Int(1), Value::Int(2)])],
            ),
        ]
        .map(|(bytes, values)| (bytes.into_bytes(), values))
        .into()
    }

    #[test]
    fn values_that_are_cut_anywhere_are_the_same_values() {
        for (bytes, expected) in samples() {
            assert_eq!(parse(&bytes).expect("it is sound"), expected);
            let mut parts = vec![bytes.chunks(1).collect::<Vec<_>>(), bytes.chunks(7).collect()];
            parts.extend((0..bytes.len().min(100)).map(|cut| vec![&bytes[..cut], &bytes[cut..]]));
            for parts in parts {
                let (mut parser, mut values) = (Parser::default(), Vec::new());
                for part in parts {
                    parser.feed(part, &mut values).expect("it is sound");
                }
                assert_eq!(values, expected);
                assert!(parser.cut_off.is_empty() && parser.open.is_empty() && parser.read == 0);
            }
        }
    }

    #[test]
    fn bytes_that_are_no_values_are_an_error() {
        for bytes in [
            "HTTP/1.1 400 Bad Request\r\n",
            "\x15\x03\x01",
            "\r\n",
            ":seven\r\n",
            ":9223372036854775808\r\n",
            "#x\r\n",
            "+a\n",
            "$1\r\nabc",
            "$9223372036854775807\r\n",
            "*9223372036854775807\r\n",
            "$?\r\n",
            "%-1\r\n",
            ">-1\r\n",
            "=3\r\ntxt\r\n",
            "*1\r\n>1\r\n+message\r\n",
        ] {
            assert!(matches!(parse(bytes.as_bytes()), Err(RespError::Malformed)), "{bytes:?}");
        }
        let mut values = Vec::new();
        assert!(Parser::default().feed(b":1\r\nHTTP", &mut values).is_err());
        assert_eq!(values, [Value::Int(1)]);
    }

    /// Feeds `part` until it is refused. The parser never has more than `most` bytes of memory.
    fn flood(start: &str, part: &str, most: usize) {
        let (mut parser, mut values) = (Parser::default(), Vec::new());
        let mut fed = parser.feed(start.as_bytes(), &mut values);
        while fed.is_ok() {
            let members: usize = parser.open.iter().map(|open| open.members.capacity()).sum();
            let taken = parser.cut_off.capacity() + members * size_of::<Value>();
            assert!(taken <= most, "{taken} bytes for {:?}", &part[..part.len().min(20)]);
            fed = parser.feed(part.as_bytes(), &mut values);
        }
        assert!(values.is_empty());
    }

    #[test]
    fn memory_is_taken_for_what_arrives_and_up_to_a_bound() {
        let reserved = RESERVED * size_of::<Value>();
        flood("*1\r\n", &"*1\r\n".repeat(16_000), reserved);
        let announced = format!("*{LARGEST}\r\n");
        flood("", &announced, DEEPEST * reserved);
        flood(&announced, &format!("+{}\r\n", "x".repeat(50_000)), reserved);
        flood(&format!("${LARGEST}\r\n"), &"x".repeat(1 << 20), 2 * LARGEST);
        flood("-", &"x".repeat(1000), 4 * LONGEST_LINE);
        flood("", &format!("|1\r\n+a\r\n+{}\r\n", "x".repeat(50_000)), reserved);
    }
}
