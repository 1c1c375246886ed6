//! [`Record`]: a text in a file with two halves. A writer overwrites the older half.
//!
//! The file begins with two headers, each in a disk sector of its own. A header says where its text is, and
//! has checksums of the text and of itself. The header with the higher sequence number counts. A writer puts
//! the new text beside the text that counts, and then writes the other header. So a process may be killed at
//! any moment, and the file has either the earlier text or the new one.
//!
//! A writer that is killed leaves at most a text without a header. It never leaves a wrong header, because a
//! header is written at once, and never a header with a wrong text. So if one of these is found, the file is
//! damaged, and is refused. To take the older half instead would undo a command: a permit that was granted
//! would be free again. Only a loss of power leaves a header with a wrong text; no permit outlives that.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt as _;

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::protocol::layout;

/// The first bytes of a header.
const MAGIC: [u8; 4] = *b"prmt";

/// The places of the headers. A disk writes a sector whole, and a system writes so few bytes of a page whole.
const HEADERS: [u64; 2] = [0, 512];

const HEADER_BYTES: usize = 80;

/// The place of the first text.
const TEXTS: u64 = 1024;

/// How often a reader without a lock tries to read a file while others write it.
const LOOKS: u32 = 100;

/// The highest number in a header, so that no sum overflows: microseconds until the year 2255.
const MOST: u64 = 1 << 53;

/// How many bytes are read at once. Most files are not longer.
const READ_BYTES: usize = 4096;

/// The least room of a file, in bytes: enough for some thirty holders and waiters.
const ROOM: u64 = 16 << 10;

/// The part of a header that tells the time of its write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Stamp {
    /// The boot of the machine in which it was written.
    pub(crate) boot: u128,
    /// The store's time at the start of that boot, in microseconds.
    pub(crate) base_us: i64,
    /// The store's time of the command that wrote the text, in microseconds. In the marker: a time that is
    /// not before that of any file that was deleted.
    pub(crate) last_us: i64,
    /// The store's time at which the text may be forgotten, in milliseconds.
    pub(crate) expires_ms: u64,
}

/// The number and the checksum of a half. No other half of its file has the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) struct Mark(u64, u32);

impl Mark {
    /// The number of the write. Each write has the next one.
    pub(super) fn number(self) -> u64 {
        self.0
    }
}

/// The half that counts.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) stamp: Stamp,
    pub(super) text: Vec<u8>,
    pub(super) mark: Mark,
    /// The place of the text in the file.
    offset: u64,
}

/// The fault of a file that is neither sound nor empty.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The file is damaged, or belongs to another program.
    Unreadable(String),
    /// The header is sound and the text is damaged. After a loss of power that is no fault of the disk: it
    /// may have written the header alone. The record has no text.
    Text(Record),
    /// Another version of this library made it.
    OtherLayout(u32),
}

/// How a write uses the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Writing {
    /// The write takes what room is left.
    Plain,
    /// The write leaves room for a few more of the same size, or fails. So on a full disk, later writes can
    /// still overwrite what is there.
    LeavesRoom,
    /// The write waits for the disk.
    Lasting,
}

impl Record {
    /// Reads the half that counts; `None` if nothing was written yet.
    pub(super) fn read(file: &File) -> io::Result<Result<Option<Self>, Fault>> {
        let mut start = vec![0; READ_BYTES];
        let length = read_up_to(file, &mut start, 0)?;
        start.truncate(length);
        let mut last: Option<Header> = None;
        for place in HEADERS {
            let bytes = start.get(place as usize..).unwrap_or_default();
            match Header::parse(&bytes[..bytes.len().min(HEADER_BYTES)]) {
                // The header is missing: the first writer was killed, or has not got so far.
                Ok(None) => {}
                Ok(Some(header)) if last.as_ref().is_some_and(|last| last.sequence > header.sequence) => {}
                Ok(Some(header)) => last = Some(header),
                Err(fault) => return Ok(Err(fault)),
            }
        }
        let Some(header) = last else { return Ok(Ok(None)) };
        let text = header.text(file, &start)?;
        let (mark, Header { stamp, offset, .. }) = (header.mark(), header);
        Ok(match text {
            Some(text) => Ok(Some(Self { stamp, text, mark, offset })),
            None => Err(Fault::Text(Self { stamp, text: Vec::new(), mark, offset })),
        })
    }

    /// Reads the half that counts, and empties a file that is damaged.
    pub(super) fn read_or_clear(file: &File) -> io::Result<Option<Self>> {
        match Self::read(file)? {
            Ok(record) => Ok(record),
            Err(_) => file.set_len(0).map(|()| None),
        }
    }

    /// Reads the half that counts, without a lock. Others may write meanwhile, so that parts of different
    /// writes are read. If the file seems to be damaged, it is therefore read again.
    pub(super) fn look(file: &File) -> io::Result<Result<Option<Self>, Fault>> {
        let mut looks = 0;
        loop {
            let read = Self::read(file)?;
            looks += 1;
            if looks == LOOKS || !matches!(read, Err(Fault::Unreadable(_) | Fault::Text(_))) {
                return Ok(read);
            }
        }
    }

    /// Writes the half that does not count, and makes it count. `before` is what [`Record::read`] has
    /// returned under the same lock.
    pub(super) fn write(
        file: &File,
        before: Option<&Self>,
        stamp: Stamp,
        text: &[u8],
        writing: Writing,
    ) -> io::Result<()> {
        Self::prepare(file, before, stamp, text, writing)?.count()
    }

    /// Writes the text into the half that does not count.
    pub(super) fn prepare<'a>(
        file: &'a File,
        before: Option<&Self>,
        stamp: Stamp,
        text: &[u8],
        writing: Writing,
    ) -> io::Result<Prepared<'a>> {
        let length = text.len() as u64;
        let offset = match before {
            Some(before) if TEXTS + length > before.offset => before.offset + before.text.len() as u64,
            _ => TEXTS,
        };
        // Make room for three texts of this size: then there is always room for a new text beside the text
        // that counts.
        let room = TEXTS + 3 * (length + length / 8);
        let longest = longest_file();
        match make_room(file, room.max(offset + length), longest) {
            Err(error) if writing == Writing::LeavesRoom => return Err(error),
            // An error here is ignored: the write itself reports whether there is room.
            Ok(()) | Err(_) => {}
        }
        if longest < offset + length {
            return Err(Errno::FBIG.into());
        }
        let sequence = before.map_or(1, |before| before.mark.0 + 1);
        let header = Header { stamp, sequence, offset, length, checksum: crc32fast::hash(text) };
        file.write_all_at(text, offset)?;
        Ok(Prepared { file, header, writing })
    }
}

/// A half whose text is written, but which does not count yet.
#[must_use]
pub(super) struct Prepared<'a> {
    file: &'a File,
    header: Header,
    writing: Writing,
}

impl Prepared<'_> {
    pub(super) fn mark(&self) -> Mark {
        self.header.mark()
    }

    /// Makes this the half that counts.
    pub(super) fn count(self) -> io::Result<()> {
        let Self { file, header, writing } = self;
        let sync = || if writing == Writing::Lasting { file.sync_data() } else { Ok(()) };
        sync()?;
        file.write_all_at(&header.bytes(), HEADERS[(header.sequence % 2) as usize])?;
        sync()
    }
}

/// The longest file that this process may write (`ulimit -f`). The system ends a process that writes beyond
/// that (SIGXFSZ), unless the program handles the signal. So the store does not try.
fn longest_file() -> u64 {
    getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX)
}

/// Makes the file at least as long as `room`, on the disk too, and not longer than `longest`. Does nothing on
/// systems that cannot do that.
fn make_room(file: &File, room: u64, longest: u64) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    if file.metadata()?.len() < room {
        use rustix::fs::{FallocateFlags, fallocate};

        if longest < room {
            return Err(Errno::FBIG.into());
        }
        let length = room.next_power_of_two().max(ROOM).min(longest);
        loop {
            match fallocate(file, FallocateFlags::empty(), 0, length) {
                // A signal, as those of a profiler, interrupts it on tmpfs.
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS) | Ok(()) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
    let _ = (file, room, longest);
    Ok(())
}

struct Header {
    stamp: Stamp,
    sequence: u64,
    offset: u64,
    length: u64,
    checksum: u32,
}

impl Header {
    fn mark(&self) -> Mark {
        Mark(self.sequence, self.checksum)
    }

    fn bytes(&self) -> Vec<u8> {
        let Self { stamp, sequence, offset, length, checksum } = self;
        let Stamp { boot, base_us, last_us, expires_ms } = stamp;
        let mut bytes = MAGIC.to_vec();
        bytes.extend(u32::from(layout()).to_le_bytes());
        bytes.extend(boot.to_le_bytes());
        for number in [*sequence, *base_us as u64, *last_us as u64, *expires_ms, *offset, *length] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(checksum.to_le_bytes());
        bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
        bytes
    }

    /// Returns `None` if nothing was written there.
    fn parse(bytes: &[u8]) -> Result<Option<Self>, Fault> {
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let unreadable = |reason: &str| Err(Fault::Unreadable(reason.into()));
        if !bytes.starts_with(&MAGIC) {
            return unreadable("it is no file of this library");
        }
        let mut rest = bytes;
        let Some((checked, checksum_of_header)) = bytes.split_at_checked(HEADER_BYTES - 4) else {
            return unreadable("it was cut off");
        };
        if checksum_of_header != crc32fast::hash(checked).to_le_bytes() {
            return unreadable("its beginning is damaged");
        }
        let mut take = |count: usize| {
            let (taken, left) = rest.split_at(count);
            rest = left;
            taken.iter().rev().fold(0_u128, |number, byte| number << 8 | u128::from(*byte))
        };
        take(MAGIC.len());
        let found = take(4) as u32;
        if found != u32::from(layout()) {
            return Err(Fault::OtherLayout(found));
        }
        let boot = take(16);
        let [sequence, base_us, last_us, expires_ms, offset, length] = [(); 6].map(|()| take(8) as u64);
        let stamp = Stamp { boot, base_us: base_us as i64, last_us: last_us as i64, expires_ms };
        let is_time = |time_us: i64| time_us.unsigned_abs() <= MOST;
        if [sequence, offset, length].iter().any(|number| *number > MOST)
            || !is_time(stamp.base_us)
            || !is_time(stamp.last_us)
        {
            return unreadable("its numbers are out of range");
        }
        Ok(Some(Self { stamp, sequence, offset, length, checksum: take(4) as u32 }))
    }

    /// Reads the text of this half, from a file that begins with `start`; `None` if the text is damaged.
    fn text(&self, file: &File, start: &[u8]) -> io::Result<Option<Vec<u8>>> {
        let range = self.offset as usize..(self.offset as usize).saturating_add(self.length as usize);
        let text = match start.get(range) {
            Some(text) => text.to_vec(),
            None if self.length > file.metadata()?.len() => return Ok(None),
            None => {
                let mut text = vec![0; self.length as usize];
                let length = read_up_to(file, &mut text, self.offset)?;
                text.truncate(length);
                text
            }
        };
        Ok((crc32fast::hash(&text) == self.checksum).then_some(text))
    }
}

/// Reads until the buffer is full or the file ends. Returns the number of bytes.
fn read_up_to(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut length = 0;
    while length < buffer.len() {
        match file.read_at(&mut buffer[length..], offset + length as u64) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: Stamp = Stamp { boot: 7, base_us: -5, last_us: 6, expires_ms: 8 };

    fn write(file: &File, text: &str) -> Option<Record> {
        let before = Record::read(file).expect("it can be read").expect("it is sound");
        Record::write(file, before.as_ref(), STAMP, text.as_bytes(), Writing::LeavesRoom)
            .expect("there is room");
        before
    }

    fn text(file: &File) -> Result<Option<String>, Fault> {
        let read = Record::read(file).expect("it can be read")?;
        Ok(read.map(|record| String::from_utf8(record.text).expect("it is text")))
    }

    /// Texts that grow and shrink; some are longer than what is read at once.
    fn texts() -> impl Iterator<Item = String> {
        [0, 10, 5000, 3, 20_000, 20_001, 20_000, 1, 100_000, 30_000, 7]
            .into_iter()
            .map(|length| "x".repeat(length))
    }

    #[test]
    fn the_last_text_is_read() {
        let file = tempfile::tempfile().expect("there is room");
        assert_eq!(text(&file), Ok(None));
        for written in texts() {
            write(&file, &written);
            let read =
                Record::read(&file).expect("it can be read").expect("it is sound").expect("it was written");
            assert_eq!((read.stamp, read.text.len()), (STAMP, written.len()));
        }
        let length = file.metadata().expect("it is open").len();
        assert!(length <= 1 << 19, "it grows with its longest text, not with each: {length}");
    }

    /// A writer is killed before it writes the header.
    #[test]
    fn what_was_half_written_never_was() {
        let file = tempfile::tempfile().expect("there is room");
        write(&file, "first");
        for (at, next) in texts().enumerate() {
            let before = text(&file).expect("it is sound");
            let mut all = vec![0; file.metadata().expect("it is open").len() as usize];
            read_up_to(&file, &mut all, 0).expect("it can be read");
            let record = write(&file, &next).expect("it had one");
            let header = HEADERS[((record.mark.0 + 1) % 2) as usize];
            let mut half = vec![0; HEADER_BYTES];
            read_up_to(&file, &mut half, header).expect("it can be read");
            file.write_all_at(&all[header as usize..header as usize + HEADER_BYTES], header)
                .expect("there is room");
            assert_eq!(text(&file).expect("the other half is sound"), before, "{at}");
            file.write_all_at(&half, header).expect("there is room");
            assert_eq!(text(&file), Ok(Some(next)));
        }
    }

    #[test]
    fn what_cannot_be_read_is_told() {
        let file = tempfile::tempfile().expect("there is room");
        let damage = |bytes: &[u8], at| {
            file.set_len(0).expect("it can be cut");
            write(&file, "first");
            write(&file, "second");
            file.write_all_at(bytes, at).expect("there is room");
            text(&file)
        };
        let unreadable = |found: Result<Option<String>, Fault>| {
            matches!(found, Err(Fault::Unreadable(_) | Fault::Text(_)))
        };
        assert!(unreadable(damage(b"x", 20)), "the header that counts: the second is in the first half");
        assert!(unreadable(damage(b"x", HEADERS[1] + 20)), "the other header");
        assert!(unreadable(damage(b"x", TEXTS + 6)), "the text that counts");
        assert_eq!(damage(b"x", TEXTS), Ok(Some("second".into())), "the other text may be half written");
        assert!(unreadable(damage(&[1; 600], 0)));
        assert!(unreadable(damage(&[1; 64], TEXTS)), "both texts");
        file.set_len(1030).expect("it can be cut");
        assert!(unreadable(text(&file)));
        file.set_len(30).expect("it can be cut");
        assert!(unreadable(text(&file)));
        file.set_len(0).expect("it can be cut");
        file.write_all_at(b"#!/bin/sh\n", 0).expect("there is room");
        assert!(unreadable(text(&file)));
        file.write_all_at(&[0; 100], 0).expect("there is room");
        assert_eq!(text(&file), Ok(None), "a process was killed before it wrote the first header");
    }

    #[test]
    fn a_file_of_another_layout_is_named_so() {
        let file = tempfile::tempfile().expect("there is room");
        let mut bytes = Header { stamp: STAMP, sequence: 1, offset: TEXTS, length: 0, checksum: 0 }.bytes();
        bytes[4..8].copy_from_slice(&77_u32.to_le_bytes());
        let checksum = crc32fast::hash(&bytes[..HEADER_BYTES - 4]);
        bytes[HEADER_BYTES - 4..].copy_from_slice(&checksum.to_le_bytes());
        file.write_all_at(&bytes, 0).expect("there is room");
        assert_eq!(text(&file), Err(Fault::OtherLayout(77)));
    }
}
