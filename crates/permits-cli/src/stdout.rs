//! The files behind standard output and standard error: written without a buffer, and looked at.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use tokio::time::sleep;

/// How often [`closed`] looks.
const CLOSED_INTERVAL: Duration = Duration::from_millis(250);

/// Writes all of it to standard output, and waits for a reader that is slow.
pub(crate) fn write(bytes: &[u8]) -> io::Result<()> {
    write_to(&io::stdout(), bytes)
}

/// Writes all of it to a file, and waits for a reader that is slow.
pub(crate) fn write_to(file: &impl AsFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(file, bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR) => {}
            // Another process has made the file non-blocking, which is a property of all that share it.
            Err(Errno::AGAIN) => {
                let _ = poll(&mut [PollFd::new(file, PollFlags::OUT)], None);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// True if the reader of standard output has closed it, even if no write has failed yet. poll(2) reports an
/// error for a pipe, and a hang-up for a socket, from which programs in Node read.
pub(crate) fn is_closed() -> bool {
    has(&io::stdout(), PollFlags::ERR | PollFlags::HUP)
}

/// Waits until the reader of standard output has closed it.
pub(crate) async fn closed() {
    while !is_closed() {
        sleep(CLOSED_INTERVAL).await;
    }
}

/// True if poll(2) reports one of these flags for an open file; false if poll(2) fails.
pub(crate) fn has(file: &impl AsFd, flags: PollFlags) -> bool {
    let mut polled = [PollFd::new(file, PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut polled, Some(&at_once)).is_ok() && polled[0].revents().intersects(flags)
}
