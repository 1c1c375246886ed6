//! The lines of a program: those on standard input, read by a thread of their own since a read of a terminal
//! or a pipe cannot be cancelled, or those on a socket.
//!
//! What is read ahead is bounded: two chunks and a line. A program that writes more waits.

use std::io::{self, BufRead as _};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::net::unix::OwnedReadHalf;
use tokio::sync::mpsc;
use tokio::task::yield_now;

use super::ending::End;
use crate::output;

/// The longest line, in bytes. The rest of a longer one is skipped.
pub(super) const MAX_LINE: usize = 8 * 1024;

/// The most bytes of one read.
const CHUNK: usize = 8 * 1024;

/// A line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// From 1, empty lines included.
    pub(super) number: u64,
    /// Without the spaces around it. Never empty.
    pub(super) bytes: Vec<u8>,
    /// It was longer than [`MAX_LINE`], and is cut off.
    pub(super) is_cut: bool,
}

/// The lines of a program, from now on.
pub(super) struct Lines {
    source: Source,
    split: Split,
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
        Ok(Self { source: Source::Standard(chunks), split: Split::default() })
    }

    /// Those on a socket.
    pub(super) fn of(socket: OwnedReadHalf) -> Self {
        Self { source: Source::Socket(socket), split: Split::default() }
    }

    /// The next line that is not empty, or `None` at the end. Cancel safe.
    ///
    /// Before it reads more, other tasks run: so the requests of a chunk are begun before those of the next.
    pub(super) async fn next(&mut self) -> Option<Line> {
        loop {
            if let Some(line) = self.split.next() {
                return Some(line);
            }
            yield_now().await;
            match self.source.chunk().await {
                Some(chunk) => self.split.add(chunk),
                None => return self.split.last(),
            }
        }
    }

    /// The end of the program that its last line shows.
    pub(super) fn closed(&self) -> End {
        match self.source {
            Source::Standard(_) => End::InputClosed,
            Source::Socket(_) => End::ConnectionClosed,
        }
    }

    /// The end of the program that a failure to write shows.
    pub(super) fn output_closed(&self) -> End {
        match self.source {
            Source::Standard(_) => End::OutputClosed,
            Source::Socket(_) => End::ConnectionClosed,
        }
    }

    /// True if the reader of the events has closed standard output, also before one cannot be written.
    pub(super) fn is_output_closed(&self) -> bool {
        matches!(self.source, Source::Standard(_)) && output::is_closed()
    }

    /// True if standard input has ended, also behind lines that are not read yet.
    pub(super) fn is_hung_up(&self) -> bool {
        let Source::Standard(_) = &self.source else { return false };
        let stdin = io::stdin();
        let mut polled = [PollFd::new(&stdin, PollFlags::empty())];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut polled, Some(&at_once)).is_ok() && polled[0].revents().contains(PollFlags::HUP)
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
            Err(_) => return,
        };
        stdin.consume(chunk.len());
        if chunk.is_empty() || chunks.blocking_send(chunk).is_err() {
            return;
        }
    }
}

/// Bytes that become lines.
#[derive(Default)]
struct Split {
    bytes: Vec<u8>,
    /// The first byte that is not part of an earlier line.
    start: usize,
    /// The number of lines so far.
    lines: u64,
    /// The bytes up to the next end of a line are the rest of one that was too long.
    is_rest: bool,
}

impl Split {
    fn add(&mut self, chunk: Vec<u8>) {
        if self.start == self.bytes.len() {
            (self.bytes, self.start) = (chunk, 0);
        } else {
            self.bytes.drain(..std::mem::take(&mut self.start));
            self.bytes.extend(chunk);
        }
    }

    /// The next whole line, or the beginning of one that is too long.
    fn next(&mut self) -> Option<Line> {
        loop {
            let rest = &self.bytes[self.start..];
            let end = rest.iter().position(|byte| *byte == b'\n');
            let is_cut = end.unwrap_or(rest.len()) > MAX_LINE;
            let Some(length) = end.map(|end| end + 1).or(is_cut.then_some(rest.len())) else {
                if self.is_rest || rest.is_empty() {
                    (self.bytes, self.start) = (Vec::new(), 0);
                }
                return None;
            };
            let bytes = rest[..length.min(MAX_LINE)].trim_ascii().to_vec();
            self.start += length;
            let is_first = !std::mem::replace(&mut self.is_rest, end.is_none());
            self.lines += u64::from(is_first);
            if is_first && !bytes.is_empty() {
                return Some(Line { number: self.lines, bytes, is_cut });
            }
        }
    }

    /// The last line, which has no end.
    fn last(&mut self) -> Option<Line> {
        self.bytes.push(b'\n');
        self.next()
    }
}

#[cfg(test)]
mod tests {
    use super::{Line, MAX_LINE, Split};

    /// The lines of an input that is read in chunks of this size, and their numbers.
    fn lines(input: &[u8], size: usize) -> Vec<(u64, String)> {
        let mut split = Split::default();
        let mut lines = Vec::new();
        for chunk in input.chunks(size) {
            split.add(chunk.to_vec());
            lines.extend(std::iter::from_fn(|| split.next()));
        }
        lines.extend(split.last());
        assert!(split.next().is_none() && split.last().is_none(), "nothing is left");
        let text = |Line { number, bytes, is_cut }: Line| {
            assert!(bytes.len() <= MAX_LINE && (!is_cut || bytes.len() == MAX_LINE));
            (number, String::from_utf8_lossy(&bytes[..bytes.len().min(8)]).into_owned())
        };
        lines.into_iter().map(text).collect()
    }

    #[test]
    fn lines_are_split_wherever_the_chunks_end() {
        let input = b"renew\n\r\n release \r\n\xff\nrenew";
        let expected = [(1, "renew"), (3, "release"), (4, "\u{fffd}"), (5, "renew")];
        for size in 1..input.len() {
            assert_eq!(lines(input, size), expected.map(|(number, text)| (number, text.to_owned())));
        }
        assert_eq!(lines(b"", 1), []);
    }

    #[test]
    fn the_rest_of_a_long_line_is_no_line() {
        let longest = [vec![b'x'; MAX_LINE], b"\n".to_vec()].concat();
        let long = [vec![b'x'; MAX_LINE + 1], b"release\nrenew\n".to_vec()].concat();
        for size in [1, 7, MAX_LINE, 3 * MAX_LINE] {
            assert_eq!(lines(&longest, size), [(1, "xxxxxxxx".to_owned())]);
            assert_eq!(lines(&long, size), [(1, "xxxxxxxx".to_owned()), (2, "renew".to_owned())], "{size}");
            assert_eq!(lines(&long[..MAX_LINE + 3], size), [(1, "xxxxxxxx".to_owned())]);
        }
    }
}
