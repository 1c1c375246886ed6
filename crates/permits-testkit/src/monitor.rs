//! [`Monitor`]: the commands that a server executes.

use crate::resp::Connection;
use crate::server::Server;

/// A listener to every command that a server executes, those within scripts included, and administration
/// excepted.
#[derive(Debug)]
pub struct Monitor {
    connection: Connection,
}

impl Monitor {
    /// Listens from now on.
    pub fn start(server: &Server) -> Self {
        let mut connection = server.connect().expect("the server is up");
        connection.call(&["MONITOR"]).expect("the server is up");
        Self { connection }
    }

    /// The commands so far, a line each, in the order of the server.
    pub fn stop(mut self, server: &Server) -> Vec<String> {
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
