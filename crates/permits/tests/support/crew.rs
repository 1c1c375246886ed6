//! Workers in processes of their own, and what they told: for tests of what real processes see.
//!
//! Whoever uses it has the test `worker_process`, which runs [`worker::run_if_told`]: the executable of the test
//! is started again with that name.

use std::env;
use std::io::Write as _;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use permits::Recovery;
use permits_testkit::history::{ClientEvent, ClientRecord, Granted, History, Rules, now, verify};
use permits_testkit::{ChildGuard, wait};

use crate::worker::{self, Told};

/// More than anything here should take on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(40);

/// What the workers told, shared with the threads that listen.
type Shared = Arc<Mutex<History>>;

/// The workers of a test: their settings, and what they told.
pub(crate) struct Crew {
    pub(crate) limit: usize,
    pub(crate) lease: Duration,
    pub(crate) recovery: Recovery,
    history: Shared,
    workers: Mutex<usize>,
}

impl Crew {
    pub(crate) fn new(limit: usize, lease: Duration) -> Self {
        let recovery = Recovery::default();
        Self { limit, lease, recovery, history: Shared::default(), workers: Mutex::new(0) }
    }

    /// A worker that reaches the store by this URL and has this lease, connected.
    pub(crate) fn worker_at(&self, label: &str, url: &str, lease: Duration) -> Worker {
        let mut command = Command::new(env::current_exe().expect("a test knows its executable"));
        command
            .args([worker::TEST, "--exact", "--ignored", "--nocapture", "--test-threads=1"])
            .env(worker::URL, url)
            .env(worker::LABEL, label)
            .env(worker::LEASE_MS, lease.as_millis().to_string())
            .env(worker::LIMIT, self.limit.to_string())
            .env(worker::RECOVERY, worker::name_of(self.recovery))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let child = command.spawn().expect("a test can start its own executable");
        let number = {
            let mut workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
            *workers += 1;
            *workers
        };
        Worker::new(number, lease, child, self.history.clone())
    }

    pub(crate) fn grants(&self) -> Vec<Granted> {
        lock(&self.history).grants()
    }

    /// How many events are like this.
    pub(crate) fn count(&self, like: impl Fn(&ClientEvent) -> bool) -> usize {
        lock(&self.history).events.iter().filter(|(_, event)| like(&event.event)).count()
    }

    /// The last that was told, to explain a failure.
    pub(crate) fn tail(&self) -> String {
        lock(&self.history).tail()
    }

    /// What clients must see, whatever went wrong; and whoever was closed, and so lives, was served.
    #[track_caller]
    pub(crate) fn assert_safe(&self) {
        let history = lock(&self.history);
        assert!(!history.grants().is_empty(), "nothing was granted: nothing is shown");
        let rules = Rules::limit(u32::try_from(self.limit).expect("it is small"));
        verify(&history, &rules).unwrap_or_else(|violation| panic!("{violation}\n{}", history.tail()));
    }
}

fn lock(history: &Shared) -> MutexGuard<'_, History> {
    // A judgement that failed leaves the history as it is.
    history.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A process that acquires, holds and releases as it is told.
pub(crate) struct Worker {
    number: usize,
    lease: Duration,
    process: ChildGuard,
    stdin: ChildStdin,
    history: Shared,
}

impl Worker {
    #[track_caller]
    fn new(number: usize, lease: Duration, mut child: Child, history: Shared) -> Self {
        let stdin = child.stdin.take().expect("standard input is piped");
        let mut process = ChildGuard::new(child);
        let lines = process.lines();
        std::thread::spawn({
            let history = history.clone();
            // Longer than any test: `None` is the end of the output.
            move || {
                while let Some(line) = lines.next_line(10 * LIMIT) {
                    if let Some(event) = ClientRecord::parse(&line) {
                        lock(&history).events.push((number, event));
                    }
                }
            }
        });
        let worker = Self { number, lease, process, stdin, history };
        worker.await_event("-", |what| *what == ClientEvent::Connected);
        worker
    }

    #[track_caller]
    pub(crate) fn tell(&mut self, told: &Told) {
        let written = writeln!(self.stdin, "{told}");
        assert!(written.is_ok(), "worker {} does not listen to {told}: {written:?}", self.number);
    }

    /// Has it ask for a permit, and hold that until [`Worker::release`].
    #[track_caller]
    pub(crate) fn ask(&mut self, tag: &str) {
        assert!(!tag.contains(' '), "a tag is one word: {tag:?}");
        self.tell(&Told::Acquire { tag: tag.to_owned(), hold: None });
    }

    /// Notes that it was seen to stand in line: whoever asks from now on must not overtake it.
    pub(crate) fn seen_in_line(&self, tag: &str) {
        lock(&self.history).note(self.number, tag, ClientEvent::Enqueued);
    }

    /// Has it ask for a permit, and waits until it has it.
    #[track_caller]
    pub(crate) fn acquire(&mut self, tag: &str) -> Granted {
        self.ask(tag);
        self.acquired(tag)
    }

    /// Waits until it has the permit.
    #[track_caller]
    pub(crate) fn acquired(&self, tag: &str) -> Granted {
        self.await_event(tag, |what| matches!(what, ClientEvent::Acquired { .. }));
        self.granted(tag)
    }

    /// The permit as it has told of it so far.
    #[track_caller]
    pub(crate) fn granted(&self, tag: &str) -> Granted {
        let grants = lock(&self.history).grants();
        let granted = grants.into_iter().find(|granted| granted.worker == self.number && granted.tag == tag);
        granted.unwrap_or_else(|| panic!("{tag} was not granted to worker {}", self.number))
    }

    pub(crate) fn tell_release(&mut self, tag: &str) {
        self.tell(&Told::Release { tag: tag.to_owned() });
    }

    /// Has it release, and waits for a good end.
    #[track_caller]
    pub(crate) fn release(&mut self, tag: &str) {
        self.tell_release(tag);
        self.released(tag);
    }

    /// Waits until the release has ended well.
    #[track_caller]
    pub(crate) fn released(&self, tag: &str) {
        let event =
            self.await_event(tag, |what| matches!(what, ClientEvent::Released(_) | ClientEvent::Lost(_)));
        assert_eq!(event.event, ClientEvent::Released("ok".to_owned()), "{tag} of worker {}", self.number);
    }

    /// Waits until the loss is told.
    #[track_caller]
    pub(crate) fn lost(&self, tag: &str) -> ClientRecord {
        self.await_event(tag, |what| matches!(what, ClientEvent::Lost(_)))
    }

    /// Waits until the permit is held by a renewal that was sent after this call began.
    #[track_caller]
    pub(crate) fn renewed(&self, tag: &str) {
        // A deadline is a lease after the sending, and somewhat less.
        let sent_later = now() + micros(self.lease);
        self.await_event(tag, |what| matches!(what, ClientEvent::Held { until } if *until > sent_later));
    }

    /// What it told of this acquisition since then, if anything.
    pub(crate) fn told_since(&self, tag: &str, at: u64) -> Vec<ClientRecord> {
        lock(&self.history).of(self.number, tag).filter(|event| event.at > at).cloned().collect()
    }

    pub(crate) fn has_told(&self, tag: &str, like: impl Fn(&ClientEvent) -> bool) -> bool {
        lock(&self.history).of(self.number, tag).any(|event| like(&event.event))
    }

    /// Waits until it has told something like this of this acquisition.
    #[track_caller]
    pub(crate) fn await_event(&self, tag: &str, like: impl Fn(&ClientEvent) -> bool) -> ClientRecord {
        let found = || lock(&self.history).of(self.number, tag).find(|event| like(&event.event)).cloned();
        wait::until(LIMIT, || found().is_some());
        found().unwrap_or_else(|| {
            panic!("worker {} never told that of {tag}\n{}", self.number, lock(&self.history).tail())
        })
    }

    /// Asks it to inspect the semaphore.
    #[track_caller]
    pub(crate) fn inspect(&mut self) -> Inspected {
        let since = now();
        self.tell(&Told::Inspect);
        let mut inspected = None;
        let answered = wait::until(LIMIT, || {
            inspected = self.told_since("-", since).into_iter().find_map(|event| match event.event {
                ClientEvent::Inspected { held, waiting, recovering_ms } => {
                    Some(Inspected { held, waiting, recovering_ms })
                }
                _ => None,
            });
            inspected.is_some()
        });
        assert!(answered, "worker {} cannot inspect\n{}", self.number, lock(&self.history).tail());
        inspected.expect("it was answered")
    }

    /// Begins so many loops that acquire, hold for at most so long, release, and rest for at most so long.
    #[track_caller]
    pub(crate) fn work(&mut self, loops: u32, hold: Duration) {
        self.tell(&Told::Work { loops, hold });
    }

    /// Ends its loops.
    #[track_caller]
    pub(crate) fn stop(&mut self) {
        self.tell(&Told::Stop);
        self.await_event("-", |what| *what == ClientEvent::Stopped);
    }

    /// Closes its client, which ends it.
    #[track_caller]
    pub(crate) fn close(mut self) {
        self.tell(&Told::Close);
        let closed = self.await_event("-", |what| matches!(what, ClientEvent::Closed(_)));
        assert_eq!(closed.event, ClientEvent::Closed("ok".to_owned()), "worker {}", self.number);
    }

    /// Kills it (SIGKILL). What it told before is heard.
    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    /// Freezes it (SIGSTOP).
    #[track_caller]
    pub(crate) fn pause(&mut self) {
        self.process.pause();
    }

    /// Lets it go on (SIGCONT). Returns a time before it does.
    #[track_caller]
    pub(crate) fn resume(&mut self) -> u64 {
        let before = now();
        self.process.resume();
        before
    }
}

/// A semaphore as a worker found it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inspected {
    pub(crate) held: u64,
    pub(crate) waiting: u64,
    pub(crate) recovering_ms: u64,
}

/// Random numbers for a test that draws its faults. The seed is shown if the test fails, and can be given.
pub(crate) fn random() -> fastrand::Rng {
    fastrand::Rng::with_seed(permits_testkit::random::seed())
}

/// Microseconds in a duration.
pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).expect("tests are short")
}
