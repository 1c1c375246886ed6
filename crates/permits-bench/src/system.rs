//! The systems that are measured, and a process of one of them.
//!
//! A process reads commands from standard input, and ends with it. The processes of `permits` and of the
//! lower bounds run the program itself, with the verb `driver`: each program that starts them calls
//! [`crate::driver::run`].

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::time::Duration;

use permits_testkit::{ChildGuard, HANGS, Lines, own_program};
use serde_json::Value;

use crate::Failure;

/// A library, or a lower bound, that runs the workloads.
#[derive(Clone)]
pub struct System {
    /// The short name: in figures, in files and on the command line.
    pub name: &'static str,
    /// The name on pages.
    pub title: &'static str,
    /// The role in a comparison.
    pub kind: Kind,
    /// The program that runs as its processes.
    pub program: Program,
}

/// The role of a system in a comparison.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `permits`, used in one way or another.
    Ours,
    /// Another library.
    Peer,
    /// A lower bound, without a semaphore.
    Floor,
}

/// The program of a system's processes. It takes the URL of the server and a lease in milliseconds.
#[derive(Clone)]
pub enum Program {
    /// The running program, with the verb `driver` and the name of the system.
    Own,
    /// Another build of the running program, with the same arguments.
    Build(PathBuf),
    /// Another program.
    At(PathBuf),
    /// The program is missing, for this reason.
    Absent(String),
}

/// A system whose driver is part of the running program.
pub const fn own(name: &'static str, title: &'static str, kind: Kind) -> System {
    System { name, title, kind, program: Program::Own }
}

/// `permits`, and the lower bounds that the same server and client allow.
pub static OWN: [System; 4] = [
    own("permits", "permits (Rust)", Kind::Ours),
    own("permits-dropped", "permits, released by dropping them", Kind::Ours),
    own("noop", "two no-op scripts; PUBLISH to receive (crate redis)", Kind::Floor),
    own("incr", "two INCR scripts (crate redis)", Kind::Floor),
];

/// `permits` where it keeps permits, and the least that a semaphore costs: one of this process alone.
pub static KEEPING: [System; 2] = [
    own("permits-kept", "permits, with permits kept", Kind::Ours),
    own("tokio", "tokio::sync::Semaphore", Kind::Floor),
];

/// `permits` alone.
pub static PERMITS: &System = &OWN[0];

impl System {
    /// The command that starts one of its processes, or the reason why the system has no program.
    fn command(&self) -> Result<Command, String> {
        let driver = |program: &Path| {
            let mut command = Command::new(program);
            command.args(["driver", self.name]);
            command
        };
        match &self.program {
            Program::Own => Ok(driver(&own_program())),
            Program::Build(path) => Ok(driver(path)),
            Program::At(path) => Ok(Command::new(path)),
            Program::Absent(reason) => Err(reason.clone()),
        }
    }

    /// The reason why it cannot take part.
    pub fn absent(&self) -> Option<String> {
        self.command().err()
    }

    /// Returns whether a workload applies to it: all do to a semaphore, few to a floor.
    pub fn takes_part(&self, workload: &str) -> bool {
        match self.name {
            "noop" => matches!(workload, "A" | "B" | "D"),
            "permits-dropped" | "incr" | "tokio" => matches!(workload, "A" | "B"),
            "permits-kept" => matches!(workload, "A" | "B" | "C" | "K"),
            "permits" => workload != "K",
            _ => !matches!(workload, "K" | "L"),
        }
    }

    /// Starts a process of it; a lease of zero is the default of the system.
    ///
    /// # Errors
    /// If it has no program, or the program does not start.
    pub fn start(&self, url: &str, lease: Duration) -> Result<Process, Failure> {
        let mut command = self.command()?;
        command.arg(url).arg(lease.as_millis().to_string());
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.map_err(|error| format!("{command:?}: {error}"))?;
        let stdin = child.stdin.take().ok_or("no standard input")?;
        let mut guard = ChildGuard::new(child);
        let lines = guard.lines();
        Ok(Process { name: self.name, guard, stdin, lines, last_command: String::new() })
    }
}

/// A process of a system.
pub struct Process {
    name: &'static str,
    guard: ChildGuard,
    stdin: ChildStdin,
    lines: Lines,
    /// The last command.
    last_command: String,
}

impl Process {
    /// Sends a command, without waiting for the answer.
    pub fn send(&mut self, command: &str) -> Result<(), Failure> {
        command.clone_into(&mut self.last_command);
        Ok(self.stdin.write_all(format!("{command}\n").as_bytes())?)
    }

    /// The answer to the oldest command that has none; an error of the kind [`Cannot`] if the system cannot
    /// do it.
    pub fn answer(&self) -> Result<Value, Failure> {
        let line = self.lines.next_line(HANGS);
        let line = line.ok_or_else(|| format!("{} does not answer `{}`", self.name, self.last_command))?;
        let value: Value = serde_json::from_str(&line)?;
        match value["cannot"].as_str() {
            Some(reason) => Err(Cannot(reason.to_owned()).into()),
            None => Ok(value),
        }
    }

    /// Sends a command, and waits for its answer.
    ///
    /// # Errors
    /// If the process has ended or does not answer in time, or the system cannot do it.
    pub fn ask(&mut self, command: &str) -> Result<Value, Failure> {
        self.send(command)?;
        self.answer()
    }

    /// The answers that have arrived since the last one; the command need not have ended.
    pub fn arrived(&self) -> Result<Vec<Value>, Failure> {
        let lines = std::iter::from_fn(|| self.lines.next_line(Duration::ZERO));
        Ok(lines.map(|line| serde_json::from_str(&line)).collect::<Result<_, _>>()?)
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.guard.pid()
    }

    /// Kills the process, as a crash would.
    pub fn kill(mut self) {
        self.guard.kill();
    }

    /// Kills the process. Returns the answers that had arrived since the last one.
    pub fn crash(mut self) -> Result<Vec<Value>, Failure> {
        self.guard.kill();
        let lines = std::iter::from_fn(|| self.lines.next_line(HANGS));
        Ok(lines.map(|line| serde_json::from_str(&line)).collect::<Result<_, _>>()?)
    }

    /// The processor time so far, in microseconds.
    pub fn processor_us(&self) -> Result<f64, Failure> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.guard.pid()))?;
        // The second field, the name, may have spaces in it.
        let (_, rest) = stat.rsplit_once(')').ok_or("no name in stat")?;
        let fields = rest.split_whitespace().skip(11).take(2);
        let ticks = fields.map(str::parse::<u64>).sum::<Result<u64, _>>()?;
        Ok(ticks as f64 * 1e6 / rustix::param::clock_ticks_per_second() as f64)
    }
}

/// A workload that a system is not made for. Not a failure: the table states it.
#[derive(Debug)]
pub struct Cannot(pub String);

impl std::fmt::Display for Cannot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Cannot {}
