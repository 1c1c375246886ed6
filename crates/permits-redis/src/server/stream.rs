//! A stream of bytes to a server, over TCP, a Unix socket or TLS, in two halves: any thread writes, while one
//! task waits for bytes to read.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, tcp};
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::address::{Secured, Server, ServerAddress};

/// The idle time after which the system probes a connection.
const KEEPALIVE: Duration = Duration::from_secs(5);

/// The time after which the host's next address is tried too.
const NEXT_ADDRESS: Duration = Duration::from_millis(250);

/// The half to read from.
pub(super) type Readable = Box<dyn AsyncRead + Send + Unpin>;

/// The half to write to. Dropping it does not end the stream.
pub(super) type Writable = Box<dyn AsyncWrite + Send + Unpin>;

/// Opens a stream to the server, with TLS if it is `secured`.
pub(super) async fn open(server: &Server, secured: Option<Secured>) -> io::Result<(Readable, Writable)> {
    if let Some(secured) = secured {
        return open_tls(server, secured).await;
    }
    #[cfg(unix)]
    if let ServerAddress::Unix(path) = server.address() {
        let (readable, writable) = tokio::net::UnixStream::connect(path).await?.into_split();
        return Ok((Box::new(readable), Box::new(KeptOpen(Some(writable)))));
    }
    let (readable, writable) = connect(server).await?.into_split();
    Ok((Box::new(readable), Box::new(KeptOpen(Some(writable)))))
}

#[cfg(feature = "tls")]
async fn open_tls(server: &Server, secured: Secured) -> io::Result<(Readable, Writable)> {
    let stream = connect(server).await?;
    let connector = tokio_rustls::TlsConnector::from(secured.config);
    let stream = connector.connect(secured.name, stream).await?;
    let (readable, writable) = tokio::io::split(stream);
    Ok((Box::new(readable), Box::new(writable)))
}

#[cfg(not(feature = "tls"))]
async fn open_tls(_: &Server, secured: Secured) -> io::Result<(Readable, Writable)> {
    match secured {}
}

/// Connects to the first of the host's addresses that replies. Each has a head start before the next one.
pub(super) async fn connect(server: &Server) -> io::Result<TcpStream> {
    let Some(host_and_port) = server.host_and_port() else {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "this system has no Unix sockets"));
    };
    let mut attempts = FuturesUnordered::new();
    let mut failed = io::Error::other("the host has no address");
    for address in addresses(host_and_port).await? {
        attempts.push(connect_to(address));
        tokio::select! {
            Some(attempt) = attempts.next() => match attempt {
                Ok(stream) => return Ok(stream),
                Err(error) => failed = error,
            },
            () = sleep(NEXT_ADDRESS) => {}
        }
    }
    while let Some(attempt) = attempts.next().await {
        match attempt {
            Ok(stream) => return Ok(stream),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// The addresses of a host. A name is looked up on a thread of its own: a look-up cannot be cancelled, and
/// tokio's look-up panics if no thread can be started.
async fn addresses((host, port): (&str, u16)) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![(address, port).into()]);
    }
    let (answer, found) = oneshot::channel();
    let host = host.to_owned();
    std::thread::Builder::new().name("permits-lookup".into()).spawn(move || {
        let addresses = (host.as_str(), port).to_socket_addrs().map(Vec::from_iter);
        // The connection may have been given up.
        drop(answer.send(addresses));
    })?;
    found.await.map_err(io::Error::other)?
}

async fn connect_to(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let socket = SockRef::from(&stream);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE))?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(2 * KEEPALIVE))?;
    Ok(stream)
}

/// A half that does not shut down the socket when it is dropped, because a forked child drops copies of it,
/// and shares the socket with its parent.
struct KeptOpen<T: Half>(Option<T>);

/// The writing half of a socket.
trait Half: AsyncWrite + Unpin {
    /// Drops the half without a shutdown of the socket.
    fn forget(self);
}

impl Half for tcp::OwnedWriteHalf {
    fn forget(self) {
        self.forget();
    }
}

#[cfg(unix)]
impl Half for tokio::net::unix::OwnedWriteHalf {
    fn forget(self) {
        self.forget();
    }
}

impl<T: Half> Drop for KeptOpen<T> {
    fn drop(&mut self) {
        if let Some(half) = self.0.take() {
            half.forget();
        }
    }
}

impl<T: Half> KeptOpen<T> {
    fn half(&mut self) -> Pin<&mut T> {
        Pin::new(self.0.as_mut().expect("it is there until it is dropped"))
    }
}

impl<T: Half> AsyncWrite for KeptOpen<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.half().poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.half().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.half().poll_shutdown(cx)
    }
}
