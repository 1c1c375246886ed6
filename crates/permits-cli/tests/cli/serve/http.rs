//! A client that sends what a test writes, also what no library would send.

use permits_testkit::HANGS;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use serde_json::Value;

use crate::support::against_openapi;

/// A request. It has a `Host` unless the test gives one.
pub(crate) struct Request {
    address: SocketAddr,
    line: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

/// A complete reply.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

/// A reply that is read as it comes.
pub(crate) struct Stream {
    pub(crate) head: String,
    reader: BufReader<TcpStream>,
}

/// Connects. Reads and writes fail after [`HANGS`].
#[track_caller]
pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(HANGS)).expect("valid");
    stream.set_write_timeout(Some(HANGS)).expect("valid");
    stream
}

impl Request {
    pub(crate) fn new(address: SocketAddr, method: &str, path: &str) -> Self {
        Self { address, line: format!("{method} {path} HTTP/1.1"), headers: Vec::new(), body: Vec::new() }
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn bearer(self, token: &str) -> Self {
        self.header("Authorization", &format!("Bearer {token}"))
    }

    pub(crate) fn body(mut self, body: &str) -> Self {
        self.body = body.as_bytes().to_vec();
        self
    }

    fn text(&self) -> String {
        let Self { address, line, headers, body } = self;
        let mut text = format!("{line}\r\n");
        let is_given = |name: &str| headers.iter().any(|(given, _)| given.eq_ignore_ascii_case(name));
        if !is_given("Host") {
            let _ = write!(text, "Host: {address}\r\n");
        }
        if !body.is_empty() && !is_given("Content-Length") {
            let _ = write!(text, "Content-Length: {}\r\n", body.len());
        }
        for (name, value) in headers {
            let _ = write!(text, "{name}: {value}\r\n");
        }
        text + "\r\n"
    }

    /// Sends the request and reads the whole reply.
    #[track_caller]
    pub(crate) fn send(self) -> Reply {
        let request = self.header("Connection", "close");
        let mut stream = connect(request.address);
        // The server may reply and close before it has read the whole request.
        let _ = stream.write_all(request.text().as_bytes()).and_then(|()| stream.write_all(&request.body));
        reply(stream)
    }

    /// Sends the request, whose [`reply`] comes later.
    #[track_caller]
    pub(crate) fn begin(self) -> TcpStream {
        let mut stream = connect(self.address);
        stream
            .write_all(self.text().as_bytes())
            .and_then(|()| stream.write_all(&self.body))
            .expect("it is read");
        stream
    }

    /// Sends the request over a connection that stays open, and reads the whole reply.
    #[track_caller]
    pub(crate) fn send_on(self, stream: &TcpStream) -> Reply {
        let mut stream = stream.try_clone().expect("valid");
        // By one write: a server that refuses a request whose body has not come closes the connection.
        let request = [self.text().as_bytes(), &self.body].concat();
        stream.write_all(&request).expect("it is read");
        reply(stream)
    }

    /// Sends the request and reads the head of the reply.
    #[track_caller]
    pub(crate) fn open(self) -> Stream {
        let mut reader = BufReader::new(self.begin());
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(reader.read_line(&mut head).expect("a head"), 0, "{head}");
        }
        Stream { head, reader }
    }
}

/// The ports of the client and of the server.
#[track_caller]
pub(crate) fn ports(stream: &TcpStream) -> (u16, u16) {
    let port = |address: std::io::Result<SocketAddr>| address.expect("it is connected").port();
    (port(stream.local_addr()), port(stream.peer_addr()))
}

/// Reads a reply to its length, or to the end of the connection.
#[track_caller]
pub(crate) fn reply(stream: TcpStream) -> Reply {
    let mut stream = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(stream.read_line(&mut head).expect("a head"), 0, "{head:?}");
    }
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    let mut reply = Reply { status, head, body: String::new() };
    let length = reply.header("content-length").map(|length| length.parse().expect("a number"));
    // A reset after the reply is an end, too.
    let _ = stream.take(length.unwrap_or(u64::MAX)).read_to_string(&mut reply.body);
    if reply.header("transfer-encoding") == Some("chunked") {
        reply.body = unchunked(&reply.body);
    }
    reply
}

/// The contents of chunks.
fn unchunked(mut chunks: &str) -> String {
    let mut text = String::new();
    while let Some((size, rest)) = chunks.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).expect("a size");
        text.push_str(&rest[..size]);
        chunks = rest[size..].strip_prefix("\r\n").expect("the end of a chunk");
    }
    text
}

impl Reply {
    /// The value of a header, by its name in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (given, value) = line.split_once(':')?;
            given.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.header("content-type"), Some("application/json"), "{self:?}");
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The problem details of a refusal.
    #[track_caller]
    pub(crate) fn problem(&self) -> Value {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let problem: Value = serde_json::from_str(&self.body).expect("it is JSON");
        assert_eq!(against_openapi("Problem", &problem), Ok(()), "{self:?}");
        assert_eq!(problem["status"], self.status, "{self:?}");
        assert_eq!(self.header("retry-after").is_some(), [429, 503].contains(&self.status), "{self:?}");
        problem
    }

    /// The status, and the reason of a refusal.
    #[track_caller]
    pub(crate) fn refusal(&self) -> (u16, String) {
        let problem = self.problem();
        (self.status, problem["detail"].as_str().expect("a reason").to_owned())
    }
}

impl Stream {
    /// The data of the next event with this name.
    #[track_caller]
    pub(crate) fn event(&mut self, wanted: &str) -> Value {
        loop {
            let (name, data) = self.next();
            if name == wanted {
                return data;
            }
        }
    }

    /// The name and the data of the next event. Reads over the sizes of chunks and, for a bounded time, over
    /// heartbeats.
    #[track_caller]
    pub(crate) fn next(&mut self) -> (String, Value) {
        let began = Instant::now();
        loop {
            assert!(began.elapsed() < HANGS, "no event");
            if let Some(name) = self.line().strip_prefix("event: ") {
                let data = self.line();
                let data = data.strip_prefix("data: ").unwrap_or_else(|| panic!("{data:?}"));
                return (name.trim_end().to_owned(), serde_json::from_str(data).expect("JSON"));
            }
        }
    }

    pub(crate) fn ports(&self) -> (u16, u16) {
        ports(self.reader.get_ref())
    }

    /// Reads to the end of the connection.
    pub(crate) fn rest(mut self) -> String {
        let mut text = String::new();
        let _ = self.reader.read_to_string(&mut text);
        text
    }

    #[track_caller]
    fn line(&mut self) -> String {
        let mut line = String::new();
        assert_ne!(self.reader.read_line(&mut line).expect("a line"), 0, "the stream has ended");
        line
    }
}
