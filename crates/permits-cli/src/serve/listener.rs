//! Connections, and the bounds of what they cost.
//!
//! | what a client may do | bound |
//! |---|---|
//! | open connections | [`MAX_CONNECTIONS`], and one for each request that may wait in line; a further one takes the place of the connection without a token that was silent for longest, see [`Places`] |
//! | send a request slowly, or none | [`HEAD_TIMEOUT`] until its head is complete |
//! | send a large head | [`MAX_HEAD`] bytes, [`MAX_HEADERS`] headers |
//! | read a reply slowly | [`SEND_BUFFER`] in the system, [`WRITE_TIMEOUT`] until a reply or the events so far are taken |

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, Sleep, sleep};

/// The most connections at once, beside connections whose requests wait in line.
pub(super) const MAX_CONNECTIONS: usize = 256;

/// The longest time from the start of a wait for a request to the end of its head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// The largest head of a request, in bytes.
const MAX_HEAD: usize = 16 * 1024;

/// The most headers of a request.
const MAX_HEADERS: usize = 64;

/// The longest time from the first byte that is written to the time at which the client, or the system for
/// it, has taken all: a reply, or the events so far. Taking a byte now and then does not extend it, because a
/// reply costs memory until then.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// The bytes that the system takes for a client that does not read, of which Linux doubles the space. By
/// itself it takes up to 4 MB. The rate of a client 100 ms away is still above 1 MB/s.
const SEND_BUFFER: u32 = 128 * 1024;

/// The most connections that wait to be accepted.
const BACKLOG: u32 = 1024;

/// The pause after the system had no connection to give, say because there are too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The reply to a connection too many: one write, for which the empty buffer of a new connection has room.
const TOO_MANY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 21\r\n\
    Connection: close\r\n\r\ntoo many connections\n";

/// The two ends of a connection.
#[derive(Debug, Clone)]
pub(super) struct Ends {
    pub(super) local: SocketAddr,
    pub(super) peer: SocketAddr,
    pub(super) client: Arc<Client>,
}

/// Listens on `address`.
pub(super) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Connections of a server that has ended do not keep the port.
    socket.set_reuseaddr(true)?;
    // Each connection inherits it.
    socket.set_send_buffer_size(SEND_BUFFER)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Accepts connections and answers their requests, at most `most` connections at once.
pub(super) async fn serve(
    listener: TcpListener,
    router: Router,
    most: usize,
    ending: watch::Receiver<bool>,
) -> Infallible {
    let places = Arc::new(Places { taken: Mutex::default(), most });
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let Ok(local) = stream.local_addr() else { continue };
        let Some(client) = places.take() else {
            // The buffer of a new connection is empty.
            if stream.writable().await.is_ok() {
                let _ = stream.try_write(TOO_MANY);
            }
            continue;
        };
        let ends = Ends { local: canonical(local), peer: canonical(peer), client };
        let (places, router, ending) = (places.clone(), router.clone(), ending.clone());
        tokio::spawn(async move {
            let client = ends.client.clone();
            connection(stream, ends, router, ending).await;
            places.give_back(&client);
        });
    }
}

/// The places of the open connections.
///
/// A program without a token can open any number of connections. It keeps no other client out: when all
/// places are taken, a new connection gets the place of the one whose last byte, in either direction, is the
/// oldest. A connection whose last request has shown a token keeps its place.
struct Places {
    taken: Mutex<Vec<Arc<Client>>>,
    most: usize,
}

/// A client that is connected.
#[derive(Debug)]
pub(super) struct Client {
    /// The time of its last byte, or of its connection.
    active_at: Mutex<Instant>,
    /// True if its last request for data has shown a token.
    has_token: AtomicBool,
    given_up: Notify,
}

impl Places {
    /// A place, of another client if need be.
    fn take(&self) -> Option<Arc<Client>> {
        let mut taken = self.taken.lock().expect("no code panics with it");
        if taken.len() >= self.most {
            let others =
                taken.iter().enumerate().filter(|(_, client)| !client.has_token.load(Ordering::Relaxed));
            let (longest_idle, _) = others.min_by_key(|(_, client)| client.active_at())?;
            taken.swap_remove(longest_idle).given_up.notify_one();
        }
        let client = Arc::new(Client {
            active_at: Mutex::new(Instant::now()),
            has_token: AtomicBool::new(false),
            given_up: Notify::new(),
        });
        taken.push(client.clone());
        Some(client)
    }

    fn give_back(&self, client: &Arc<Client>) {
        self.taken.lock().expect("no code panics with it").retain(|taken| !Arc::ptr_eq(taken, client));
    }
}

impl Client {
    /// Notes whether its last request has shown a token. If so, its connection is not given up for another.
    pub(super) fn has_shown_token(&self, is_known: bool) {
        self.has_token.store(is_known, Ordering::Relaxed);
    }

    fn active_at(&self) -> Instant {
        *self.active_at.lock().expect("no code panics with it")
    }

    /// Notes the time of bytes that were read or written.
    fn note<T>(&self, moved: &Poll<io::Result<T>>) {
        if matches!(moved, Poll::Ready(Ok(_))) {
            *self.active_at.lock().expect("no code panics with it") = Instant::now();
        }
    }
}

/// The IPv4 address of a client that reaches a socket of both families by IPv4.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Answers the requests of a connection until it ends. After `ending` it ends with the reply in progress.
async fn connection(stream: TcpStream, ends: Ends, router: Router, mut ending: watch::Receiver<bool>) {
    // An error changes nothing but the delay: events arrive up to 40 ms later.
    let _ = stream.set_nodelay(true);
    let client = ends.client.clone();
    let service = tower_service(router, ends);
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    builder.max_header_size(MAX_HEAD).max_buf_size(MAX_HEAD + 1024).max_headers(MAX_HEADERS);
    let connection = builder.serve_connection(TokioIo::new(Bounded::new(stream, client.clone())), service);
    let mut connection = std::pin::pin!(connection);
    // The errors come from clients: disconnected, too slow, malformed.
    tokio::select! {
        _ = connection.as_mut() => {}
        () = client.given_up.notified() => {}
        () = ended(&mut ending) => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}

/// Waits until the server ends. Cancel safe.
pub(super) async fn ended(ending: &mut watch::Receiver<bool>) {
    let _ = ending.wait_for(|ending| *ending).await;
}

fn tower_service(
    router: Router,
    ends: Ends,
) -> impl hyper::service::Service<
    Request<Incoming>,
    Response = axum::response::Response,
    Error = Infallible,
    Future: Send,
> {
    let service = TowerToHyperService::new(router);
    hyper::service::service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(ends.clone());
        hyper::service::Service::call(&service, request)
    })
}

/// A stream that fails when the bytes written to it are not taken within [`WRITE_TIMEOUT`].
struct Bounded {
    stream: TcpStream,
    client: Arc<Client>,
    /// Runs from a write to the flush that follows when nothing is left to write.
    pending: Option<Pin<Box<Sleep>>>,
}

impl Bounded {
    fn new(stream: TcpStream, client: Arc<Client>) -> Self {
        Self { stream, client, pending: None }
    }

    /// Passes the result of a write, or fails if bytes have been left to write for too long.
    fn bounded<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        self.client.note(&written);
        let pending = self.pending.get_or_insert_with(|| Box::pin(sleep(WRITE_TIMEOUT)));
        match pending.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => written,
        }
    }
}

impl AsyncRead for Bounded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.client.note(&read);
        read
    }
}

impl AsyncWrite for Bounded {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.bounded(context, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        if flushed.is_ready() {
            self.pending = None;
            return flushed;
        }
        self.bounded(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(context);
        self.bounded(context, shut)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.bounded(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
