//! The task of a connection: reads replies and messages, writes what the socket did not take at first, and
//! keeps time.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead as _, ReadBuf};
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep, sleep_until};

use super::state::{Arrival, Expected, Purpose, Receiver, Shared, State, closed};
use super::stream::Readable;
use crate::resp::{FromValue, Parser, RespError, RespResult, Value, cmd};
use permits_store::Report;

/// The most bytes of one read.
const READ: usize = 64 << 10;

/// The longest sleep of a task that has no deadline to meet.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);

/// The state of the task.
pub(super) struct Reader<R: Receiver> {
    readable: Readable,
    shared: Arc<Shared>,
    receiver: R,
    buffer: Vec<u8>,
    parser: Parser,
    /// Collected during a turn.
    values: Vec<Value>,
    arrivals: Vec<Arrival>,
    reports: Vec<Report>,
    answers: Vec<(oneshot::Sender<RespResult<Value>>, RespResult<Value>)>,
    has_finished: bool,
}

/// The cause of a turn of the task.
enum Turn {
    /// So many bytes were read.
    Read(usize),
    /// The connection was full and has room again.
    Room,
    /// The deadlines have to be checked.
    Due,
    /// The connection has ended.
    End(RespError),
}

impl<R: Receiver> Reader<R> {
    pub(super) fn new(readable: Readable, shared: Arc<Shared>, receiver: R) -> Self {
        Self {
            readable,
            shared,
            receiver,
            buffer: vec![0; READ],
            parser: Parser::default(),
            values: Vec::new(),
            arrivals: Vec::new(),
            reports: Vec::new(),
            answers: Vec::new(),
            has_finished: false,
        }
    }

    /// Reads until the connection ends.
    pub(super) async fn run(mut self) {
        let mut timer = std::pin::pin!(sleep_until(Instant::now()));
        let reason = loop {
            let turn = std::future::poll_fn(|cx| self.poll_turn(cx, timer.as_mut())).await;
            let end = match turn {
                Turn::Read(count) => self.on_read(count),
                Turn::Room => {
                    self.arrivals.push(Arrival::Room);
                    None
                }
                Turn::Due => self.on_due(),
                Turn::End(reason) => Some(reason),
            };
            if let Some(reason) = end {
                break reason;
            }
            self.hand_over();
        };
        self.finish(reason);
    }

    fn poll_turn(&mut self, cx: &mut Context<'_>, mut timer: Pin<&mut Sleep>) -> Poll<Turn> {
        let (wake_at, write_error) = {
            let mut state = self.shared.lock();
            if !state.waker.will_wake(cx.waker()) {
                state.waker = cx.waker().clone();
            }
            if let Some(reason) = &state.end {
                return Poll::Ready(Turn::End(reason.clone()));
            }
            self.shared.write(&mut state);
            if self.shared.make_room(&state) {
                return Poll::Ready(Turn::Room);
            }
            (state.wake_at, state.write_error)
        };
        let mut buffer = ReadBuf::new(&mut self.buffer);
        match Pin::new(&mut self.readable).poll_read(cx, &mut buffer) {
            Poll::Ready(Ok(())) if buffer.filled().is_empty() => {
                return Poll::Ready(Turn::End(io::Error::from(io::ErrorKind::UnexpectedEof).into()));
            }
            Poll::Ready(Ok(())) => return Poll::Ready(Turn::Read(buffer.filled().len())),
            Poll::Ready(Err(error)) => return Poll::Ready(Turn::End(error.into())),
            Poll::Pending => {}
        }
        if let Some(kind) = write_error {
            return Poll::Ready(Turn::End(io::Error::from(kind).into()));
        }
        if timer.deadline() != wake_at {
            timer.as_mut().reset(wake_at);
        }
        timer.poll(cx).map(|()| Turn::Due)
    }

    /// Takes the replies and messages in the buffer. Returns the reason, if they end the connection.
    fn on_read(&mut self, count: usize) -> Option<RespError> {
        let fault = self.parser.feed(&self.buffer[..count], &mut self.values).err();
        let shared = self.shared.clone();
        let mut state = shared.lock();
        state.last_read = Instant::now();
        let mut unexpected = None;
        let mut values = std::mem::take(&mut self.values);
        for value in values.drain(..) {
            match value {
                Value::Push(push) => self.on_push(&mut state, push),
                reply => match state.expected.pop_front() {
                    Some(expected) => {
                        state.last_reply = state.last_read;
                        self.on_reply(expected.purpose, FromValue::from_value(reply));
                    }
                    // All later replies would be taken for replies to other commands.
                    None => unexpected = Some(io::Error::other("a reply without a command").into()),
                },
            }
        }
        self.values = values;
        shared.note_replies(&state);
        fault.or(unexpected)
    }

    fn on_push(&mut self, state: &mut State, push: Vec<Value>) {
        let mut words = push.into_iter().map(Vec::from_value);
        let (Some(Ok(kind)), Some(Ok(channel))) = (words.next(), words.next()) else { return };
        if matches!(&kind[..], b"message" | b"smessage") {
            if let Some(Ok(payload)) = words.next() {
                self.arrivals.push(Arrival::Message(payload));
            }
            return;
        }
        let channel = String::from_utf8_lossy(&channel).into_owned();
        let is_first = |first: &Expected| {
            let is_it = |(expected, about): &(&str, String)| expected.as_bytes() == kind && *about == channel;
            first.push.as_ref().is_some_and(is_it)
        };
        if state.expected.front().is_some_and(is_first) {
            if let Some(expected) = state.expected.pop_front() {
                self.on_reply(expected.purpose, Ok(Value::Nil));
            }
        } else if matches!(&kind[..], b"unsubscribe" | b"sunsubscribe") {
            self.arrivals.push(Arrival::Unsubscribed(channel));
        }
    }

    fn on_reply(&mut self, purpose: Purpose, result: RespResult<Value>) {
        match purpose {
            Purpose::Call(call) => self.arrivals.push(Arrival::Outcome(call, result)),
            Purpose::Query(answer) => self.answers.push((answer, result)),
            Purpose::Subscription(channel) => {
                if let Err(refusal) = result {
                    self.arrivals.push(Arrival::NotSubscribed(channel, refusal));
                }
            }
            Purpose::Ping | Purpose::Nothing => {}
        }
    }

    /// Checks the deadlines, pings, and plans the next check. Returns the reason, if a reply is overdue.
    fn on_due(&mut self) -> Option<RespError> {
        let mut state = self.shared.lock();
        let now = Instant::now();
        let mut next = now + LONGEST_SLEEP;
        let mut pinged = false;
        for expected in &state.expected {
            match expected.overdue_at(state.last_reply) {
                Some(at) if at <= now => return Some(overdue(&expected.purpose)),
                Some(at) => next = next.min(at),
                None => {}
            }
            pinged |= matches!(expected.purpose, Purpose::Ping);
        }
        if let (Some((every, timeout)), false) = (self.shared.times.ping, pinged) {
            if state.last_read + every <= now {
                state.push(&cmd("PING"), Purpose::Ping, Some(timeout));
                self.shared.write(&mut state);
                next = next.min(now + timeout);
            } else {
                next = next.min(state.last_read + every);
            }
        }
        state.wake_at = next;
        None
    }

    /// Hands over what a turn has collected. No lock is held.
    fn hand_over(&mut self) {
        for (answer, result) in self.answers.drain(..) {
            // The caller may have given up.
            let _ = answer.send(result);
        }
        for arrival in self.arrivals.drain(..) {
            self.receiver.receive(arrival, &mut self.reports);
        }
        if !self.reports.is_empty() {
            self.receiver.hand_on(&mut self.reports);
            self.reports.clear();
        }
    }

    /// Ends the connection: everything that waits for a reply gets its outcome.
    fn finish(&mut self, reason: RespError) {
        let shared = self.shared.clone();
        let (expected, last_reply, was_full) = {
            let mut state = shared.lock();
            state.end = Some(reason.clone());
            (std::mem::take(&mut state.expected), state.last_reply, shared.make_room(&state))
        };
        let now = Instant::now();
        let is_overdue = |expected: &Expected| expected.overdue_at(last_reply).is_some_and(|at| at <= now);
        // A reply that is overdue is the cause for itself alone.
        let others = if expected.iter().any(is_overdue) { closed() } else { reason.clone() };
        for expected in expected {
            let error = if is_overdue(&expected) { overdue(&expected.purpose) } else { others.clone() };
            match expected.purpose {
                Purpose::Subscription(_) => {}
                purpose => self.on_reply(purpose, Err(error)),
            }
        }
        if was_full {
            self.arrivals.push(Arrival::Room);
        }
        self.arrivals.push(Arrival::Ended(reason.clone()));
        self.hand_over();
        self.has_finished = true;
        shared.announce_end(reason);
    }
}

impl<R: Receiver> Drop for Reader<R> {
    /// Ends the connection. If the task has panicked, each call that waits gets its outcome. If the runtime
    /// has ended, none does: that ends the session, too.
    fn drop(&mut self) {
        if self.has_finished {
            return;
        }
        if std::thread::panicking() {
            // A fault of this crate. The calls are made again.
            drop(catch_unwind(AssertUnwindSafe(|| self.finish(closed()))));
        } else {
            let ended = {
                let mut state = self.shared.lock();
                state.end = Some(closed());
                self.shared.make_room(&state);
                std::mem::take(&mut state.expected)
            };
            drop(ended);
            self.shared.announce_end(closed());
        }
    }
}

/// The error of a reply that has not come in time.
fn overdue(purpose: &Purpose) -> RespError {
    let text = match purpose {
        Purpose::Call(call) => format!("no answer within {:?}", call.request.timeout),
        Purpose::Ping => "the server does not answer a ping".to_owned(),
        _ => return io::Error::from(io::ErrorKind::TimedOut).into(),
    };
    io::Error::new(io::ErrorKind::TimedOut, text).into()
}
