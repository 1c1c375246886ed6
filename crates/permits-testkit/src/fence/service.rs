//! The fenced resource for other processes: a service on a Unix socket and its client.

use std::io::{self, BufRead, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use tempfile::TempDir;

use super::{FencedResource, Stale};
use crate::wait::HANGS;

/// A [`FencedResource`] that other processes write to, over a Unix socket in a directory of its own.
///
/// Dropping it ends the service and removes the socket. A connection ends with its client.
#[derive(Debug)]
pub struct FencedServer {
    resource: Arc<FencedResource>,
    path: PathBuf,
    stopped: Arc<AtomicBool>,
    _dir: TempDir,
}

impl FencedServer {
    /// Starts the service, on threads of its own, with a resource without writes.
    pub fn start() -> Self {
        let dir = tempfile::Builder::new().prefix("permits-fence-").tempdir().expect("there is room");
        let path = dir.path().join("fence.sock");
        let listener = UnixListener::bind(&path).expect("a directory of our own takes a socket");
        let (resource, stopped) = (Arc::<FencedResource>::default(), Arc::<AtomicBool>::default());
        let (writes, stopping) = (resource.clone(), stopped.clone());
        thread::spawn(move || {
            for stream in listener.incoming() {
                if stopping.load(Ordering::Relaxed) {
                    return;
                }
                let resource = writes.clone();
                // An error says that the client has closed the connection.
                thread::spawn(move || stream.and_then(|stream| answer_all(&stream, &resource)));
            }
        });
        Self { resource, path, stopped, _dir: dir }
    }

    /// The socket at which it listens.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The resource behind it.
    pub fn resource(&self) -> &FencedResource {
        &self.resource
    }
}

impl Drop for FencedServer {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        // Wakes the thread, which then ends.
        let _ = UnixStream::connect(&self.path);
    }
}

fn answer_all(mut stream: &UnixStream, resource: &FencedResource) -> io::Result<()> {
    for line in BufReader::new(stream).lines() {
        stream.write_all(answer(&line?, resource).as_bytes())?;
    }
    Ok(())
}

/// Executes one request.
fn answer(line: &str, resource: &FencedResource) -> String {
    let mut words = line.splitn(4, ' ');
    let request = (|| {
        (words.next()? == "WRITE").then_some(())?;
        Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?, words.next()?))
    })();
    let Some((slot, token, data)) = request else {
        return "ERROR expected WRITE slot token data\n".to_owned();
    };
    match resource.write(slot, token, data) {
        Ok(()) => "OK\n".to_owned(),
        Err(Stale { highest, .. }) => format!("STALE {highest}\n"),
    }
}

/// A connection to a [`FencedServer`].
#[derive(Debug)]
pub struct FencedClient {
    stream: BufReader<UnixStream>,
}

impl FencedClient {
    /// Connects to the service at `path`.
    ///
    /// # Errors
    ///
    /// If no service listens there.
    pub fn connect(path: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(HANGS))?;
        stream.set_write_timeout(Some(HANGS))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Writes `data`, which is one line, under a permit with this slot and token. The inner result is the
    /// resource's: whether the token is stale.
    ///
    /// # Errors
    ///
    /// If the connection is lost: the write may have been executed. `InvalidInput` if `data` has a line
    /// break, `InvalidData` if the reply is not one of the service.
    pub fn write(&mut self, slot: u32, token: u64, data: &str) -> io::Result<Result<(), Stale>> {
        if data.contains(['\n', '\r']) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the data is more than one line"));
        }
        self.stream.get_mut().write_all(format!("WRITE {slot} {token} {data}\n").as_bytes())?;
        let mut reply = String::new();
        if self.stream.read_line(&mut reply)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match (reply.trim_end(), reply.trim_end().strip_prefix("STALE ").map(str::parse)) {
            ("OK", _) => Ok(Ok(())),
            (_, Some(Ok(highest))) => Ok(Err(Stale { slot, token, highest })),
            _ => Err(io::Error::new(io::ErrorKind::InvalidData, reply)),
        }
    }
}
