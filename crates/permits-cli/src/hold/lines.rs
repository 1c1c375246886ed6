//! The lines of a program, from standard input or from a socket. Standard input is read by a thread of its
//! own, since a read of a terminal or a pipe cannot be cancelled.
//!
//! The reader is at most two chunks and a line ahead. A program that writes more has to wait.

use std::io::{self, BufRead as _};

use bytes::BytesMut;
use rustix::event::{PollFd, PollFlags, poll};
use tokio::net::unix::OwnedReadHalf;
use tokio::sync::mpsc;
use tokio::task::yield_now;
use tokio_util::codec::{Decoder as _, LinesCodec, LinesCodecError};

use super::ending::End;
use crate::stdout;

/// The longest line, in bytes. A longer one is skipped.
const MAX_LINE: usize = 8 * 1024;

/// The most bytes of one read.
const CHUNK: usize = 8 * 1024;

pub(super) struct Line {
    /// The line's number, from 1 on. Empty lines count.
    pub(super) number: u64,
    /// The text without the spaces around it, never empty; or the reason why the line cannot be read.
    pub(super) text: Result<String, String>,
}

/// The lines of a program, from now on.
pub(super) struct Lines {
    source: Source,
    codec: LinesCodec,
    bytes: BytesMut,
    /// The number of lines so far.
    count: u64,
}

enum Source {
    Standard(mpsc::Receiver<Vec<u8>>),
    Socket(OwnedReadHalf),
}

impl Lines {
    /// Starts to read standard input.
    ///
    /// # Errors
    /// The system's error if it refuses a thread.
    pub(super) fn standard() -> io::Result<Self> {
        let (sender, chunks) = mpsc::channel(1);
        std::thread::Builder::new().name("stdin".into()).spawn(move || read(&sender))?;
        Ok(Self::from(Source::Standard(chunks)))
    }

    /// The lines that arrive on a socket.
    pub(super) fn of(socket: OwnedReadHalf) -> Self {
        Self::from(Source::Socket(socket))
    }

    fn from(source: Source) -> Self {
        let codec = LinesCodec::new_with_max_length(MAX_LINE);
        Self { source, codec, bytes: BytesMut::new(), count: 0 }
    }

    /// The next line that is not empty, or `None` at the end. Cancel safe.
    ///
    /// Other tasks run before it reads more, so the requests of one chunk begin before those of the next.
    pub(super) async fn next(&mut self) -> Option<Line> {
        let mut has_ended = false;
        loop {
            let decoded = match has_ended {
                false => self.codec.decode(&mut self.bytes),
                true => self.codec.decode_eof(&mut self.bytes),
            };
            let text = match decoded {
                Ok(Some(text)) => Ok(text.trim_ascii().to_owned()),
                Err(LinesCodecError::MaxLineLengthExceeded) => {
                    Err(format!("the line is longer than {MAX_LINE} bytes"))
                }
                Err(LinesCodecError::Io(_)) => Err("the line is not UTF-8".to_owned()),
                Ok(None) if has_ended => return None,
                Ok(None) => {
                    yield_now().await;
                    match self.source.chunk().await {
                        Some(chunk) => self.bytes.extend_from_slice(&chunk),
                        None => has_ended = true,
                    }
                    continue;
                }
            };
            self.count += 1;
            if text != Ok(String::new()) {
                return Some(Line { number: self.count, text });
            }
        }
    }

    /// The [`End`] to report when there are no more lines.
    pub(super) fn closed(&self) -> End {
        match self.source {
            Source::Standard(_) => End::InputClosed,
            Source::Socket(_) => End::ConnectionClosed,
        }
    }

    /// The [`End`] to report when events cannot be written.
    pub(super) fn output_closed(&self) -> End {
        match self.source {
            Source::Standard(_) => End::OutputClosed,
            Source::Socket(_) => End::ConnectionClosed,
        }
    }

    /// The end of the program that the system knows before a line or a write shows it. With `is_behind` also
    /// the end of standard input, behind lines that are not read yet.
    pub(super) fn hung_up(&self, is_behind: bool) -> Option<End> {
        match self.source {
            Source::Standard(_) if stdout::is_closed() => Some(End::OutputClosed),
            Source::Standard(_) if is_behind && stdout::has(&io::stdin(), PollFlags::HUP) => {
                Some(End::InputClosed)
            }
            _ => None,
        }
    }
}

impl Source {
    /// The next bytes, or `None` at the end. Cancel safe.
    async fn chunk(&mut self) -> Option<Vec<u8>> {
        match self {
            Self::Standard(chunks) => chunks.recv().await,
            Self::Socket(socket) => loop {
                socket.readable().await.ok()?;
                // Allocated only now: a connection that sends nothing has no buffer.
                let mut chunk = Vec::with_capacity(CHUNK);
                match socket.try_read_buf(&mut chunk) {
                    Ok(0) => return None,
                    Ok(_) => return Some(chunk),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(_) => return None,
                }
            },
        }
    }
}

/// Reads standard input until its end, or until the receiver is dropped.
fn read(chunks: &mpsc::Sender<Vec<u8>>) {
    let mut stdin = io::stdin().lock();
    loop {
        let chunk = match stdin.fill_buf() {
            Ok(bytes) => bytes[..bytes.len().min(CHUNK)].to_vec(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            // Another process has made the file non-blocking, which is a property of all that share it.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let _ = poll(&mut [PollFd::new(&stdin, PollFlags::IN)], None);
                continue;
            }
            Err(_) => return,
        };
        stdin.consume(chunk.len());
        if chunk.is_empty() || chunks.blocking_send(chunk).is_err() {
            return;
        }
    }
}
