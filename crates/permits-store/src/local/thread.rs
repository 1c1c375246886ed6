//! [`Thread`]: works with the files of a directory for one session.
//!
//! **The session learns what happened to a semaphore in the order in which it happened.** A server tells it
//! on one connection. Here replies and messages come by two ways: the thread has the reply to its own command
//! at once, and the messages of other processes come through the mailbox. Assume that an operator revokes a
//! waiter, and that its renewal is executed next. The renewal finds no waiter. If the session heard that
//! first, it would ask for a new place, and the revocation would be undone. So the thread reads the mailbox
//! after each command. What others sent before the command, it reports ahead of the reply. Each message has
//! the number of the write that it tells of, which shows whether it was sent before.

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::mpsc::{self, TryRecvError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::directory::Directory;
use super::idle;
use super::mailbox::{self, Mailbox, Message, Received};
use super::queue::{Queue, Task, counts};
use super::seen::Seen;
use super::semaphores::{self, Done};
use crate::backend::{Executed, Report, Sink};
use crate::clock::Moment;
use crate::error::StoreError;
use crate::protocol::{Command, Name, Operation, SessionId};

/// How long the command that has sent a message may take to end. After that the session asks by its renewals.
const CONFIRM_TIMEOUT: Duration = Duration::from_millis(500);

/// How long the thread waits for the lock of a file, before it works for other semaphores.
const LOCK_PATIENCE: Duration = Duration::from_millis(20);

/// How many messages are kept whose senders hold a lock for too long. A pipe holds fewer.
const LOCKED_MAX: usize = 1024;

/// Once the thread has this many commands of its session, the session keeps further requests back. These then
/// travel together in fewer commands.
pub(super) const FULL: usize = 16;

/// The state that a session and its thread share.
pub(super) struct Shared {
    /// The number of commands that the thread has to execute. Renewals are not counted: a session sends few
    /// of them at once, and must always be able to send one.
    pub(super) commands: AtomicUsize,
    /// The thread has been woken, and has not looked for tasks since.
    woken: AtomicBool,
    /// Wakes the thread.
    waker: Mutex<File>,
}

impl Shared {
    pub(super) fn new(waker: File) -> Self {
        Self { commands: AtomicUsize::new(0), woken: AtomicBool::new(false), waker: Mutex::new(waker) }
    }

    pub(super) fn wake(&self) {
        // The fence pairs with the fence in `look`: either the thread finds the task, or the swap below finds
        // that it has looked.
        fence(Ordering::SeqCst);
        if !self.woken.swap(true, Ordering::AcqRel) {
            mailbox::wake(&self.waker());
        }
    }

    /// Notes that the thread looks for tasks now. It must look after this.
    fn look(&self) {
        self.woken.store(false, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    fn waker(&self) -> MutexGuard<'_, File> {
        self.waker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The state of the thread.
pub(super) struct Thread {
    directory: Directory,
    session: SessionId,
    sink: Arc<dyn Sink>,
    mailbox: Mailbox,
    shared: Arc<Shared>,
    /// Messages that were read and have to be checked.
    incoming: Vec<Message>,
    /// Messages that could not be checked, because their senders had the lock for too long: at most
    /// [`LOCKED_MAX`]. The next command on their semaphores checks them.
    locked: Vec<Message>,
    /// Messages may have been lost since the last report.
    lost: bool,
    /// The reports to make next.
    reports: Vec<Report>,
}

impl Thread {
    pub(super) fn new(
        directory: Directory,
        session: SessionId,
        sink: Arc<dyn Sink>,
        mailbox: Mailbox,
        shared: Arc<Shared>,
    ) -> Self {
        let (incoming, locked, reports) = (Vec::new(), Vec::new(), Vec::new());
        Self { directory, session, sink, mailbox, shared, incoming, locked, lost: false, reports }
    }

    /// Works until the sender of `tasks` is dropped and all of them are done.
    pub(super) fn serve(mut self, tasks: &mpsc::Receiver<Task>) {
        let mut queue = Queue::default();
        loop {
            self.read_mail();
            // Note this before the tasks are taken, so that a task that comes meanwhile wakes the thread.
            self.shared.look();
            self.check_mail();
            let ended = loop {
                match tasks.try_recv() {
                    Ok(task) => queue.tasks.push_back(task),
                    Err(error) => break error == TryRecvError::Disconnected,
                }
            };
            match queue.next() {
                Some(Task::Execute { id, command, deadline, locked }) => {
                    let executed = self.execute(&command, deadline, locked);
                    match executed {
                        Ok(result) => self.report_outcome(id, &command, result),
                        Err(locked) => {
                            let locked = Some(locked);
                            queue.put_back(Task::Execute { id, command, deadline, locked });
                        }
                    }
                }
                // The caller may have given up: then nobody needs the list.
                Some(Task::List(answer)) => drop(answer.send(idle::list(&self.directory))),
                None if !self.reports.is_empty() => {}
                None if ended => return,
                None => self.mailbox.wait(),
            }
            if !self.reports.is_empty() {
                self.sink.report(&mut self.reports);
            }
        }
    }

    fn read_mail(&mut self) {
        let Received { messages, lost } = self.mailbox.receive();
        self.incoming.extend(messages);
        self.lost |= lost;
    }

    /// Reports the messages whose events have happened. Waits until their senders have unlocked the files.
    fn check_mail(&mut self) {
        // All senders had the lock when they sent, so it is enough to read each semaphore once; `None` if
        // that fails.
        let mut semaphores: BTreeMap<Name, Option<Seen>> = BTreeMap::new();
        for message in std::mem::take(&mut self.incoming) {
            let happened = match &message {
                Message::Event(event, half) => {
                    let read =
                        || Seen::of(&self.directory, &event.semaphore, Moment::now() + CONFIRM_TIMEOUT).ok();
                    let seen = semaphores.entry(event.semaphore.clone()).or_insert_with(read);
                    seen.as_mut().and_then(|seen| seen.has(&self.directory, event, *half).ok())
                }
                Message::Recall(_) => Some(true),
            };
            match happened {
                Some(true) => self.reports.push(report(message)),
                Some(false) => {}
                None => {
                    self.lost = true;
                    if self.locked.len() < LOCKED_MAX {
                        self.locked.push(message);
                    }
                }
            }
        }
        if std::mem::take(&mut self.lost) {
            self.reports.push(Report::Up);
        }
    }

    /// Reports the events that were sent before a command on their semaphore, and have happened. `before` is
    /// the semaphore as the command has found it. Later events are reported after the reply, and so are
    /// recalls: otherwise the reply, which may come from before the recall, would have the last word.
    fn report_earlier(&mut self, semaphore: &Name, mut before: Seen) {
        self.read_mail();
        let Self { directory, incoming, locked, lost, reports, .. } = self;
        for messages in [locked, incoming] {
            messages.retain(|message| match message {
                Message::Event(event, half) if event.semaphore == *semaphore && before.is_behind(*half) => {
                    match before.has(directory, event, *half) {
                        Ok(true) => reports.push(Report::Event(event.clone())),
                        Ok(false) => {}
                        Err(_) => *lost = true,
                    }
                    false
                }
                Message::Event(..) | Message::Recall(_) => true,
            });
        }
    }

    /// Executes a command. If its deadline has passed while it waited, fails it instead: its session has sent
    /// it again, or soon will. Returns an outer error if the file is locked and the deadline is not over.
    fn execute(
        &mut self,
        command: &Command,
        deadline: Moment,
        locked: Option<StoreError>,
    ) -> Result<Result<Executed, StoreError>, StoreError> {
        let now = Moment::now();
        if deadline <= now {
            let reason = "the directory is too slow for all that this session asks of it".into();
            return Ok(Err(locked.unwrap_or(StoreError::Unreachable { reason })));
        }
        if matches!(command.operation, Operation::Renew(_)) && !self.mailbox.is_named() {
            self.replace_mailbox();
        }
        let patience = deadline.min(now + LOCK_PATIENCE);
        match semaphores::execute(&self.directory, command, &self.session, patience) {
            Ok(Done { reply, messages, before }) => {
                if let Some(before) = before {
                    self.report_earlier(&command.semaphore, before);
                }
                self.reports.extend(messages.into_iter().map(report));
                Ok(Ok(Executed { reply, confirmed: u32::MAX }))
            }
            // A command that took this long has waited for the lock.
            Err(error) if patience <= Moment::now() && patience < deadline => Err(error),
            Err(error) => Ok(Err(error)),
        }
    }

    fn report_outcome(&mut self, id: u64, command: &Command, result: Result<Executed, StoreError>) {
        self.reports.push(Report::Outcome { id, result });
        if counts(command) && self.shared.commands.fetch_sub(1, Ordering::AcqRel) == FULL {
            self.reports.push(Report::Writable);
        }
    }

    /// Makes a new mailbox for the session, because somebody has deleted the old one and other processes
    /// cannot find it.
    fn replace_mailbox(&mut self) {
        self.read_mail();
        if let Ok((mailbox, waker)) = Mailbox::make(&self.directory, &self.session) {
            (self.mailbox, *self.shared.waker()) = (mailbox, waker);
        }
    }
}

fn report(message: Message) -> Report {
    match message {
        Message::Event(event, _) => Report::Event(event),
        Message::Recall(semaphore) => Report::Recall(semaphore),
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::local::directory::Locked;
    use crate::local::local_store::tests::Told;
    use crate::local::mailbox;
    use crate::protocol::{
        AcquireOutcome, AcquireRequest, Answers, ChangeOrigin, Declaration, EventKind, Grant, Holder,
        PermitTerms, Recovery, RenewOutcome, RenewRequest, RequestId, SupersedeKey,
    };

    const LEASE_MS: u64 = 3_600_000;

    fn name<T, E: std::fmt::Debug>(made: Result<T, E>) -> T {
        made.expect("it is valid")
    }

    /// An operator's session, and the thread of a session whose requests the operator changes. No thread
    /// runs, so each step is taken when the test says so.
    struct Story {
        place: TempDir,
        operator: Directory,
        thread: Thread,
        semaphore: Name,
    }

    impl Story {
        fn begin() -> Self {
            let place = TempDir::new().expect("there is room");
            let open = || Directory::open(place.path(), "p", Moment::now()).expect("there is room");
            let (operator, directory) = (open(), open());
            let session = name(SessionId::new("session"));
            let (mailbox, waker) = Mailbox::make(&directory, &session).expect("there is room");
            let shared = Arc::new(Shared::new(waker));
            let thread = Thread::new(directory, session, Arc::new(Told::default()), mailbox, shared);
            Self { place, operator, thread, semaphore: name(Name::new("s")) }
        }

        fn command(&self, session: &str, operation: Operation) -> Command {
            Command {
                semaphore: self.semaphore.clone(),
                session: name(SessionId::new(session)),
                lease_ms: LEASE_MS,
                recovery: Recovery::Off,
                declaration: Declaration::Declare(1),
                operation,
            }
        }

        /// Executes a command of the operator's session.
        fn operate(&self, operation: Operation) {
            let command = self.command("operator", operation);
            semaphores::execute(&self.operator, &command, &command.session, Moment::now())
                .expect("the file can be used");
        }

        fn revoke(&self, holder: &str, reason: &str) {
            let origin = ChangeOrigin::from(name(RequestId::new(&format!("operator.{holder}"))));
            let holder = name(Holder::new(holder));
            self.operate(Operation::Revoke { origin, holder, cooling: None, reason: reason.into() });
        }

        /// Executes a command of the session, and returns all reports until its outcome.
        fn execute(&mut self, operation: Operation) -> Vec<Report> {
            let command = self.command("session", operation);
            let far = Moment::now() + Duration::from_secs(300);
            let result = self.thread.execute(&command, far, None).expect("the file is not locked");
            self.thread.report_outcome(1, &command, result);
            std::mem::take(&mut self.thread.reports)
        }

        /// Sends a message that changes nothing; false if the pipe is full.
        fn send_recall(&self) -> bool {
            let recall = [Message::Recall(name(Name::new("other")))];
            mailbox::send(&self.operator, &self.thread.session, &recall).is_empty()
        }

        /// Reads the mailbox and checks what was there, as the thread does before each command.
        fn receive(&mut self) -> Vec<Report> {
            self.thread.read_mail();
            self.thread.check_mail();
            std::mem::take(&mut self.thread.reports)
        }

        fn lock(&self) -> Locked {
            let path = self.operator.paths(&self.semaphore).state;
            self.operator.lock(&path, Moment::now()).expect("it is there")
        }
    }

    fn acquire(holder: &str, key: &str) -> Operation {
        let supersede = name(SupersedeKey::new(key));
        let terms = PermitTerms { supersede, ..PermitTerms::new(1, LEASE_MS) };
        let request = name(RequestId::new(&format!("session.{holder}")));
        let asked = AcquireRequest::new(name(Holder::new(holder)), request, terms);
        let requests = vec![AcquireRequest { supersedes: !key.is_empty(), ..asked }];
        Operation::Acquire { queue_max: 10_000, requests }
    }

    fn renew(holder: &str, grant: Option<Grant>) -> Operation {
        let request = name(RequestId::new(&format!("session.{holder}")));
        let terms = PermitTerms::new(1, LEASE_MS);
        Operation::Renew(vec![RenewRequest::new(name(Holder::new(holder)), request, terms, grant)])
    }

    /// The reports as short names, in their order.
    fn told(reports: &[Report]) -> Vec<String> {
        let answer = |result: &Result<Executed, StoreError>| match result {
            Ok(Executed { reply, .. }) => match &reply.answers {
                Answers::Renew(outcomes) => match &outcomes[..] {
                    [RenewOutcome::Waiting { .. }] => "waits".to_owned(),
                    [RenewOutcome::RetryLater] => "unknown".to_owned(),
                    [RenewOutcome::Lost] => "lost".to_owned(),
                    other => format!("{other:?}"),
                },
                Answers::Acquire(_) => "acquired".to_owned(),
                other => format!("{other:?}"),
            },
            Err(error) => error.to_string(),
        };
        let text = |report: &Report| match report {
            Report::Outcome { result, .. } => answer(result),
            Report::Event(event) => match &event.kind {
                EventKind::Revoked(reason) => format!("{} revoked: {reason}", event.holder),
                EventKind::Superseded => format!("{} superseded", event.holder),
                other => format!("{other:?}"),
            },
            other => format!("{other:?}"),
        };
        reports.iter().map(text).collect()
    }

    /// If it heard it the other way round, the waiter would join the line again, and the revocation would be
    /// undone.
    #[test]
    fn a_waiter_hears_that_it_was_revoked_before_that_it_is_unknown() {
        let mut story = Story::begin();
        story.operate(acquire("operator", ""));
        story.execute(acquire("waiter", ""));
        story.revoke("waiter", "no");
        assert_eq!(told(&story.execute(renew("waiter", None))), ["waiter revoked: no", "unknown"]);
        assert_eq!(told(&story.receive()), [""; 0], "once");
    }

    #[test]
    fn a_superseded_waiter_hears_so_before_that_it_is_unknown() {
        let mut story = Story::begin();
        story.operate(acquire("operator", ""));
        story.execute(acquire("waiter", "key"));
        story.operate(acquire("newer", "key"));
        assert_eq!(told(&story.execute(renew("waiter", None))), ["waiter superseded", "unknown"]);
    }

    #[test]
    fn a_holder_hears_the_reason_before_that_its_permit_is_lost() {
        let mut story = Story::begin();
        let acquired = story.execute(acquire("holder", ""));
        let grant = match &acquired[..] {
            [Report::Outcome { result: Ok(Executed { reply, .. }), .. }] => match &reply.answers {
                Answers::Acquire(outcomes) => match outcomes[..] {
                    [AcquireOutcome::Granted(grant)] => Some(grant),
                    _ => None,
                },
                _ => None,
            },
            _ => None,
        };
        assert!(grant.is_some(), "{acquired:?}");
        story.revoke("holder", "no");
        assert_eq!(told(&story.execute(renew("holder", grant))), ["holder revoked: no", "lost"]);
    }

    #[test]
    fn what_happens_behind_a_command_is_told_behind_its_reply() {
        let mut story = Story::begin();
        story.operate(acquire("operator", ""));
        story.execute(acquire("waiter", ""));
        let command = story.command("session", renew("waiter", None));
        let done = semaphores::execute(&story.operator, &command, &command.session, Moment::now());
        let before = done.expect("the file can be used").before.expect("it took the lock");
        story.revoke("waiter", "no");
        story.thread.report_earlier(&story.semaphore, before);
        assert_eq!(told(&story.thread.reports), [""; 0], "the reply has not been reported");
        assert_eq!(told(&story.receive()), ["waiter revoked: no"]);
    }

    /// The sender was stopped before it could unlock the file. The session asks by its renewals, and no
    /// renewal may be ahead of the message.
    #[test]
    fn a_message_whose_sender_keeps_the_lock_is_told_before_the_next_reply() {
        let mut story = Story::begin();
        story.operate(acquire("operator", ""));
        story.execute(acquire("waiter", ""));
        story.revoke("waiter", "no");
        let locked = story.lock();
        assert_eq!(told(&story.receive()), ["Up"], "everything is to be renewed");
        drop(locked);
        assert_eq!(told(&story.execute(renew("waiter", None))), ["waiter revoked: no", "unknown"]);
    }

    /// The pipe is full, the message is longer than a pipe takes at once, or the pipe is gone.
    #[test]
    fn what_a_pipe_does_not_take_is_told_before_the_next_reply() {
        type Loss = fn(&Story);
        let losses: [(&str, &str, Loss); 3] = [
            ("full", "no", |story| while story.send_recall() {}),
            ("long", &"\u{1}".repeat(1000), |_| {}),
            ("gone", "no", |story| {
                let fifo = format!(".to-{}", story.thread.session);
                std::fs::remove_file(story.place.path().join(fifo)).expect("it is there");
            }),
        ];
        for (what, reason, lose) in losses {
            let mut story = Story::begin();
            story.operate(acquire("operator", ""));
            for waiter in ["one", "two", "left"] {
                story.execute(acquire(waiter, ""));
            }
            lose(&story);
            story.revoke("one", reason);
            story.revoke("two", reason);
            story.receive();
            let [one, two] = ["one", "two"].map(|waiter| format!("{waiter} revoked: {reason}"));
            assert_eq!(told(&story.execute(renew("left", None))), [&one, &two, "waits"], "{what}");
            assert_eq!(told(&story.execute(renew("one", None))), ["unknown"], "{what}: once");
        }
    }
}
