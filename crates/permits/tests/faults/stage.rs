//! What every test stands on: a server, a crew of workers, and what they told.

use std::ops::Deref;
use std::time::Duration;

use permits::Recovery;
use permits::protocol::{AcquireOutcome, Answers};
use permits_testkit::history::{Recorder, Violation, replay};
use permits_testkit::{Connection, Resp, Server, wait};

use crate::crew::Crew;
pub(crate) use crate::crew::{LIMIT, Worker, micros, random};
use crate::packed;
use crate::worker::SEMAPHORE;

/// A server, what it did, and the crew that uses it.
pub(crate) struct Stage {
    // Dropped before the server that it listens to.
    recorder: Recorder,
    pub(crate) server: Server,
    crew: Crew,
    is_forgetful: bool,
}

impl Deref for Stage {
    type Target = Crew;

    fn deref(&self) -> &Crew {
        &self.crew
    }
}

impl Stage {
    pub(crate) fn new(limit: usize, lease: Duration) -> Self {
        Self::on(Server::start(), limit, lease)
    }

    pub(crate) fn on(server: Server, limit: usize, lease: Duration) -> Self {
        let recorder = Recorder::listen(&server);
        Self { recorder, server, crew: Crew::new(limit, lease), is_forgetful: false }
    }

    /// The store is going to lose what it knows, which nothing else may be taken for.
    pub(crate) fn forgetful(mut self) -> Self {
        self.is_forgetful = true;
        self
    }

    /// Has the workers be so cautious after a restart. The default counts a server that has just been started
    /// as restarted too: the first permit then comes after a third of the lease.
    pub(crate) fn recovery(mut self, recovery: Recovery) -> Self {
        self.crew.recovery = recovery;
        self
    }

    /// A worker, connected.
    pub(crate) fn worker(&self, label: &str) -> Worker {
        self.worker_at(label, &self.server.url(), self.lease)
    }

    /// A field of the state; 0 without one.
    pub(crate) fn state(&self, field: &str) -> u64 {
        packed::field(&self.server.command(&packed::reading_state(&key("state"))), field).unwrap_or(0)
    }

    /// How many wait, by the server's word.
    pub(crate) fn waiting(&self) -> usize {
        count(&self.server.command(&["ZCARD", &key("queue")]))
    }

    /// How many hold or wait, by the server's word.
    pub(crate) fn entries(&self) -> usize {
        count(&self.server.command(&["HLEN", &key("entries")]))
    }

    /// The holders that wait, in order.
    pub(crate) fn queue(&self) -> Vec<String> {
        let reply = self.server.command(&["ZRANGE", &key("queue"), "0", "-1"]);
        reply.array().iter().map(|holder| holder.text().to_owned()).collect()
    }

    #[track_caller]
    pub(crate) fn await_waiting(&self, waiting: usize) {
        let there = wait::until(LIMIT, || self.waiting() == waiting);
        assert!(there, "{} wait, not {waiting}\n{}", self.waiting(), self.tail());
    }

    /// P10: nothing is held, nobody waits, all slots are free. And all that the server did to come there is what the
    /// model does.
    #[track_caller]
    pub(crate) fn assert_at_rest(&self) {
        let left = || {
            let free = count(&self.server.command(&["EXISTS", &key("free")]));
            let leases = count(&self.server.command(&["ZCARD", &key("leases")]));
            let [held, slots_made] = ["held", "slots_made"].map(|field| self.state(field));
            (held, slots_made, self.waiting(), self.entries(), leases, free)
        };
        let at_rest = wait::until(LIMIT, || left() == (0, 0, 0, 0, 0, 0));
        let names = "(held, slots made, waiting, entries, leases, ranges of free slots)";
        assert!(at_rest, "left behind: {names} = {:?}\n{}", left(), self.tail());
        self.replay().unwrap_or_else(|violation| panic!("{violation}\n{}", self.tail()));
    }

    /// The tokens in the answers to acquisitions, as the server gave them.
    pub(crate) fn tokens_told(&self) -> Vec<u64> {
        let answers = self.recorder.records().into_iter().filter_map(|record| match record.reply.answers {
            Answers::Acquire(answers) => Some(answers),
            _ => None,
        });
        let token = |acquired| match acquired {
            AcquireOutcome::Granted(grant) => Some(grant.token),
            _ => None,
        };
        answers.flatten().filter_map(token).collect()
    }

    /// Replays what the server did, and compares it with what the workers saw.
    fn replay(&self) -> Result<(), Violation> {
        let replayed = replay(&self.recorder.records())?;
        eprintln!("{} commands, {} events replayed", replayed.commands, replayed.events);
        assert_eq!(self.is_forgetful, !replayed.losses.is_empty(), "state was lost: {:?}", replayed.losses);
        replayed.check_at_rest()?;
        replayed.check_deadlines(&self.grants())
    }
}

fn key(part: &str) -> String {
    format!("permits:{{{SEMAPHORE}}}:{part}")
}

fn count(reply: &Resp) -> usize {
    usize::try_from(reply.int()).expect("a count is not negative")
}

/// Listens to every command that a server carries out, also within scripts; administration is not shown.
pub(crate) struct Monitor {
    connection: Connection,
}

impl Monitor {
    pub(crate) fn start(server: &Server) -> Self {
        let mut connection = server.connect().expect("the server is up");
        connection.call(&["MONITOR"]).expect("the server is up");
        Self { connection }
    }

    /// What it heard until now, a line a command, in the order of the server.
    pub(crate) fn stop(mut self, server: &Server) -> Vec<String> {
        server.command(&["ECHO", "the end of the monitor"]);
        let mut lines = Vec::new();
        loop {
            let line = self.connection.receive().expect("the monitor hears the end").text().to_owned();
            if line.contains("the end of the monitor") {
                return lines;
            }
            lines.push(line);
        }
    }
}

/// The calls of a command so far, by `INFO commandstats`.
pub(crate) fn calls(server: &Server, command: &str) -> u64 {
    let reply = server.command(&["INFO", "commandstats"]);
    let field = format!("cmdstat_{command}:calls=");
    let count =
        reply.text().lines().find_map(|line| line.strip_prefix(&field)?.split(',').next()?.parse().ok());
    count.unwrap_or(0)
}

/// The errors with this code so far, by `INFO errorstats`.
pub(crate) fn errors(server: &Server, code: &str) -> u64 {
    let reply = server.command(&["INFO", "errorstats"]);
    let field = format!("errorstat_{code}:count=");
    reply.text().lines().find_map(|line| line.strip_prefix(&field)?.parse().ok()).unwrap_or(0)
}
