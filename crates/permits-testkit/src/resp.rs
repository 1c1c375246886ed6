//! A tiny blocking client for RESP2, the protocol of Redis.
//!
//! Tests observe a server through it, independently of the client that they test. It sends commands and reads
//! replies; it neither pipelines by itself nor reconnects. Every read and write ends by a timeout.
//!
//! The blocking client of the crate `redis` cannot replace it: after a timeout it skips the reply that comes
//! late, which the tests of paused servers and slow networks read.

use crate::wait::HANGS;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// A reply of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resp {
    /// The null bulk string or the null array.
    Nil,
    /// An integer.
    Int(i64),
    /// A status or a bulk string; bytes that are not UTF-8 are replaced.
    Text(String),
    /// An error, with its code first: `ERR unknown command`.
    Error(String),
    /// Several replies in one.
    Array(Vec<Resp>),
}

impl Resp {
    /// The text.
    #[track_caller]
    pub fn text(&self) -> &str {
        match self {
            Self::Text(text) => text,
            other => panic!("expected a text, got {other:?}"),
        }
    }

    /// The integer.
    #[track_caller]
    pub fn int(&self) -> i64 {
        match self {
            Self::Int(int) => *int,
            other => panic!("expected an integer, got {other:?}"),
        }
    }

    /// The members of an array.
    #[track_caller]
    pub fn array(&self) -> &[Resp] {
        match self {
            Self::Array(members) => members,
            other => panic!("expected an array, got {other:?}"),
        }
    }

    /// The message of an error.
    #[track_caller]
    pub fn error(&self) -> &str {
        match self {
            Self::Error(message) => message,
            other => panic!("expected an error, got {other:?}"),
        }
    }
}

/// An open connection to a server, or to a [`Proxy`](crate::Proxy) before it.
#[derive(Debug)]
pub struct Connection {
    stream: BufReader<Stream>,
}

impl Connection {
    /// Connects over TCP; reads and writes time out after [`HANGS`].
    ///
    /// # Errors
    ///
    /// If the connection to `address` is refused.
    pub fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, HANGS)?;
        stream.set_nodelay(true)?;
        Self::over(Stream::Tcp(stream))
    }

    /// Connects over the Unix socket at `path`; reads and writes time out after [`HANGS`].
    ///
    /// # Errors
    ///
    /// If the connection to `path` is refused.
    pub fn connect_unix(path: &Path) -> io::Result<Self> {
        Self::over(Stream::Unix(UnixStream::connect(path)?))
    }

    fn over(stream: Stream) -> io::Result<Self> {
        let connection = Self { stream: BufReader::new(stream) };
        connection.set_timeout(HANGS)?;
        Ok(connection)
    }

    /// Lets each read and write take up to `timeout`, which must not be zero.
    ///
    /// # Errors
    ///
    /// If the timeout is zero.
    pub fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        match self.stream.get_ref() {
            Stream::Tcp(stream) => {
                stream.set_read_timeout(Some(timeout))?;
                stream.set_write_timeout(Some(timeout))
            }
            Stream::Unix(stream) => {
                stream.set_read_timeout(Some(timeout))?;
                stream.set_write_timeout(Some(timeout))
            }
        }
    }

    /// Sends a command and reads its reply; an error of the server is a reply, [`Resp::Error`].
    ///
    /// # Errors
    ///
    /// If the connection is lost, or the reply takes longer than the timeout.
    pub fn call(&mut self, arguments: &[&str]) -> io::Result<Resp> {
        self.send(arguments)?;
        self.receive()
    }

    /// Sends a command without reading its reply.
    ///
    /// # Errors
    ///
    /// If the connection is lost.
    pub fn send(&mut self, arguments: &[&str]) -> io::Result<()> {
        let mut request = format!("*{}\r\n", arguments.len());
        for argument in arguments {
            request.push_str(&format!("${}\r\n{argument}\r\n", argument.len()));
        }
        self.stream.get_mut().write_all(request.as_bytes())
    }

    /// Reads the next reply or message.
    ///
    /// # Errors
    ///
    /// `UnexpectedEof` or `ConnectionReset` if the connection is lost, `WouldBlock` or `TimedOut` if no reply
    /// came within the timeout, `InvalidData` if the other side does not speak RESP2.
    pub fn receive(&mut self) -> io::Result<Resp> {
        read_reply(&mut self.stream)
    }
}

fn read_reply(stream: &mut impl BufRead) -> io::Result<Resp> {
    let line = read_line(stream)?;
    let Some(kind) = line.chars().next() else {
        return Err(invalid("an empty line"));
    };
    let rest = &line[kind.len_utf8()..];
    match kind {
        '+' => Ok(Resp::Text(rest.to_owned())),
        '-' => Ok(Resp::Error(rest.to_owned())),
        ':' => Ok(Resp::Int(number(rest)?)),
        '$' => read_bulk(stream, number(rest)?),
        '*' => read_array(stream, number(rest)?),
        _ => Err(invalid(&line)),
    }
}

fn read_bulk(stream: &mut impl BufRead, length: i64) -> io::Result<Resp> {
    let Ok(length) = u64::try_from(length) else {
        return Ok(Resp::Nil);
    };
    let mut bytes = Vec::new();
    let whole = length + 2;
    if stream.take(whole).read_to_end(&mut bytes)? as u64 != whole || !bytes.ends_with(b"\r\n") {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    bytes.truncate(bytes.len() - 2);
    Ok(Resp::Text(String::from_utf8_lossy(&bytes).into_owned()))
}

fn read_array(stream: &mut impl BufRead, length: i64) -> io::Result<Resp> {
    if length < 0 {
        return Ok(Resp::Nil);
    }
    (0..length).map(|_| read_reply(stream)).collect::<io::Result<_>>().map(Resp::Array)
}

fn read_line(stream: &mut impl BufRead) -> io::Result<String> {
    let mut bytes = Vec::new();
    stream.read_until(b'\n', &mut bytes)?;
    match bytes.strip_suffix(b"\r\n") {
        Some(line) => Ok(String::from_utf8_lossy(line).into_owned()),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

fn number(text: &str) -> io::Result<i64> {
    text.parse().map_err(|_| invalid(text))
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not RESP2: {what:?}"))
}

/// The two ways to reach a server on this machine.
#[derive(Debug)]
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(buffer),
            Self::Unix(stream) => stream.write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
