//! The grants of Redisson's limiter by the clock of the server.
//!
//! Redisson decides by the clocks of its clients, and its scripts add each grant to a sorted set. `MONITOR`
//! shows the commands of scripts with the server's time. It slows the server, so runs with it have no other
//! figure.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Shutdown, TcpStream};
use std::thread::{self, JoinHandle};

use permits_bench::Failure;
use permits_testkit::Server;

/// A connection that reads the commands of a server.
pub(super) struct Monitor {
    stream: TcpStream,
    reader: JoinHandle<Vec<f64>>,
}

impl Monitor {
    /// Notes from now on the times at which the limiter `name` granted.
    pub(super) fn start(server: &Server, name: &str) -> Result<Self, Failure> {
        let mut stream = TcpStream::connect(server.address())?;
        stream.write_all(b"MONITOR\r\n")?;
        let mut lines = BufReader::new(stream.try_clone()?).split(b'\n').map_while(Result::ok);
        lines.next().filter(|line| line.starts_with(b"+OK")).ok_or("MONITOR was refused")?;
        let grant = format!("\"zadd\" \"{{{name}}}:permits\"");
        let reader = thread::spawn(move || {
            lines.filter_map(|line| time_of(&String::from_utf8_lossy(&line), &grant)).collect()
        });
        Ok(Self { stream, reader })
    }

    /// The times so far, in microseconds.
    pub(super) fn finish(self) -> Result<Vec<f64>, Failure> {
        self.stream.shutdown(Shutdown::Both)?;
        self.reader.join().map_err(|_| "the reader of MONITOR panicked".into())
    }
}

/// The time of a line that contains `command`: `+1700000000.123456 [0 lua] "zadd" …`.
fn time_of(line: &str, command: &str) -> Option<f64> {
    let (time, _) = line.strip_prefix('+')?.split_once(' ').filter(|(_, rest)| rest.contains(command))?;
    let (seconds, micros) = time.split_once('.')?;
    Some(seconds.parse::<f64>().ok()? * 1e6 + micros.parse::<f64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_monitor_has_its_time_in_microseconds() {
        let line = "+1700000000.000042 [0 lua] \"zadd\" \"{x}:permits\" \"1700000000000\" \"\\x10\"";
        assert_eq!(time_of(line, "\"zadd\" \"{x}:permits\""), Some(1_700_000_000_000_042.0));
        assert_eq!(time_of(line, "\"zadd\" \"{y}:permits\""), None);
    }
}
