//! The fenced resource for other processes: a service on a Unix socket and its client.

use std::io::{self, BufRead, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt};
use tokio::sync::oneshot;

use super::{FencedResource, Stale};
use crate::wait::HANGS;

/// A [`FencedResource`] that other processes write to, over a Unix socket in a directory of its own.
///
/// Dropping it closes its connections and removes the socket.
///
/// # Examples
///
/// ```
/// use permits_testkit::{FencedClient, FencedServer};
///
/// let server = FencedServer::start();
/// let mut client = FencedClient::connect(server.path()).expect("it listens");
///
/// assert!(client.write(0, 9, "first").expect("it answers").is_ok());
/// assert_eq!(client.write(0, 7, "late").expect("it answers").expect_err("it is stale").highest, 9);
/// assert_eq!(server.resource().writes()[0].data, "first");
/// ```
#[derive(Debug)]
pub struct FencedServer {
    resource: Arc<FencedResource>,
    path: PathBuf,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    _dir: TempDir,
}

impl FencedServer {
    /// Starts the service, on a thread of its own, with a resource without writes.
    ///
    /// # Panics
    ///
    /// If the system has no socket or thread to give.
    pub fn start() -> Self {
        let dir = tempfile::Builder::new()
            .prefix("permits-fence-")
            .tempdir()
            .expect("a temporary directory can be made");
        let path = dir.path().join("fence.sock");
        let listener = UnixListener::bind(&path).expect("a directory of our own takes a socket");
        listener.set_nonblocking(true).expect("a listener can be made non-blocking");
        let resource = Arc::new(FencedResource::new());
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new()
            .name("permits-fence".to_owned())
            .spawn({
                let resource = Arc::clone(&resource);
                move || serve(listener, resource, stopped)
            })
            .expect("the system has a thread to give");
        Self { resource, path, stop: Some(stop), thread: Some(thread), _dir: dir }
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
        // Either call fails only if the thread has ended, which is the aim.
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The thread of a service: accepts until it is stopped. Its connections end with its runtime.
fn serve(listener: UnixListener, resource: Arc<FencedResource>, mut stop: oneshot::Receiver<()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("the system has an event queue to give");
    runtime.block_on(async {
        let listener = tokio::net::UnixListener::from_std(listener).expect("the listener is non-blocking");
        loop {
            tokio::select! {
                _ = &mut stop => return,
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => {
                        // Ignore the error: the client has closed the connection.
                        let answers = answer_all(stream, Arc::clone(&resource));
                        tokio::spawn(async { drop(answers.await) });
                    }
                    // The system may have no descriptors left; others are closed in a moment.
                    Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
                },
            }
        }
    });
}

async fn answer_all(mut stream: tokio::net::UnixStream, resource: Arc<FencedResource>) -> io::Result<()> {
    let (from, mut to) = stream.split();
    let mut lines = tokio::io::BufReader::new(from).lines();
    while let Some(line) = lines.next_line().await? {
        to.write_all(answer(&line, &resource).as_bytes()).await?;
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
    /// Connects to the service at `path`; a reply may take up to 10 seconds.
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
