//! A network that fails on demand: a TCP proxy before one address.
//!
//! A [`Proxy`] owns a listener on loopback, the connections that came through it, and the switches for
//! faults. It runs on a thread with a runtime of its own, so that a test may block while the proxy forwards.
//! The bytes of one connection pass through `link`; this file has the switches.
//!
//! The order that it keeps: once a switch has been turned, nothing *sent afterwards* escapes it. Bytes that
//! were under way at that moment may fall on either side.

mod link;
mod timer;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::sync::oneshot;

use link::{Shared, Swallow};

/// A TCP proxy with faults that can be switched at any time, for open and new connections alike.
///
/// Dropping it closes its connections and its port.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Starts a proxy before `upstream`, at a free port of loopback, with no fault switched on.
    ///
    /// A server need not listen at `upstream` yet; a connection that cannot be passed on is closed.
    pub fn start(upstream: SocketAddr) -> Self {
        Self::start_at(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), upstream)
    }

    /// Starts a proxy at the address of a server that was killed: the address now leads to `upstream`.
    #[track_caller]
    pub fn start_at(address: SocketAddr, upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).expect("the address is free");
        let address = listener.local_addr().expect("a bound listener has an address");
        listener.set_nonblocking(true).expect("a listener can be made non-blocking");
        let shared = Arc::new(Shared::new(upstream));
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new()
            .name("permits-proxy".to_owned())
            .spawn({
                let shared = Arc::clone(&shared);
                move || serve(listener, shared, stopped)
            })
            .expect("the system has a thread to give");
        Self { address, shared, stop: Some(stop), thread: Some(thread) }
    }

    /// Passes new connections on to another server. Open ones stay as they are.
    pub fn lead_to(&self, upstream: SocketAddr) {
        self.shared.lead_to(upstream);
    }

    /// The address at which clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL by which a client reaches the server through the proxy, without a password or TLS.
    pub fn url(&self) -> String {
        format!("redis://{}/", self.address)
    }

    /// Cuts every open connection on both sides; new ones are accepted as before.
    ///
    /// The connections are cut when this returns, and no more of their bytes will arrive. A connection counts
    /// as open once it is passed on to the server, and certainly when its client has had a reply.
    pub fn cut(&self) {
        self.shared.cut();
    }

    /// Closes new connections at once while `on`; switching it on cuts the open ones too.
    pub fn refuse(&self, on: bool) {
        self.shared.refuse(on);
    }

    /// Holds back everything from the server for `delay`, in order; zero ends the delay.
    ///
    /// The delay applies to bytes that are held back already: a shorter one lets them go earlier.
    pub fn delay_replies(&self, delay: Duration) {
        self.shared.faults.send_modify(|faults| faults.reply_delay = delay);
    }

    /// Holds back everything from the clients for `delay`, in order; zero ends the delay.
    ///
    /// The delay applies to bytes that are held back already: a shorter one lets them go earlier.
    pub fn delay_requests(&self, delay: Duration) {
        self.shared.faults.send_modify(|faults| faults.request_delay = delay);
    }

    /// Reads the server's bytes and throws them away while `on`; the connections stay open.
    ///
    /// A client that keeps the connection afterwards takes the reply to a later request for the reply to an
    /// earlier one, unless it counts the lost replies: [`cut`](Self::cut) before, if in doubt.
    pub fn swallow_replies(&self, on: bool) {
        self.shared.faults.send_modify(|faults| faults.swallow_replies = on);
    }

    /// Arms, for one time: the server's next bytes, on any connection, are thrown away, and that connection
    /// is cut.
    ///
    /// The server has executed the client's requests when the client sees the cut. Arming again before that
    /// replaces the earlier order.
    pub fn swallow_next_reply_then_cut(&self) {
        self.shared.arm(Swallow::NextReply);
    }

    /// Arms, for one time: the next request that contains `needle`, on any connection, reaches the server,
    /// the reply is thrown away, and that connection is cut.
    ///
    /// The server has executed the request when the client sees the cut. Replies to earlier requests on that
    /// connection that had not been passed on are lost with it, as on a network. Arming again before that
    /// replaces the earlier order.
    #[track_caller]
    pub fn swallow_reply_to(&self, needle: &[u8]) {
        assert!(!needle.is_empty(), "every request contains the empty needle");
        self.shared.arm(Swallow::ReplyTo(needle.to_vec()));
    }

    /// Takes the messages of channels whose names contain `needle` out of the server's bytes, from now on; an
    /// empty needle ends that. The connections stay open, and lose nothing else.
    ///
    /// A message that arrives here in two pieces is passed on.
    pub fn swallow_messages(&self, needle: &'static [u8]) {
        self.shared.faults.send_modify(|faults| faults.swallow_messages = needle);
    }

    /// Passes nothing on in either direction and closes nothing while `on`: a black hole.
    ///
    /// Bytes that came meanwhile are passed on when it is switched off.
    pub fn stall(&self, on: bool) {
        self.shared.faults.send_modify(|faults| faults.stalled = on);
    }

    /// The connections that are open now.
    pub fn connections(&self) -> usize {
        self.shared.connections()
    }

    /// The connections accepted since the start, refused ones included.
    pub fn accepted(&self) -> usize {
        self.shared.accepted.load(SeqCst)
    }

    /// The accepted connections that were refused.
    pub fn refused(&self) -> usize {
        self.shared.refused.load(SeqCst)
    }

    /// The chunks from the server that were thrown away: one for each armed order, and one for each chunk
    /// read while [`swallow_replies`](Self::swallow_replies) was on. And the messages that were taken out.
    pub fn swallowed(&self) -> usize {
        self.shared.swallowed.load(SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // Either call fails only if the thread has ended, which is the aim.
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.shared.cut();
    }
}

/// The thread of a proxy: accepts until it is stopped. Its connections end with its runtime.
fn serve(listener: TcpListener, shared: Arc<Shared>, mut stop: oneshot::Receiver<()>) {
    // The proxy has one thread, so that a request is noted before its reply is passed on.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("the system has an event queue to give");
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener).expect("the listener is non-blocking");
        loop {
            tokio::select! {
                _ = &mut stop => return,
                accepted = listener.accept() => match accepted {
                    Ok((client, _)) => {
                        tokio::spawn(link::run(client, Arc::clone(&shared)));
                    }
                    // The system may have no descriptors left; others are closed in a moment.
                    Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
                },
            }
        }
    });
}
