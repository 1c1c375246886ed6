//! The state that the callers of a connection and its task share: the bytes to write, and the replies to
//! come.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::io::AsyncWrite as _;
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::Instant;

use super::stream::Writable;
use crate::call::Call;
use crate::resp::{Cmd, RespError, RespResult, Value};
use permits_store::Report;

/// The number of bytes that the socket has not taken from which on the connection is full. Below half of it,
/// there is room.
const FULL: usize = 1 << 20;

/// The capacity that an empty output buffer retains.
const SPARE: usize = 64 << 10;

/// A reply or message, or the end.
pub(crate) enum Arrival {
    /// The outcome of a call: the reply, or the error of the server or of the connection.
    Outcome(Box<Call>, RespResult<Value>),
    /// The payload of a message.
    Message(Vec<u8>),
    /// The server refuses a subscription to this channel.
    NotSubscribed(String, RespError),
    /// The server has ended the subscription to this channel by itself.
    Unsubscribed(String),
    /// The connection was full and has room again.
    Room,
    /// The connection has ended. Nothing follows.
    Ended(RespError),
}

/// The receiver of what a connection reads. Called by the connection's task, under no lock of the connection.
pub(crate) trait Receiver: Send + 'static {
    /// Takes one arrival, and adds what it means for the session to `reports`.
    fn receive(&self, arrival: Arrival, reports: &mut Vec<Report>);

    /// Takes all of `reports`, once all that one read has brought is received.
    fn hand_on(&self, reports: &mut Vec<Report>);
}

/// The receiver of a connection that makes no calls and has no subscriptions.
pub(crate) struct NoReceiver;

impl Receiver for NoReceiver {
    fn receive(&self, _: Arrival, _: &mut Vec<Report>) {}

    fn hand_on(&self, _: &mut Vec<Report>) {}
}

/// The times of a connection.
#[derive(Clone, Copy, Default)]
pub(crate) struct Times {
    /// The interval between pings while nothing arrives, and their timeout.
    pub(crate) ping: Option<(Duration, Duration)>,
    /// The timeout of queries, if callers do not set their own.
    pub(crate) query: Option<Duration>,
}

/// The state that callers and the task share.
pub(super) struct Shared {
    state: Mutex<State>,
    pub(super) times: Times,
    full: AtomicBool,
    /// The number of commands that have their replies.
    replied: AtomicU64,
    /// Wakes queries that wait until the connection is no longer full.
    room: Notify,
    /// The reason of the end, once all outcomes are known.
    ended: watch::Sender<Option<RespError>>,
}

pub(super) struct State {
    writable: Writable,
    /// Bytes to write; those before `written` have been.
    unsent: Vec<u8>,
    written: usize,
    /// False if the stream may have kept bytes that were written.
    flushed: bool,
    /// The number of commands.
    pub(super) sent: u64,
    /// The meaning of each reply to come.
    pub(super) expected: VecDeque<Expected>,
    /// The time at which the task wakes at the latest.
    pub(super) wake_at: Instant,
    /// The time of the last read.
    pub(super) last_read: Instant,
    /// The time of the last reply.
    pub(super) last_reply: Instant,
    /// Wakes the task.
    pub(super) waker: Waker,
    /// The fault of a write. What the server has sent before is still read.
    pub(super) write_error: Option<io::ErrorKind>,
    /// The reason for the end. Nothing can be sent any more.
    pub(super) end: Option<RespError>,
}

/// A reply to come.
pub(super) struct Expected {
    pub(super) purpose: Purpose,
    /// The kind and the channel of the push that takes the place of the reply.
    pub(super) push: Option<(&'static str, String)>,
    sent_at: Instant,
    /// The longest time without any reply.
    timeout: Option<Duration>,
}

impl Expected {
    /// The time at which it is overdue, if the last reply arrived at `last_reply`.
    ///
    /// Many commands may be before it. While their replies arrive, the server is alive, and another
    /// connection would only have to send all of them again.
    pub(super) fn overdue_at(&self, last_reply: Instant) -> Option<Instant> {
        self.timeout.map(|timeout| self.sent_at.max(last_reply) + timeout)
    }
}

/// The purpose of a reply.
pub(super) enum Purpose {
    Call(Box<Call>),
    Query(oneshot::Sender<RespResult<Value>>),
    Subscription(String),
    Ping,
    Nothing,
}

/// The error of a connection that has been closed.
pub(crate) fn closed() -> RespError {
    io::Error::other("the connection was closed").into()
}

impl Shared {
    pub(super) fn new(writable: Writable, times: Times) -> Self {
        let now = Instant::now();
        let state = State {
            writable,
            unsent: Vec::new(),
            written: 0,
            flushed: true,
            sent: 0,
            expected: VecDeque::new(),
            // The task sets it when it runs first.
            wake_at: now,
            last_read: now,
            last_reply: now,
            waker: Waker::noop().clone(),
            write_error: None,
            end: None,
        };
        Self {
            state: Mutex::new(state),
            times,
            full: AtomicBool::new(false),
            replied: AtomicU64::new(0),
            room: Notify::new(),
            ended: watch::Sender::new(None),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the task end the connection.
    pub(super) fn end(&self, reason: RespError) {
        let mut state = self.lock();
        state.end.get_or_insert(reason);
        state.waker.wake_by_ref();
    }

    /// The replies to commands, which are sent together. A subscription's reply is its confirmation.
    pub(super) async fn query_all(&self, commands: &[Cmd]) -> Vec<RespResult<Value>> {
        let mut answers = Vec::with_capacity(commands.len());
        self.until_room().await;
        {
            let mut state = self.lock();
            if let Some(reason) = state.refusal() {
                return commands.iter().map(|_| Err(reason.clone())).collect();
            }
            for command in commands {
                let (sender, answer) = oneshot::channel();
                state.push(command, Purpose::Query(sender), self.times.query);
                answers.push(answer);
            }
            self.write(&mut state);
        }
        let mut replies = Vec::with_capacity(commands.len());
        for answer in answers {
            replies.push(answer.await.unwrap_or_else(|_| Err(closed())));
        }
        replies
    }

    /// Waits until the connection is not full.
    pub(super) async fn until_room(&self) {
        loop {
            let room = self.room.notified();
            if !self.is_full() {
                return;
            }
            room.await;
        }
    }

    /// Returns true if the socket has not taken much of what was sent.
    pub(super) fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// Waits for the end of the connection. All calls have their outcomes then.
    pub(super) async fn ended(&self) -> RespError {
        let mut ended = self.ended.subscribe();
        match ended.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or_else(closed),
            Err(_) => closed(),
        }
    }

    /// Writes as much as the socket takes, and notes whether the connection is full.
    pub(super) fn write(&self, state: &mut State) {
        state.write();
        let left = state.left();
        if left > FULL {
            self.full.store(true, Ordering::Relaxed);
        }
    }

    /// Notes that there is room again. Returns true if the connection was full.
    pub(super) fn make_room(&self, state: &State) -> bool {
        let has_room = state.left() < FULL / 2 || state.end.is_some();
        let was_full = has_room && self.full.swap(false, Ordering::Relaxed);
        if was_full {
            self.room.notify_waiters();
        }
        was_full
    }

    /// Notes the number of commands that have their replies.
    pub(super) fn note_replies(&self, state: &State) {
        let left = u64::try_from(state.expected.len()).unwrap_or(u64::MAX);
        self.replied.store(state.sent.saturating_sub(left), Ordering::Relaxed);
    }

    /// Returns true if the command of this number has its reply, or the connection has ended.
    pub(super) fn has_reply(&self, number: u64) -> bool {
        self.replied.load(Ordering::Relaxed) >= number
    }

    /// Notes that the connection has ended, and all outcomes have been handed over.
    pub(super) fn announce_end(&self, reason: RespError) {
        self.replied.store(u64::MAX, Ordering::Relaxed);
        self.ended.send_replace(Some(reason));
    }
}

impl State {
    /// The reason why nothing can be sent.
    pub(super) fn refusal(&self) -> Option<RespError> {
        self.end.clone().or_else(|| self.write_error.map(|kind| io::Error::from(kind).into()))
    }

    /// Appends a command. The task wakes in time for the end of its timeout.
    pub(super) fn push(&mut self, command: &Cmd, purpose: Purpose, timeout: Option<Duration>) {
        command.pack(&mut self.unsent);
        let push = match purpose {
            Purpose::Call(_) => None,
            _ => confirmation(command),
        };
        self.sent += 1;
        let sent_at = Instant::now();
        self.expected.push_back(Expected { purpose, push, sent_at, timeout });
        if let Some(timeout) = timeout
            && sent_at + timeout < self.wake_at
        {
            self.wake_at = sent_at + timeout;
            self.waker.wake_by_ref();
        }
    }

    /// The number of bytes that the socket has not taken.
    fn left(&self) -> usize {
        self.unsent.len() - self.written
    }

    /// Writes as much as the socket takes. The task is woken when it takes more.
    fn write(&mut self) {
        if self.write_error.is_some() || self.end.is_some() {
            return;
        }
        let Self { writable, unsent, written, flushed, waker, .. } = self;
        let mut writing = std::pin::pin!(tokio::task::unconstrained(std::future::poll_fn(
            |cx: &mut Context<'_>| -> Poll<io::Result<()>> {
                let mut writable = Pin::new(&mut *writable);
                while *written < unsent.len() {
                    *flushed = false;
                    match writable.as_mut().poll_write(cx, &unsent[*written..]) {
                        Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                        Poll::Ready(Ok(count)) => *written += count,
                        Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                        Poll::Pending => return Poll::Pending,
                    }
                }
                if !*flushed {
                    std::task::ready!(writable.as_mut().poll_flush(cx))?;
                    *flushed = true;
                }
                Poll::Ready(Ok(()))
            }
        )));
        // The write does not use the caller's cooperative budget: a caller that has used its budget up would
        // not write.
        let done = writing.as_mut().poll(&mut Context::from_waker(waker));
        // The bytes that are left move to the front when they are few.
        if *written >= unsent.len() / 2 {
            unsent.drain(..*written);
            unsent.shrink_to(SPARE);
            *written = 0;
        }
        if let Poll::Ready(Err(error)) = done {
            self.write_error = Some(error.kind());
            self.waker.wake_by_ref();
        }
    }
}

/// The push that confirms a command in the place of a reply.
fn confirmation(command: &Cmd) -> Option<(&'static str, String)> {
    let mut words = command.words();
    let kind = match words.next()? {
        b"SUBSCRIBE" => "subscribe",
        b"SSUBSCRIBE" => "ssubscribe",
        b"UNSUBSCRIBE" => "unsubscribe",
        b"SUNSUBSCRIBE" => "sunsubscribe",
        _ => return None,
    };
    Some((kind, String::from_utf8_lossy(words.next()?).into_owned()))
}
