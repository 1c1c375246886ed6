//! The Unix socket on which programs connect.
//!
//! Only its user can connect, from the moment at which it exists: it is made under a umask of 177. Then
//! `--group` lets the members of a group connect, too. A socket that a dead process has left is replaced,
//! any other file is refused. Processes that start at the same time exclude each other by a lock of the
//! directory, so none takes the fresh socket of another for a dead one.
//!
//! Or systemd has made the socket, and hands it over. It stays there when this process ends.

use std::env;
use std::fmt;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, lchown};
use std::os::unix::net;
use std::path::{Path, PathBuf};
use std::process;
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, flock};
use rustix::io::Errno;
use rustix::process::umask;
use serde_json::json;
use tokio::net::{UnixListener, UnixStream};
use tokio::time::{sleep, timeout};

use crate::args::value::Group;
use crate::exit::{self, Failure};
use crate::files::places;
use crate::posix;

/// The most connections at once, if the system allows so many open files. Further ones get a `failed` event,
/// and are closed.
const MAX_CONNECTIONS: usize = 256;

/// The longest wait for the lock of the directory, which any user that can read the directory may have.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// The pause between two attempts to lock the directory.
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// The pause after the system had no connection to give, say because there are too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A socket that this process listens on. Dropped, it is removed, if this process has made it.
pub(super) struct Socket {
    listener: UnixListener,
    /// The most connections at once.
    most: usize,
    path: PathBuf,
    /// The device and the number of the file that this process has made.
    file: Option<(u64, u64)>,
}

impl fmt::Display for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unix:{}", self.path.display())
    }
}

impl Socket {
    /// Takes the socket that systemd has made for a unit: see sd_listen_fds(3).
    ///
    /// # Errors
    /// A failure if there is no socket, there are several, or it is another kind of socket.
    pub(super) fn inherited() -> Result<Self, Failure> {
        let refused = |reason: String| {
            let what = "start permits by a .socket unit of systemd, or write --listen unix:PATH";
            Failure::new(exit::SYSTEM, format!("no socket was handed over: {reason}. To mend it, {what}"))
        };
        let number = |name: &str| env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
        let (Some(pid), Some(sockets)) = (number("LISTEN_PID"), number("LISTEN_FDS")) else {
            return Err(refused("LISTEN_PID and LISTEN_FDS are not set".to_owned()));
        };
        if pid != process::id() {
            let reason = "is the process that systemd has started: a shell in between has to use exec";
            return Err(refused(format!("LISTEN_PID is {pid}, and this is {}. It {reason}", process::id())));
        }
        if sockets != 1 {
            return Err(refused(format!("LISTEN_FDS is {sockets}, and one ListenStream= is expected")));
        }
        let because = |error: io::Error| refused(format!("descriptor 3 cannot be used: {error}"));
        let Some(descriptor) = posix::inherited_listener(3) else {
            return Err(refused(
                "descriptor 3 does not listen: the unit needs ListenStream=, and Accept=no".to_owned(),
            ));
        };
        let listener = net::UnixListener::from(descriptor);
        let Ok(address) = listener.local_addr() else {
            return Err(refused("descriptor 3 is no Unix socket: ListenStream= needs a path".to_owned()));
        };
        listener.set_nonblocking(true).map_err(because)?;
        let path = address.as_pathname().unwrap_or(Path::new("")).to_owned();
        Ok(Self {
            listener: UnixListener::from_std(listener).map_err(because)?,
            path,
            file: None,
            most: places(MAX_CONNECTIONS),
        })
    }

    /// Listens at `path`, for this user and for a group.
    ///
    /// # Errors
    /// A failure if another process listens there, the file is no socket, or the system refuses it.
    pub(super) async fn bind(path: &Path, group: Option<&Group>) -> Result<Self, Failure> {
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
        // Dropping the socket removes the file if anything below fails.
        let socket =
            Self { listener, path: path.to_owned(), file: Some(file), most: places(MAX_CONNECTIONS) };
        group.map_or(Ok(()), |group| admit(group, path)).map_err(refused)?;
        Ok(socket)
    }

    /// The next connection, when `connections` are open. If `most` are, it is refused. Cancel safe.
    pub(super) async fn accept(&self, connections: usize) -> UnixStream {
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) if connections < self.most => return stream,
                Ok((stream, _)) => {
                    let reason = format!("{} programs are connected already", self.most);
                    let event = json!({ "event": "failed", "exit_code": exit::NOT_NOW, "reason": reason });
                    // The buffer of a new connection is empty.
                    if stream.writable().await.is_ok() {
                        let _ = stream.try_write(format!("{event}\n").as_bytes());
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
        if self.file.is_some() && identity(&self.path).ok() == self.file {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Lets the members of a group connect to the socket at `path`, which only its user can do yet.
fn admit(group: &Group, path: &Path) -> Result<(), String> {
    let Group { name, id } = group;
    lchown(path, None, Some(*id)).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => format!(
            "this user cannot give it to the group {name}: make the user a member of the group, or start as root"
        ),
        _ => format!("the group {name} cannot have it: {error}"),
    })?;
    let mode = Permissions::from_mode(0o660);
    fs::set_permissions(path, mode).map_err(|error| format!("its mode cannot be set: {error}"))
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
