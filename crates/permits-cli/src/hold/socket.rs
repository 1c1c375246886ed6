//! The Unix socket on which programs connect.
//!
//! Only its user can connect, from the moment at which it exists: it is made under a umask of 177. A socket
//! that a dead process has left is replaced, any other file is refused. Processes that start at the same time
//! exclude each other by a lock of the directory, so none takes the fresh socket of another for a dead one.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, flock};
use rustix::io::Errno;
use rustix::process::umask;
use tokio::net::{UnixListener, UnixStream};
use tokio::time::{sleep, timeout};

use crate::exit::{self, Failure};

/// The most connections at once. Further ones get a `failed` event, and are closed.
const MAX_CONNECTIONS: usize = 256;

/// The event for a connection too many.
const TOO_MANY: &[u8] =
    b"{\"event\":\"failed\",\"exit_code\":75,\"reason\":\"256 programs are connected already\"}\n";

/// The longest wait for the lock of the directory, which any user that can read the directory may have.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// The pause between two attempts to lock the directory.
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// The pause after the system had no connection to give, say because there are too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A socket that this process listens on. Dropped, it is removed.
pub(super) struct Socket {
    listener: UnixListener,
    path: PathBuf,
    /// The device and the number of the file.
    file: (u64, u64),
}

impl Socket {
    /// Listens at `path`.
    ///
    /// # Errors
    /// A failure if another process listens there, the file is no socket, or the system refuses it.
    pub(super) async fn bind(path: &Path) -> Result<Self, Failure> {
        let refused = |reason: String| {
            Failure::new(exit::SYSTEM, format!("cannot listen on unix:{}: {reason}", path.display()))
        };
        let because = |error: io::Error| refused(error.to_string());
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = File::open(parent.unwrap_or(Path::new(".")))
            .map_err(|error| refused(format!("its directory cannot be opened: {error}")))?;
        match timeout(LOCK_TIMEOUT, lock(&directory)).await {
            Ok(locked) => locked.map_err(because)?,
            Err(_) => return Err(refused("another process keeps its directory locked".to_owned())),
        }
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(because(error)),
            Ok(file) if !file.file_type().is_socket() => {
                return Err(refused("the file is no socket: remove it, or take another path".to_owned()));
            }
            Ok(_) => match UnixStream::connect(path).await {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    fs::remove_file(path).map_err(because)?;
                }
                Ok(_) => {
                    return Err(refused(
                        "another process listens there: end it, or take another path".to_owned(),
                    ));
                }
                Err(error) => return Err(because(error)),
            },
        }
        let before = umask(Mode::from_raw_mode(0o177));
        let listener = UnixListener::bind(path);
        umask(before);
        let listener = listener.map_err(because)?;
        let file = identity(path).map_err(because)?;
        Ok(Self { listener, path: path.to_owned(), file })
    }

    /// The next connection, while there are so many. Cancel safe.
    pub(super) async fn accept(&self, connections: usize) -> UnixStream {
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) if connections < MAX_CONNECTIONS => return stream,
                Ok((stream, _)) => {
                    // The buffer of a new connection is empty.
                    if stream.writable().await.is_ok() {
                        let _ = stream.try_write(TOO_MANY);
                    }
                }
                Err(_) => sleep(ACCEPT_PAUSE).await,
            }
        }
    }
}

impl Drop for Socket {
    /// Removes the file, unless another one is there.
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|file| file == self.file) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Locks the directory, once no other process has it locked.
async fn lock(directory: &File) -> io::Result<()> {
    loop {
        match flock(directory, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => sleep(LOCK_PAUSE).await,
            Err(Errno::INTR) => {}
            locked => return Ok(locked?),
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|file| (file.dev(), file.ino()))
}
