//! A connection through the proxy, and its faults.
//!
//! Two pumps carry the chunks of a connection, one in each direction. A pump reads a chunk, decides whether
//! it is passed on, holds it back for the delay, and writes it. It reads the switches again between reading
//! and writing, so that nothing sent after a switch was turned slips past it.
//!
//! Cutting works from the outside, on a second handle of the sockets: [`Shared::cut`] is done when it
//! returns, independent of what the pumps wait for.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::mem;
use std::net::{Shutdown, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout};

use crate::wait::HANGS;

use super::timer::Timer;

/// The largest piece that is read at once.
const CHUNK: usize = 16 * 1024;

/// The chunks that one direction may hold back; then the sender is no longer read, and blocks.
const HELD_BACK: usize = 1024;

/// The switches that pumps read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    pub(super) request_delay: Duration,
    pub(super) reply_delay: Duration,
    pub(super) swallow_replies: bool,
    pub(super) swallow_messages: &'static [u8],
    pub(super) stalled: bool,
}

impl Faults {
    fn delay(&self, direction: Direction) -> Duration {
        match direction {
            Direction::Requests => self.request_delay,
            Direction::Replies => self.reply_delay,
        }
    }
}

/// A fault that happens once.
#[derive(Debug)]
pub(super) enum Swallow {
    NextReply,
    ReplyTo(Vec<u8>),
}

/// The state that the proxy and its connections share.
#[derive(Debug)]
pub(super) struct Shared {
    upstream: Mutex<SocketAddr>,
    pub(super) faults: watch::Sender<Faults>,
    pub(super) accepted: AtomicUsize,
    pub(super) refused: AtomicUsize,
    pub(super) swallowed: AtomicUsize,
    armed: Mutex<Option<Swallow>>,
    links: Mutex<Links>,
}

/// The open connections. Refusing is under the same lock, so that none is opened past it.
#[derive(Debug, Default)]
struct Links {
    refusing: bool,
    last: u64,
    open: HashMap<u64, Arc<Link>>,
}

/// The means to cut one connection from any thread.
#[derive(Debug)]
struct Link {
    number: u64,
    client: std::net::TcpStream,
    upstream: std::net::TcpStream,
    severed: Notify,
}

impl Shared {
    pub(super) fn new(upstream: SocketAddr) -> Self {
        Self {
            upstream: Mutex::new(upstream),
            faults: watch::Sender::default(),
            accepted: AtomicUsize::default(),
            refused: AtomicUsize::default(),
            swallowed: AtomicUsize::default(),
            armed: Mutex::default(),
            links: Mutex::default(),
        }
    }

    pub(super) fn lead_to(&self, upstream: SocketAddr) {
        *lock(&self.upstream) = upstream;
    }

    pub(super) fn cut(&self) {
        let open = mem::take(&mut lock(&self.links).open);
        open.values().for_each(|link| link.sever());
    }

    pub(super) fn refuse(&self, on: bool) {
        lock(&self.links).refusing = on;
        if on {
            self.cut();
        }
    }

    pub(super) fn arm(&self, swallow: Swallow) {
        *lock(&self.armed) = Some(swallow);
    }

    pub(super) fn connections(&self) -> usize {
        lock(&self.links).open.len()
    }

    fn refusing(&self) -> bool {
        lock(&self.links).refusing
    }

    /// Enters a connection among the open ones; `None` if they are refused.
    fn open(&self, client: std::net::TcpStream, upstream: std::net::TcpStream) -> Option<Arc<Link>> {
        let mut links = lock(&self.links);
        if links.refusing {
            return None;
        }
        links.last += 1;
        let link = Arc::new(Link { number: links.last, client, upstream, severed: Notify::new() });
        links.open.insert(link.number, Arc::clone(&link));
        Some(link)
    }

    fn close(&self, link: &Link) {
        // First out of the count, then cut, so that a client that sees its end does not find it counted.
        lock(&self.links).open.remove(&link.number);
        link.sever();
    }

    /// Returns whether `request`, which came after `previous`, completes the needle; once.
    fn takes_reply_to(&self, previous: &[u8], request: &[u8]) -> bool {
        let mut armed = lock(&self.armed);
        let taken = matches!(&*armed, Some(Swallow::ReplyTo(needle)) if completes(needle, previous, request));
        if taken {
            *armed = None;
        }
        taken
    }

    /// Returns whether the next reply is to be swallowed; once.
    fn takes_next_reply(&self) -> bool {
        let mut armed = lock(&self.armed);
        let taken = matches!(*armed, Some(Swallow::NextReply));
        if taken {
            *armed = None;
        }
        taken
    }
}

impl Link {
    fn sever(&self) {
        // An error says that the other side was faster.
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.upstream.shutdown(Shutdown::Both);
        self.severed.notify_one();
    }
}

/// Carries one accepted connection to its end.
pub(super) async fn run(client: TcpStream, shared: Arc<Shared>) {
    shared.accepted.fetch_add(1, SeqCst);
    if shared.refusing() {
        shared.refused.fetch_add(1, SeqCst);
        return;
    }
    let upstream = *lock(&shared.upstream);
    let Ok(upstream) = TcpStream::connect(upstream).await else {
        return;
    };
    let (Ok((mut client, client_handle)), Ok((mut upstream, upstream_handle))) =
        (doubled(client), doubled(upstream))
    else {
        return;
    };
    let Some(link) = shared.open(client_handle, upstream_handle) else {
        shared.refused.fetch_add(1, SeqCst);
        return;
    };
    tokio::select! {
        biased;
        () = link.severed.notified() => {}
        () = relay(&mut client, &mut upstream, &shared) => {}
    }
    shared.close(&link);
}

/// The socket and a second handle of it, without delay for small chunks.
fn doubled(stream: TcpStream) -> io::Result<(TcpStream, std::net::TcpStream)> {
    stream.set_nodelay(true)?;
    let stream = stream.into_std()?;
    let handle = stream.try_clone()?;
    Ok((TcpStream::from_std(stream)?, handle))
}

/// The reasons why a connection ends.
enum End {
    /// The server has closed it, and all its bytes are delivered.
    ///
    /// A client that closes does so one way, because its last requests are still to be answered. A server
    /// that closes has gone altogether: the client has to meet a closed connection, as it would without the
    /// proxy.
    Closed,
    /// A reply is to be swallowed and the connection cut.
    Swallowed,
    /// A side is gone.
    Broken,
}

impl From<io::Error> for End {
    fn from(_: io::Error) -> Self {
        Self::Broken
    }
}

async fn relay(client: &mut TcpStream, upstream: &mut TcpStream, shared: &Shared) {
    let doomed = AtomicBool::new(false);
    let ended = {
        let (from_client, to_client) = client.split();
        let (from_upstream, to_upstream) = upstream.split();
        tokio::try_join!(
            pump(Direction::Requests, from_client, to_upstream, shared, &doomed),
            pump(Direction::Replies, from_upstream, to_client, shared, &doomed),
        )
    };
    if matches!(ended, Err(End::Swallowed)) {
        drain(upstream).await;
        shared.swallowed.fetch_add(1, SeqCst);
    }
}

/// Lets the server finish its requests, and throws away its replies.
///
/// A server reads in pieces and answers in between. If the connection were closed at once, the answer to the
/// first piece would meet a reset, and the server would drop the pieces that it has not read. So the sending
/// side alone is closed, and the server reads all, acts on all, and closes.
async fn drain(upstream: &mut TcpStream) {
    let finish = async {
        upstream.shutdown().await?;
        let mut ignored = [0; 1024];
        while upstream.read(&mut ignored).await? > 0 {}
        io::Result::Ok(())
    };
    // The connection is cut afterwards in any case, whether it ended well, badly or not in time.
    let _ = timeout(HANGS, finish).await;
}

#[derive(Clone, Copy, PartialEq)]
enum Direction {
    Requests,
    Replies,
}

/// A chunk that is held back.
struct Held {
    came: Instant,
    bytes: Vec<u8>,
}

/// Carries the chunks of one direction until its sender has closed and all is delivered.
async fn pump(
    direction: Direction,
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    shared: &Shared,
    doomed: &AtomicBool,
) -> Result<(), End> {
    let mut faults = shared.faults.subscribe();
    let mut held: VecDeque<Held> = VecDeque::new();
    let timer = Timer::new()?;
    let mut previous = Vec::new();
    let mut open = true;
    let mut buffer = vec![0; CHUNK];
    loop {
        let now = *faults.borrow_and_update();
        let (stalled, delay) = (now.stalled, now.delay(direction));
        let due = held.front().map(|chunk| chunk.came + delay);
        if !stalled {
            if due.is_some_and(|due| due <= Instant::now())
                && let Some(chunk) = held.pop_front()
            {
                to.write_all(&chunk.bytes).await?;
                // The note is made after the write. Before it, a reply to an earlier request would end the
                // connection in the middle of this one. No reply to this request can be read before the note,
                // because no other task of this thread runs between the last byte and here.
                if direction == Direction::Requests {
                    if shared.takes_reply_to(&previous, &chunk.bytes) {
                        doomed.store(true, SeqCst);
                    }
                    previous = chunk.bytes;
                }
                continue;
            }
            if !open && held.is_empty() {
                to.shutdown().await?;
                return if direction == Direction::Requests { Ok(()) } else { Err(End::Closed) };
            }
        }
        tokio::select! {
            biased;
            _ = faults.changed() => {}
            passed = timer.until(due.unwrap_or_else(Instant::now)), if due.is_some() && !stalled => passed?,
            read = from.read(&mut buffer), if open && !stalled && held.len() < HELD_BACK => {
                let length = read?;
                if length == 0 {
                    open = false;
                } else if direction == Direction::Requests || survives(shared, doomed)? {
                    let mut bytes = buffer[..length].to_vec();
                    if direction == Direction::Replies {
                        take_messages_out(shared, &mut bytes);
                    }
                    if !bytes.is_empty() {
                        held.push_back(Held { came: Instant::now(), bytes });
                    }
                }
            }
        }
    }
}

/// Returns whether a chunk that came from the server just now is to be passed on.
fn survives(shared: &Shared, doomed: &AtomicBool) -> Result<bool, End> {
    if doomed.load(SeqCst) || shared.takes_next_reply() {
        return Err(End::Swallowed);
    }
    // Read again: the switch may have been turned while the pump waited.
    let swallow = shared.faults.borrow().swallow_replies;
    if swallow {
        shared.swallowed.fetch_add(1, SeqCst);
    }
    Ok(!swallow)
}

/// Takes the messages out of a chunk that are to be swallowed.
fn take_messages_out(shared: &Shared, chunk: &mut Vec<u8>) {
    let needle = shared.faults.borrow().swallow_messages;
    if needle.is_empty() {
        return;
    }
    let mut from = 0;
    while let Some(at) = find(&chunk[from..], MESSAGE).map(|at| from + at) {
        from = at + MESSAGE.len();
        let [Some(channel), Some(both)] = [1, 2].map(|texts| length_of_texts(&chunk[from..], texts)) else {
            return;
        };
        if find(&chunk[from..from + channel], needle).is_some() {
            // The byte before is the type of the group: a push, or an array in RESP2.
            let begin = at.saturating_sub(1);
            chunk.drain(begin..from + both);
            shared.swallowed.fetch_add(1, SeqCst);
            from = begin;
        }
    }
}

/// The beginning of a message, but its first byte. A channel and the text follow.
const MESSAGE: &[u8] = b"3\r\n$7\r\nmessage\r\n";

/// The length of the texts that the bytes begin with; `None` if they are not whole.
fn length_of_texts(bytes: &[u8], texts: usize) -> Option<usize> {
    let mut end = 0;
    for _ in 0..texts {
        let line = find(&bytes[end..], b"\r\n")?;
        let length = std::str::from_utf8(bytes[end..end + line].strip_prefix(b"$")?).ok()?;
        end += line + 2 + length.parse::<usize>().ok()? + 2;
        if end > bytes.len() {
            return None;
        }
    }
    Some(end)
}

fn find(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    bytes.windows(needle.len()).position(|window| window == needle)
}

/// Returns whether `needle` ends within `chunk`, having begun there or in `previous`.
fn completes(needle: &[u8], previous: &[u8], chunk: &[u8]) -> bool {
    let overlap = previous.len().min(needle.len() - 1);
    let joined = [&previous[previous.len() - overlap..], chunk].concat();
    find(&joined, needle).is_some()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic under these locks leaves the state whole, and dropping the proxy must not panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
