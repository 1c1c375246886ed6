//! The workers of a cell, each a process of its own, and what they told.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use permits_testkit::history::{ClientEvent, ClientRecord, History};
use permits_testkit::{ChildGuard, wait};

use super::worker::{self, Settings};

/// More than anything here should take on a busy machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// All workers, and what they told.
pub(crate) struct Crew {
    template: Settings,
    pub(crate) workers: Vec<Worker>,
    started: usize,
    told: Arc<Mutex<Told>>,
    readers: Vec<JoinHandle<()>>,
}

/// What was told so far, by any worker.
#[derive(Default)]
pub(crate) struct Told {
    pub(crate) history: History,
    /// Who holds what, by their own last word.
    holding: BTreeSet<(usize, String)>,
    /// When each worker last acquired.
    acquired: BTreeMap<usize, u64>,
    /// Holders whose writes the fenced resource refused though they held.
    pub(crate) rejected: Vec<String>,
}

impl Told {
    fn note(&mut self, number: usize, line: &str) {
        if let Some(tag) = worker::rejected(line) {
            self.rejected.push(format!("worker {number}, {tag}"));
        }
        let Some(event) = ClientRecord::parse(line) else { return };
        let key = (number, event.tag.clone());
        match event.event {
            ClientEvent::Acquired { .. } => {
                self.acquired.insert(number, event.at);
                self.holding.insert(key);
            }
            ClientEvent::Releasing | ClientEvent::NotHeld | ClientEvent::Lost(_) => {
                drop(self.holding.remove(&key))
            }
            _ => {}
        }
        self.history.events.push((number, event));
    }
}

/// One of them.
pub(crate) struct Worker {
    pub(crate) number: usize,
    process: ChildGuard,
    stdin: ChildStdin,
}

impl Crew {
    /// Nobody yet; all will be started like this, with numbers and seeds of their own.
    pub(crate) fn new(template: Settings) -> Self {
        Self { template, workers: Vec::new(), started: 0, told: Arc::default(), readers: Vec::new() }
    }

    /// Starts another worker, which reaches the store by this URL, with this prefix.
    pub(crate) fn start(&mut self, url: &str, prefix: &str) {
        let worker = self.spawn(url, prefix);
        self.workers.push(worker);
    }

    /// Kills a worker (SIGKILL), and starts another in its place.
    pub(crate) fn replace(&mut self, index: usize, url: &str) {
        let prefix = self.template.prefix.clone();
        self.workers[index].process.kill();
        let killed = self.workers[index].number;
        self.told().holding.retain(|(number, _)| *number != killed);
        self.workers[index] = self.spawn(url, &prefix);
    }

    fn spawn(&mut self, url: &str, prefix: &str) -> Worker {
        self.started += 1;
        let number = self.started;
        let settings = Settings {
            url: url.to_owned(),
            prefix: prefix.to_owned(),
            number,
            seed: self.template.seed.wrapping_add(1000 * number as u64),
            ..self.template.clone()
        };
        let program = std::env::current_exe().expect("a program knows where it is");
        let mut command = Command::new(program);
        command.arg("worker").args(settings.words()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = ChildGuard::spawn(&mut command);
        let (stdin, lines) = (process.stdin(), process.lines());
        let told = self.told.clone();
        self.readers.push(std::thread::spawn(move || {
            // Longer than any cell: `None` is the end of the output.
            while let Some(line) = lines.next_line(Duration::from_secs(24 * 3600)) {
                lock(&told).note(number, &line);
            }
        }));
        Worker { number, process, stdin }
    }

    pub(crate) fn told(&self) -> MutexGuard<'_, Told> {
        lock(&self.told)
    }

    /// The indexes of the workers that hold now, by their own word.
    pub(crate) fn holders(&self) -> Vec<usize> {
        let told = self.told();
        let holds = |worker: &Worker| told.holding.iter().any(|(number, _)| *number == worker.number);
        (0..self.workers.len()).filter(|index| holds(&self.workers[*index])).collect()
    }

    /// Has a worker fork a child.
    pub(crate) fn fork(&mut self, index: usize) {
        let worker = &mut self.workers[index];
        writeln!(worker.stdin, "fork").expect("the worker lives");
    }

    /// Freezes a worker (SIGSTOP).
    pub(crate) fn pause(&mut self, index: usize) {
        self.workers[index].process.pause();
    }

    /// Lets it go on (SIGCONT).
    pub(crate) fn resume(&mut self, index: usize) {
        self.workers[index].process.resume();
    }

    /// Waits until every worker has acquired after `since`; else says who has not.
    pub(crate) fn await_served(&self, since: u64) -> Result<(), String> {
        let numbers: Vec<usize> = self.workers.iter().map(|worker| worker.number).collect();
        let unserved = || -> Vec<usize> {
            let told = self.told();
            let served = |number: &usize| told.acquired.get(number).is_some_and(|at| *at > since);
            numbers.iter().copied().filter(|number| !served(number)).collect()
        };
        if wait::until(TIMEOUT, || unserved().is_empty()) {
            return Ok(());
        }
        Err(format!("workers {:?} got no permit within {TIMEOUT:?}", unserved()))
    }

    /// Ends the loops of all workers, closes their clients, and returns all that was told, in the order of time.
    pub(crate) fn close(&mut self) -> Result<(), String> {
        let stopped = self.tell_all("stop", |what| *what == ClientEvent::Stopped);
        let closed =
            stopped.and_then(|()| self.tell_all("close", |what| matches!(what, ClientEvent::Closed(_))));
        for worker in &mut self.workers {
            // Those that have closed end; the others, which make this cell fail, are ended.
            worker.process.wait_timeout(Duration::from_secs(2));
            worker.process.kill();
        }
        for reader in self.readers.drain(..) {
            reader.join().expect("a reader does not panic");
        }
        closed
    }

    fn tell_all(&mut self, word: &str, answer: impl Fn(&ClientEvent) -> bool) -> Result<(), String> {
        for worker in &mut self.workers {
            writeln!(worker.stdin, "{word}")
                .map_err(|error| format!("worker {} has ended: {error}", worker.number))?;
        }
        let numbers: BTreeSet<usize> = self.workers.iter().map(|worker| worker.number).collect();
        let answered = || -> BTreeSet<usize> {
            let told = self.told();
            let answers = told.history.events.iter().rev().filter(|(_, event)| answer(&event.event));
            answers.map(|(number, _)| *number).collect()
        };
        // A look at the whole history is dear: not too many of them.
        let mut missing = numbers;
        let mut looks = 0;
        let all = wait::until(TIMEOUT, || {
            looks += 1;
            if looks % 50 == 1 {
                let answered = answered();
                missing.retain(|number| !answered.contains(number));
            }
            missing.is_empty()
        });
        if all { Ok(()) } else { Err(format!("workers {missing:?} did not {word} within {TIMEOUT:?}")) }
    }
}

fn lock(told: &Mutex<Told>) -> MutexGuard<'_, Told> {
    told.lock().unwrap_or_else(PoisonError::into_inner)
}
