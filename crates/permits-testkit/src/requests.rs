//! The table of requests, `requests.json`, which the tests of every door walk, and what arrives at a server.
//!
//! A door is a way by which programs make requests: the Rust builder, JSON, the flags and the lines of the
//! command, the tower layer, Python, Node, Go. A door that forgets an option, or takes it for another,
//! differs from the table.

use permits::AcquireOptions;
use serde::Deserialize;
use serde_json::Value;

/// The table. Its file describes the columns.
#[derive(Debug, Deserialize)]
pub struct Requests {
    /// A request for each option.
    pub options: Vec<Request>,
    /// Requests that are not valid.
    pub wrong: Vec<WrongRequest>,
}

/// A request with an option.
#[derive(Debug, Deserialize)]
pub struct Request {
    /// The name of the option.
    pub field: String,
    /// The request in JSON.
    pub json: Value,
    /// The request on a command line, if there are flags for it.
    pub flags: Option<Vec<String>>,
    /// The effect of the option.
    #[serde(flatten)]
    pub effect: Effect,
}

/// The effect of an option.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// The store gets this.
    Arrives(String),
    /// A request that waits is refused with this error.
    Refused(String),
    /// The permit is lost with this error.
    Lost(String),
}

/// A request that is not valid.
#[derive(Debug, Deserialize)]
pub struct WrongRequest {
    /// The request in JSON, if it can be written there.
    pub json: Option<Value>,
    /// The request on a command line, if there are flags for it.
    pub flags: Option<Vec<String>>,
    /// The words of the error.
    pub words: String,
}

impl Request {
    /// The options of the request.
    #[track_caller]
    pub fn options(&self) -> AcquireOptions {
        AcquireOptions::deserialize(&self.json).expect("the table has valid options")
    }
}

impl Requests {
    /// Reads the table.
    pub fn read() -> Self {
        let table: Self = serde_json::from_str(include_str!("../requests.json")).expect("it is a table");
        for field in AcquireOptions::FIELDS {
            assert!(
                table.options.iter().any(|row| row.field == *field),
                "requests.json has no row for {field}"
            );
        }
        table
    }

    /// The request for a permit of this semaphore as the table shows it, of the commands that a server got.
    #[track_caller]
    pub fn arrived(commands: &[String], semaphore: &str) -> String {
        let acquires =
            |line: &&String| line.contains("\"EVALSHA\"") && line.contains(&format!("\"{semaphore}\""));
        let line = commands.iter().find(acquires).unwrap_or_else(|| panic!("no request in {commands:?}"));
        let mut arguments = line.trim_end_matches('"').rsplit("\" \"");
        let mut next = || arguments.next().unwrap_or_else(|| panic!("another command: {line}"));
        let [entry, holder, wait] = [next(), next(), next()];
        let (terms, rest) = split_bytes(entry, 9);
        // Lengths of the ids, which differ, and the id of a request whose holder was named.
        let (_, texts) = split_bytes(rest, 2);
        let texts =
            if holder == "h" { texts.split_once("\\x00").map_or(texts, |(_, rest)| rest) } else { texts };
        let parts =
            [wait, if holder == "h" { "h" } else { "-" }, terms, if texts.is_empty() { "-" } else { texts }];
        parts.join(" ")
    }
}

/// Splits a text of MONITOR, in which some bytes are escaped, behind so many bytes.
fn split_bytes(text: &str, bytes: usize) -> (&str, &str) {
    let length = |text: &str| match text.as_bytes() {
        [b'\\', b'x', ..] => 4,
        [b'\\', ..] => 2,
        _ => 1,
    };
    text.split_at((0..bytes).fold(0, |at, _| at + length(&text[at..])))
}
