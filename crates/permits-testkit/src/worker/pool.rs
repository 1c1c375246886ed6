//! The test's side: starts workers, sends commands, and collects the records.

use std::collections::BTreeSet;
use std::env;
use std::io::Write as _;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::driven::Driven;
use super::{Counts, SETTINGS, Work, WorkerCommand, WorkerSettings};
use crate::driver::Subject;
use crate::history::{ClientEvent, ClientRecord, Granted, History, now, verify};
use crate::real_time::always_counts;
use crate::wait::HANGS;
use crate::{ChildGuard, wait};

/// The command that starts the running test program as a worker. `test` names an ignored test of that program
/// which calls [`run_if_started`](super::run_if_started).
pub fn test_command(test: &str) -> Command {
    let mut command = Command::new(env::current_exe().expect("a test knows its executable"));
    command.args([test, "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
    command
}

/// Workers with common settings, and the history of their records.
pub struct WorkerPool {
    /// The settings of workers, where [`start`](Self::start) is not given others.
    pub settings: WorkerSettings,
    /// The driver that each worker runs in place of the command, on the store that its settings name.
    pub driver: Option<Subject>,
    command: fn() -> Command,
    seen: Arc<Seen>,
    started: AtomicUsize,
}

/// The records of all workers, shared with the threads that read them.
#[derive(Default)]
pub(super) struct Seen {
    history: Mutex<History>,
    added: Condvar,
    /// The complaints about drivers: events that they must not write, and ends that nobody asked for.
    complaints: Mutex<Vec<String>>,
}

impl Seen {
    fn lock(&self) -> MutexGuard<'_, History> {
        // A failed assertion leaves the history as it is.
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, number: usize, record: ClientRecord) {
        self.lock().events.push((number, record));
        self.added.notify_all();
    }

    /// Records an event.
    pub(super) fn note_at(&self, at: u64, number: usize, tag: &str, event: ClientEvent) {
        self.lock().note_at(at, number, tag, event);
        self.added.notify_all();
    }

    /// Notes a complaint about a driver, which ends every wait for a record.
    pub(super) fn complain(&self, what: String) {
        self.complaints.lock().unwrap_or_else(PoisonError::into_inner).push(what);
        self.added.notify_all();
    }

    fn has_complaint(&self) -> bool {
        !self.complaints.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Shows `is_last` every record once, in the order of arrival, until it returns `true`. Returns `false`
    /// if that does not happen within `patience`, or once there is a complaint.
    fn search(&self, patience: Duration, mut is_last: impl FnMut(usize, &ClientRecord) -> bool) -> bool {
        let deadline = Instant::now() + patience;
        let (mut next, mut history) = (0, self.lock());
        loop {
            while let Some((number, record)) = history.events.get(next) {
                if is_last(*number, record) {
                    return true;
                }
                next += 1;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || self.has_complaint() {
                return false;
            }
            let waited = self.added.wait_timeout(history, left);
            history = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl WorkerPool {
    /// A pool without workers. `command` starts the program in which
    /// [`run_if_started`](super::run_if_started) runs.
    pub fn new(command: fn() -> Command, settings: WorkerSettings) -> Self {
        Self { settings, driver: None, command, seen: Arc::default(), started: AtomicUsize::new(0) }
    }

    /// Starts a worker with these settings, and a number of its own. It may not have connected when this
    /// returns.
    pub fn start(&self, settings: WorkerSettings) -> Worker {
        let number = self.started.fetch_add(1, Ordering::Relaxed) + 1;
        let settings = WorkerSettings { number, ..settings };
        let mut command = match &self.driver {
            Some(driver) => driver.command_of(&driver.driver, &settings.url, &settings.prefix),
            None => {
                let wire = serde_json::to_string(&settings).expect("settings have a form");
                let mut command = (self.command)();
                command.env(SETTINGS, wire);
                command
            }
        };
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = ChildGuard::spawn(&mut command);
        let (stdin, lines) = (process.stdin(), process.lines());
        let (seen, lease) = (self.seen.clone(), settings.lease);
        if self.driver.is_some() {
            let driven = Driven::new(settings, seen.clone(), stdin);
            let end = End::Driver(driven.clone());
            let reader = thread::spawn(move || {
                while let Some(line) = lines.next_line(Duration::MAX) {
                    driven.read(&line);
                }
                driven.ended();
            });
            return Worker { number, lease, process, end, reader, seen };
        }
        let reader = thread::spawn(move || {
            while let Some(line) = lines.next_line(Duration::MAX) {
                if let Some(record) = ClientRecord::parse(&line) {
                    seen.add(number, record);
                }
            }
        });
        Worker { number, lease, process, end: End::Commands(stdin), reader, seen: self.seen.clone() }
    }

    /// Starts a worker that reaches the store by `url`, and waits until it has connected.
    #[track_caller]
    pub fn start_connected(&self, label: &str, url: &str, lease: Duration) -> Worker {
        let (label, url) = (label.to_owned(), url.to_owned());
        let worker = self.start(WorkerSettings { label, url, lease, ..self.settings.clone() });
        worker.await_event("-", |event| *event == ClientEvent::Connected);
        worker
    }

    /// The history so far.
    pub fn history(&self) -> MutexGuard<'_, History> {
        self.seen.lock()
    }

    /// The grants so far, in the order of their requests.
    pub fn grants(&self) -> Vec<Granted> {
        self.history().grants()
    }

    /// The complaints about drivers so far: events that they must not write, and ends that nobody asked for.
    pub fn complaints(&self) -> Vec<String> {
        self.seen.complaints.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The longest wait for a record. A wait that reaches it has found something that hangs.
    fn patience(&self) -> Duration {
        self.driver.as_ref().map_or(HANGS, |driver| driver.patience)
    }

    /// The number of events that are like this.
    pub fn count(&self, like: impl Fn(&ClientEvent) -> bool) -> usize {
        self.history().events.iter().filter(|(_, record)| like(&record.event)).count()
    }

    /// The last records, to explain a failure.
    pub fn tail(&self) -> String {
        self.history().tail()
    }

    /// Waits until each of `workers` has reported an event like this after `since`, by [`now`].
    ///
    /// # Errors
    ///
    /// The numbers of those that have not within [`HANGS`].
    pub fn await_each(
        &self,
        workers: &[Worker],
        since: u64,
        like: impl Fn(&ClientEvent) -> bool,
    ) -> Result<(), BTreeSet<usize>> {
        let mut missing: BTreeSet<usize> = workers.iter().map(|worker| worker.number).collect();
        self.seen.search(self.patience(), |number, record| {
            if record.at > since && like(&record.event) {
                missing.remove(&number);
            }
            missing.is_empty()
        });
        if missing.is_empty() { Ok(()) } else { Err(missing) }
    }

    /// Waits until some worker has reported an event like this after `since`, by [`now`]. Returns whether one
    /// has within [`HANGS`].
    pub fn await_any(&self, since: u64, like: impl Fn(&ClientEvent) -> bool) -> bool {
        self.seen.search(self.patience(), |_, record| record.at > since && like(&record.event))
    }

    /// Ends the loops of `workers` and closes their clients.
    ///
    /// # Errors
    ///
    /// The workers that did not stop or close within [`HANGS`].
    pub fn close(&self, workers: Vec<Worker>) -> Result<Counts, String> {
        let mut workers = workers;
        let mut all = Counts::default();
        for command in [WorkerCommand::Stop, WorkerCommand::Close] {
            let since = now();
            for worker in &mut workers {
                worker
                    .try_send(&command)
                    .map_err(|error| format!("worker {} has ended: {error}", worker.number))?;
            }
            let ends = |event: &ClientEvent| match command {
                WorkerCommand::Stop => matches!(event, ClientEvent::Stopped(_)),
                _ => matches!(event, ClientEvent::Closed(_)),
            };
            self.await_each(&workers, since, ends)
                .map_err(|missing| format!("workers {missing:?} did not {command:?} within {HANGS:?}"))?;
        }
        for worker in workers.iter_mut().filter(|_| self.driver.is_some()) {
            let status = worker.process.wait_timeout(self.patience());
            if !status.is_some_and(|status| status.success()) {
                return Err(format!("driver {} has ended with {status:?}", worker.number));
            }
        }
        let numbers: BTreeSet<usize> = workers.iter().map(|worker| worker.number).collect();
        for (number, record) in &self.history().events {
            if let (ClientEvent::Stopped(counts), true) = (&record.event, numbers.contains(number)) {
                all.add(counts);
            }
        }
        Ok(all)
    }

    /// Verifies the history by [`verify`].
    #[track_caller]
    pub fn assert_safe(&self) {
        let history = self.history();
        assert!(!history.grants().is_empty(), "a history without grants shows nothing");
        always_counts(|| {
            verify(&history, self.settings.limit)
                .unwrap_or_else(|violation| panic!("{violation}\n{}", history.tail()));
        });
    }
}

/// The receiver of a worker's commands.
enum End {
    /// The process of the worker reads the commands.
    Commands(ChildStdin),
    /// The process is a driver, and the loops run in the test.
    Driver(Arc<Driven>),
}

/// A worker process. It is killed when this is dropped.
pub struct Worker {
    /// The number of the worker in its pool, from 1.
    pub number: usize,
    lease: Duration,
    process: ChildGuard,
    end: End,
    reader: JoinHandle<()>,
    seen: Arc<Seen>,
}

impl Worker {
    fn try_send(&mut self, command: &WorkerCommand) -> std::io::Result<()> {
        match &mut self.end {
            End::Commands(stdin) => {
                let wire = serde_json::to_string(command).expect("a command has a form");
                writeln!(stdin, "{wire}")
            }
            End::Driver(driven) => {
                driven.command(command);
                Ok(())
            }
        }
    }

    /// Sends a command.
    #[track_caller]
    pub fn send(&mut self, command: &WorkerCommand) {
        let sent = self.try_send(command);
        assert!(sent.is_ok(), "worker {} does not take {command:?}: {sent:?}", self.number);
    }

    /// Asks for a permit, to be held until [`Worker::release`].
    #[track_caller]
    pub fn ask(&mut self, tag: &str) {
        self.send(&WorkerCommand::Acquire { tag: tag.to_owned(), hold: None });
    }

    /// Asks for a permit, and waits for it.
    #[track_caller]
    pub fn acquire(&mut self, tag: &str) -> Granted {
        self.ask(tag);
        self.acquired(tag)
    }

    /// Waits for the permit.
    #[track_caller]
    pub fn acquired(&self, tag: &str) -> Granted {
        self.await_event(tag, |event| matches!(event, ClientEvent::Acquired { .. }));
        self.granted(tag)
    }

    /// The permit, as reported so far.
    #[track_caller]
    pub fn granted(&self, tag: &str) -> Granted {
        let grants = self.seen.lock().grants();
        let granted = grants.into_iter().find(|granted| granted.worker == self.number && granted.tag == tag);
        granted.unwrap_or_else(|| panic!("{tag} was not granted to worker {}", self.number))
    }

    /// Releases the permit, and waits until the release has succeeded.
    #[track_caller]
    pub fn release(&mut self, tag: &str) {
        self.send(&WorkerCommand::Release { tag: tag.to_owned() });
        self.released(tag);
    }

    /// Waits until the release has succeeded.
    #[track_caller]
    pub fn released(&self, tag: &str) {
        let ended = |event: &ClientEvent| matches!(event, ClientEvent::Released(_) | ClientEvent::Lost(_));
        let record = self.await_event(tag, ended);
        assert_eq!(record.event, ClientEvent::Released(Ok(())), "{tag} of worker {}", self.number);
    }

    /// Waits until the worker reports the loss.
    #[track_caller]
    pub fn lost(&self, tag: &str) -> ClientRecord {
        self.await_event(tag, |event| matches!(event, ClientEvent::Lost(_)))
    }

    /// Waits until a renewal that was sent after this call began has extended the permit. Fails at once if
    /// the permit is lost.
    #[track_caller]
    pub fn renewed(&self, tag: &str) {
        // A deadline is less than a lease after the sending.
        let sent_later = now() + micros(self.lease);
        let is_lost = |event: &ClientEvent| matches!(event, ClientEvent::Lost(_) | ClientEvent::NotHeld);
        let is_renewed =
            |event: &ClientEvent| matches!(event, ClientEvent::Held { until } if *until > sent_later);
        let record = self.await_event(tag, |event| is_lost(event) || is_renewed(event));
        assert!(!is_lost(&record.event), "{tag} was lost\n{}", self.seen.lock().tail());
    }

    /// Returns whether there is such a record of this acquisition.
    pub fn has_reported(&self, tag: &str, like: impl Fn(&ClientEvent) -> bool) -> bool {
        self.seen.lock().of(self.number, tag).any(|record| like(&record.event))
    }

    /// Waits for the first record of this acquisition that is like this.
    #[track_caller]
    pub fn await_event(&self, tag: &str, like: impl Fn(&ClientEvent) -> bool) -> ClientRecord {
        let mut found = None;
        self.seen.search(HANGS, |number, record| {
            if number == self.number && record.tag == tag && like(&record.event) {
                found = Some(record.clone());
            }
            found.is_some()
        });
        found.unwrap_or_else(|| {
            panic!("worker {} reported no such event of {tag}\n{}", self.number, self.seen.lock().tail())
        })
    }

    /// Begins loops.
    #[track_caller]
    pub fn work(&mut self, work: &Work) {
        self.send(&WorkerCommand::Work(work.clone()));
    }

    /// Ends the loops.
    #[track_caller]
    pub fn stop(&mut self) {
        self.send(&WorkerCommand::Stop);
        self.await_event("-", |event| matches!(event, ClientEvent::Stopped(_)));
    }

    /// Closes the client, which ends the worker.
    #[track_caller]
    pub fn close(mut self) {
        self.send(&WorkerCommand::Close);
        let closed = self.await_event("-", |event| matches!(event, ClientEvent::Closed(_)));
        assert_eq!(closed.event, ClientEvent::Closed(Ok(())), "worker {}", self.number);
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Kills the worker (SIGKILL), and waits for the records that it had written.
    pub fn kill(&mut self) {
        if let End::Driver(driven) = &self.end {
            driven.give_up();
        }
        self.process.kill();
        // A forked child may keep the pipe open for longer.
        wait::until(|| self.reader.is_finished());
        self.seen.lock().note(self.number, "-", ClientEvent::Killed);
    }

    /// Freezes the worker (SIGSTOP).
    #[track_caller]
    pub fn pause(&mut self) {
        self.process.pause();
    }

    /// Lets the worker continue (SIGCONT).
    #[track_caller]
    pub fn resume(&mut self) {
        self.process.resume();
    }
}

/// Microseconds in a duration.
pub fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).expect("tests are short")
}
