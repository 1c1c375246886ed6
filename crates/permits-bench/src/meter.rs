//! The work of a server, by its own counters: two readings, and the difference.

use std::time::Instant;

use permits_testkit::{Connection, Resp, Server};

use crate::Failure;

/// The counters of a server at one moment.
#[derive(Clone, Copy)]
pub struct Reading {
    at: Instant,
    processor_us: f64,
    calls: u64,
    commands: u64,
}

/// The difference between two readings.
pub struct Spent {
    /// The time between the readings.
    pub seconds: f64,
    /// The server's processor time.
    pub processor_us: f64,
    /// Commands that clients sent: scripts, and the (un)subscribing that scripts cannot do.
    pub calls: f64,
    /// All commands, including the commands inside scripts.
    pub commands: f64,
}

/// Reads one server, over one connection.
pub struct Meter {
    connection: Connection,
}

impl Meter {
    /// Connects.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub fn new(server: &Server) -> Result<Self, Failure> {
        Ok(Self { connection: server.connect()? })
    }

    fn command(&mut self, words: &[&str]) -> Result<Resp, Failure> {
        Ok(self.connection.call(words)?)
    }

    /// Reads the counters.
    ///
    /// # Errors
    /// If the server fails, or lacks one of them.
    pub fn read(&mut self) -> Result<Reading, Failure> {
        let info = self.command(&["INFO", "everything"])?;
        let number = |field: &str| field_of(info.text(), field).and_then(|value| value.parse::<f64>().ok());
        let seconds = |field: &str| number(field).ok_or_else(|| format!("no {field}"));
        let commands = number("total_commands_processed").ok_or("no total_commands_processed")?;
        Ok(Reading {
            at: Instant::now(),
            processor_us: (seconds("used_cpu_sys")? + seconds("used_cpu_user")?) * 1e6,
            calls: calls_of(info.text()),
            commands: commands as u64,
        })
    }

    /// Reads them again, for the difference.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn since(&mut self, before: Reading) -> Result<Spent, Failure> {
        let now = self.read()?;
        Ok(Spent {
            seconds: (now.at - before.at).as_secs_f64(),
            processor_us: now.processor_us - before.processor_us,
            calls: (now.calls - before.calls) as f64,
            commands: (now.commands - before.commands) as f64,
        })
    }

    /// Bytes of the data, without the memory of connections.
    pub fn memory(&mut self) -> Result<f64, Failure> {
        Ok(self.bytes("used_memory")? - self.memory_of_connections()?)
    }

    /// Bytes of the connections.
    pub fn memory_of_connections(&mut self) -> Result<f64, Failure> {
        self.bytes("mem_clients_normal")
    }

    fn bytes(&mut self, field: &str) -> Result<f64, Failure> {
        let info = self.command(&["INFO", "memory"])?;
        let value = field_of(info.text(), field).and_then(|value| value.parse::<f64>().ok());
        Ok(value.ok_or_else(|| format!("no {field}"))?)
    }

    /// Forgets all data, and hands its memory back at once.
    ///
    /// # Errors
    /// If the server fails.
    pub fn empty(&mut self) -> Result<(), Failure> {
        self.command(&["FLUSHALL", "SYNC"])?;
        Ok(())
    }
}

fn field_of<'a>(info: &'a str, field: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))
}

/// Commands that clients sent: those that the systems send while they work.
fn calls_of(info: &str) -> u64 {
    const SENT: [&str; 7] =
        ["eval", "evalsha", "subscribe", "unsubscribe", "ssubscribe", "sunsubscribe", "psubscribe"];
    let calls = |command: &str| {
        let line = field_of(info, &format!("cmdstat_{command}"))?;
        line.strip_prefix("calls=")?.split(',').next()?.parse::<u64>().ok()
    };
    SENT.iter().filter_map(|command| calls(command)).sum()
}
