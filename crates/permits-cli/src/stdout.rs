//! The file behind standard output: written without a buffer, and looked at.

use std::io;
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Writes all of it, and waits for a reader that is slow.
pub(crate) fn write(mut bytes: &[u8]) -> io::Result<()> {
    let stdout = io::stdout();
    while !bytes.is_empty() {
        match rustix::io::write(&stdout, bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR) => {}
            // Another process has made the file non-blocking, which is a property of all that share it.
            Err(Errno::AGAIN) => {
                let _ = poll(&mut [PollFd::new(&stdout, PollFlags::OUT)], None);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// True if the reader of standard output has closed it, also before a line cannot be written. The system
/// reports an error of a pipe then, and the end of the connection of a socket, as programs in Node read from.
pub(crate) fn is_closed() -> bool {
    has(&io::stdout(), PollFlags::ERR | PollFlags::HUP)
}

/// True if the system reports one of these of a file that is open. An error says nothing about it.
pub(crate) fn has(file: &impl AsFd, flags: PollFlags) -> bool {
    let mut polled = [PollFd::new(file, PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut polled, Some(&at_once)).is_ok() && polled[0].revents().intersects(flags)
}
