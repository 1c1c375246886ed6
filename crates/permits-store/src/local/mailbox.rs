//! [`Mailbox`]: the FIFO of a session. By it, other processes tell the session what they have changed for it,
//! and the session's own threads wake the thread that works with the files.
//!
//! A message is a line, written at once. An empty line only wakes the reader. If a line cannot be read, or
//! the FIFO is full, messages may be lost. Then the session renews all that it has, and learns the same from
//! the replies. For what it would not learn by a renewal, see [`Untold`](super::untold::Untold).

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::access;
use super::directory::{DRAFT, Directory, PRIVATE, is_text, open};
use super::record::Mark;
use crate::protocol::{Event, Name, SessionId};

/// The beginning of the name of a FIFO. The session's id follows.
pub(crate) const PREFIX: &str = ".to-";

/// How long a message may be, so that the system writes it at once.
const LINE_BYTES: usize = 4096;

/// How many bytes a FIFO takes on most systems. If each message fills half a page, it is full after half of
/// that.
const PIPE_BYTES: usize = 64 << 10;

/// Stands for a message that was lost.
const LOST: &str = "!";

/// A FIFO without a reader that is older than this was left by a process that was killed.
const LEFTOVER_AGE: Duration = Duration::from_secs(60);

/// A message to a session.
#[derive(Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) enum Message {
    /// An event, and the half of the file whose state has it.
    Event(Event, Option<Mark>),
    /// Others need what the session keeps of this semaphore.
    Recall(Name),
}

/// The messages that a session has received.
#[derive(Debug, Default)]
pub(super) struct Received {
    pub(super) messages: Vec<Message>,
    /// Other messages may have been lost.
    pub(super) lost: bool,
}

/// The FIFO of a session. Dropping it removes it.
pub(super) struct Mailbox {
    path: PathBuf,
    incoming: File,
    /// The beginning of a line whose rest has not been read.
    rest: Vec<u8>,
}

impl Mailbox {
    /// Makes a session's FIFO. Also returns a writer that wakes its reader.
    pub(super) fn make(directory: &Directory, session: &SessionId) -> io::Result<(Self, File)> {
        let path = path(directory, session);
        make_fifo(&path, access::mode_in(directory.metadata()))?;
        let incoming = open(&path, OFlags::RDONLY)?;
        // The writer also keeps the reader from ever finding an end.
        let wake = open(&path, OFlags::WRONLY)?;
        Ok((Self { path, incoming, rest: Vec::new() }, wake))
    }

    /// Returns true if other processes can find the FIFO.
    pub(super) fn is_named(&self) -> bool {
        let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
        let named = fs::symlink_metadata(&self.path).map(identity);
        matches!((named, self.incoming.metadata().map(identity)), (Ok(named), Ok(own)) if named == own)
    }

    /// Sleeps until something comes.
    pub(super) fn wait(&self) {
        // If `poll` fails, it was interrupted, and the caller looks again.
        let _ = poll(&mut [PollFd::new(&self.incoming, PollFlags::IN)], None);
    }

    /// Takes what has come.
    pub(super) fn receive(&mut self) -> Received {
        let mut received = Received::default();
        let mut bytes = std::mem::take(&mut self.rest);
        let mut part = [0; LINE_BYTES];
        // An error means that the read was interrupted, or the FIFO is empty: the caller looks again, or
        // sleeps.
        while let Ok(length) = self.incoming.read(&mut part) {
            bytes.extend_from_slice(&part[..length]);
            if length < part.len() {
                break;
            }
        }
        received.lost = bytes.len() > PIPE_BYTES / 2 - LINE_BYTES;
        let mut lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
        let rest = lines.pop().unwrap_or_default().to_vec();
        for line in lines.into_iter().filter(|line| !line.is_empty()) {
            match serde_json::from_slice(line) {
                Ok(message) => received.messages.push(message),
                Err(_) => received.lost = true,
            }
        }
        // A rest that is longer than any message is garbage.
        self.rest = if rest.len() > LINE_BYTES { Vec::new() } else { rest };
        received
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        if self.is_named() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Sends messages to a session, without waiting. Returns the messages that its FIFO does not take. The
/// session learns of a lost recall or grant by its next renewal.
pub(super) fn send<'a>(
    directory: &Directory,
    session: &SessionId,
    messages: &'a [Message],
) -> Vec<&'a Message> {
    let all = || messages.iter().collect();
    let path = path(directory, session);
    let mut fifo = match open(&path, OFlags::WRONLY) {
        Ok(file) if is_fifo(&file) => file,
        // The session's process is gone.
        Err(error) if has_no_reader(&error) => {
            let _ = fs::remove_file(path);
            return Vec::new();
        }
        _ => return all(),
    };
    // The session's process may end meanwhile. Writing to a FIFO without a reader raises SIGPIPE, which would
    // end some programs. So open it for reading here, too.
    let Ok(_reader) = open(&path, OFlags::RDONLY) else { return all() };
    let mut is_taken = |message: &Message| {
        let text = serde_json::to_string(message).unwrap_or_default();
        let is_short = !text.is_empty() && text.len() < LINE_BYTES;
        let line = format!("{}\n", if is_short { &text } else { LOST });
        // If the FIFO is full, its reader notices that.
        fifo.write(line.as_bytes()).is_ok() && is_short
    };
    messages.iter().filter(|message| !is_taken(message)).collect()
}

fn is_fifo(file: &File) -> bool {
    file.metadata().is_ok_and(|metadata| metadata.file_type().is_fifo())
}

fn has_no_reader(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::NXIO.raw_os_error())
}

/// Wakes the reader of a mailbox.
pub(super) fn wake(mut waker: &File) {
    // If the FIFO is full, the write fails, but then its reader wakes anyway.
    let _ = waker.write(b"\n");
}

/// Returns true if some process reads a FIFO of this directory.
pub(super) fn has_reader(directory: &Directory) -> io::Result<bool> {
    let paths = directory.files(|name| name.starts_with(PREFIX))?;
    Ok(paths.iter().any(|path| open(path, OFlags::WRONLY).is_ok_and(|file| is_fifo(&file))))
}

/// Finds the FIFOs of sessions that were killed, and files that were never named. Removes them if `remove` is
/// true. Returns their number.
pub(crate) fn leftovers(directory: &Directory, remove: bool) -> io::Result<usize> {
    let mut found = 0;
    for path in
        directory.files(|name| (name.starts_with(PREFIX) || name.starts_with(DRAFT)) && !is_text(name))?
    {
        let age =
            || fs::symlink_metadata(&path).and_then(|metadata| metadata.modified()).ok()?.elapsed().ok();
        let gone = || match open(&path, OFlags::WRONLY) {
            Ok(file) => !is_fifo(&file),
            Err(error) => has_no_reader(&error),
        };
        if age().is_some_and(|age| age > LEFTOVER_AGE) && gone() {
            found += 1;
            if remove {
                let _ = fs::remove_file(&path);
            }
        }
    }
    Ok(found)
}

fn path(directory: &Directory, session: &SessionId) -> PathBuf {
    directory.path().join(format!("{PREFIX}{session}"))
}

fn make_fifo(path: &Path, mode: u32) -> io::Result<()> {
    #[cfg(not(target_vendor = "apple"))]
    {
        use rustix::fs::{CWD, Mode, mkfifoat};
        match mkfifoat(CWD, path, Mode::RUSR | Mode::WUSR) {
            Ok(()) => {}
            // A FIFO of the same session, which has lost it, is in the way.
            Err(Errno::EXIST) => {
                fs::remove_file(path)?;
                mkfifoat(CWD, path, Mode::RUSR | Mode::WUSR)?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    // Apple's systems have no safe function for this in rustix.
    #[cfg(target_vendor = "apple")]
    if !std::process::Command::new("mkfifo").arg(path).status()?.success() {
        return Err(io::Error::other("mkfifo failed"));
    }
    // Set the mode now: the umask would restrict it above.
    if mode == PRIVATE { Ok(()) } else { fs::set_permissions(path, fs::Permissions::from_mode(mode)) }
}
