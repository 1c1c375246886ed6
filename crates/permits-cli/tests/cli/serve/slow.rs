//! Clients that read slowly, or not at all.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use futures_util::future::try_join_all;
use permits::{Client, Limit, Semaphore};
use permits_testkit::in_real_time;
use permits_testkit::sound::Named as _;
use permits_testkit::{Server, wait};
use serde_json::Value;
use tokio::net::TcpSocket;
use tokio::runtime::{Builder, Runtime};

use super::Serve;
use super::http::{Stream, ports};

/// The semaphores that change. A change of all of them is an event of more than 100 kB.
const SEMAPHORES: usize = 100;

/// The semaphores of a list of more than 4 MB.
const MANY: usize = 3_500;

/// The clients that read each of the large replies slowly.
const SLOW: usize = 30;

/// More changes than the server keeps for a client.
const MISSED: usize = 20;

/// Few semaphores, of which the server reads all in a moment. A change of all is an event of 40 kB.
const FEW: usize = 30;

/// Changes of [`FEW`] semaphores that fill what the HTTP library buffers of a reply, some 400 kB.
const BUFFERED: usize = 15;

/// Semaphores of a store that change at the same time.
struct Changing {
    runtime: Runtime,
    semaphores: Vec<Semaphore>,
    limit: u32,
}

impl Changing {
    #[track_caller]
    fn start(server: &Server, number: usize) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let client = runtime.block_on(Client::connect(&server.url())).expect("the server is up");
        let names = (0..number).map(|number| format!("s{number:04}"));
        let semaphores: Vec<_> = names.map(|name| client.named(name, Limit::Stored)).collect();
        let reason = "x".repeat(1_000);
        let closed = semaphores.iter().map(|semaphore| semaphore.close_line(&reason));
        runtime.block_on(try_join_all(closed)).expect("they can be closed");
        Self { runtime, semaphores, limit: 0 }
    }

    /// Changes all, and waits until `events` has all changes.
    #[track_caller]
    fn change(&mut self, events: &mut Stream) {
        self.change_some(self.semaphores.len(), events);
    }

    /// Changes so many of them, and waits until `events` has these changes.
    #[track_caller]
    fn change_some(&mut self, mut pending: usize, events: &mut Stream) {
        self.limit += 1;
        let changed = self.semaphores[..pending].iter().map(|semaphore| semaphore.set_limit(self.limit));
        self.runtime.block_on(try_join_all(changed)).expect("they can be changed");
        while pending > 0 {
            let change = events.event("change");
            let rows = change["changed"].as_array().expect("an array");
            let latest = rows.iter().filter(|row| row["limit"] == self.limit).count();
            pending = pending.saturating_sub(latest);
        }
    }
}

/// The number of open files of the server, connections included.
pub(super) fn open_files(serve: &Serve) -> usize {
    fs::read_dir(format!("/proc/{}/fd", serve.pid())).expect("it runs").count()
}

/// The memory of the server in MiB.
pub(super) fn memory(serve: &Serve) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", serve.pid())).expect("it runs");
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a field");
    resident.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") / 1024
}

/// The bytes that the system has taken from the server for a client that does not read.
fn unsent((own, server): (u16, u16)) -> u64 {
    let ends = [format!(":{server:04X}"), format!(":{own:04X}")];
    let connections = fs::read_to_string("/proc/net/tcp").expect("Linux has it");
    let queue = connections.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        (fields[1].ends_with(&ends[0]) && fields[2].ends_with(&ends[1])).then(|| fields[4].to_owned())
    });
    let queue = queue.expect("it is connected");
    let (unsent, _) = queue.split_once(':').expect("two numbers");
    u64::from_str_radix(unsent, 16).expect("a number")
}

#[test]
fn a_client_that_reads_nothing_is_disconnected_and_costs_little() {
    let server = Server::start();
    let mut changing = Changing::start(&server, SEMAPHORES);
    let serve = Serve::start(&server, &[]);
    let mut healthy = serve.get("/api/v1/events").open();
    healthy.event("all");
    changing.change(&mut healthy);
    let (files, used) = (open_files(&serve), memory(&serve));
    let stalled = serve.get("/api/v1/events").open();
    assert_eq!(open_files(&serve), files + 1);
    let is_closed = wait::until(|| {
        changing.change(&mut healthy);
        open_files(&serve) == files
    });
    assert!(is_closed, "its connection is open");
    // Some 7 MiB. The events that the client has not read are 20 MiB more.
    let grown = memory(&serve).saturating_sub(used);
    assert!(grown < 16, "{grown} MiB after {} events", changing.limit);
    assert!(!stalled.rest().ends_with("\r\n0\r\n\r\n"), "it was cut off");
}

#[test]
fn a_client_that_falls_behind_gets_all_again() {
    in_real_time(|| {
        let server = Server::start();
        let mut changing = Changing::start(&server, FEW);
        let serve = Serve::start(&server, &[]);
        let mut healthy = serve.get("/api/v1/events").open();
        healthy.event("all");
        let mut slow = serve.get("/api/v1/events").open();
        slow.event("all");
        let (mut taken, mut buffered) = (0, 0);
        while buffered < BUFFERED {
            changing.change(&mut healthy);
            let now = unsent(slow.ports());
            buffered = if now == taken { buffered + 1 } else { 0 };
            taken = now;
        }
        // Small ones: it is disconnected if these take too long.
        for _ in 0..MISSED {
            changing.change_some(1, &mut healthy);
        }
        let latest = changing.limit;
        let rows = |data: &Value, field: &str| data[field].as_array().cloned().unwrap_or_default();
        let has_latest = |data: &Value| {
            let rows = [rows(data, "changed"), rows(data, "semaphores")].concat();
            rows.iter().any(|row| row["limit"] == latest)
        };
        let (name, all) =
            std::iter::repeat_with(|| slow.next()).find(|(_, data)| has_latest(data)).expect("endless");
        assert_eq!(name, "all", "the changes that it has missed are not sent");
        let rows = rows(&all, "semaphores");
        assert!(rows.len() == FEW && rows[0]["limit"] == latest, "{all}");
        changing.change(&mut slow);
    });
}

/// Sends a request, and takes the first bytes of the reply. The system takes few bytes for this client.
#[track_caller]
fn begin_slowly(runtime: &Runtime, address: SocketAddr, path: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("the system has a socket to give");
    socket.set_recv_buffer_size(4096).expect("valid");
    let stream = runtime.block_on(socket.connect(address)).and_then(tokio::net::TcpStream::into_std);
    let mut stream = stream.expect("it listens");
    stream.set_nonblocking(false).expect("valid");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").expect("it is read");
    let mut head = [0; 100];
    stream.read_exact(&mut head).expect("a reply");
    assert!(head.starts_with(b"HTTP/1.1 200 "), "{path}");
    stream.set_nonblocking(true).expect("valid");
    stream
}

#[test]
fn clients_that_read_large_replies_slowly_share_them_and_are_disconnected() {
    let server = Server::start();
    let changing = Changing::start(&server, MANY);
    let serve = Serve::start(&server, &[]);
    let list = serve.read("/api/v1/semaphores").body;
    assert!(list.len() > 4_000_000, "{}", list.len());
    // The number of open files is an upper bound: the connection of this reading may still be open.
    let (files, used) = (open_files(&serve), memory(&serve));
    let clients = || (0..SLOW).flat_map(|_| ["/api/v1/semaphores", "/api/v1/events", "/metrics"]);
    let begin = |path| begin_slowly(&changing.runtime, serve.address, path);
    let mut clients: Vec<TcpStream> = clients().map(begin).collect();
    // The growth is some 6 MiB. A copy of each reply for each client would be 270 MiB more.
    let grown = memory(&serve).saturating_sub(used);
    assert!(grown < 100, "{grown} MiB");
    for client in &clients {
        let taken = unsent(ports(client));
        assert!(taken < 300_000, "{taken} bytes");
    }
    let mut turn = 0;
    let are_disconnected = wait::until(|| {
        // Fails when there is nothing to read yet, and after the end.
        let _ = clients[turn].read(&mut [0; 4096]);
        turn = (turn + 1) % clients.len();
        turn == 0 && open_files(&serve) <= files
    });
    assert!(are_disconnected, "{} connections are open", open_files(&serve).saturating_sub(files));
    assert_eq!(serve.read("/healthz").status, 200);
}
